"""`ottla config`: settings of topics and brokers that change while the brokers run."""

from ottla.cli.command import Command

COMMAND = Command("ottla config")
