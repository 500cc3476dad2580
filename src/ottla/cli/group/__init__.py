"""`ottla group`: consumer groups of any Kafka cluster."""

from ottla.cli.command import Command

COMMAND = Command("ottla group")
