"""`ottla rebalance`: what a change would move, the group designs compared, and examples. Nothing is changed."""

from ottla.cli.command import Command

COMMAND = Command("ottla rebalance")
