"""`ottla broker`: the brokers of a cluster, and the producers that they know."""

from ottla.cli.command import Command

COMMAND = Command("ottla broker")
