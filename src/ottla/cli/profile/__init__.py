"""`ottla profile`: a workload with promises, produced and checked."""

from ottla.cli.command import Command

COMMAND = Command("ottla profile")
