"""`ottla log`: log directories, seen and repaired from outside."""

from ottla.cli.command import Command

COMMAND = Command("ottla log")
