"""`ottla topic`: topics of any Kafka cluster."""

from ottla.cli.command import Command

COMMAND = Command("ottla topic")
