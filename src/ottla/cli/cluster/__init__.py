"""`ottla cluster`: a whole cluster, on this machine or elsewhere."""

from ottla.cli.command import Command

COMMAND = Command("ottla cluster")
