"""`ottla replica`: where replicas are on their brokers, moves between log directories, comparison of replicas."""

from ottla.cli.command import Command

COMMAND = Command("ottla replica")
