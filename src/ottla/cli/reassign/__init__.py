"""`ottla reassign`: replicas that move to other brokers."""

from ottla.cli.command import Command

COMMAND = Command("ottla reassign")
