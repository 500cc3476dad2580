"""`ottla acl`: who may do what with topics, groups and the cluster."""

from ottla.cli.command import Command

COMMAND = Command("ottla acl")
