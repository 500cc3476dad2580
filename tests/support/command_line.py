"""`ottla` in the process of a test. Its commands are made once, which takes longer than most of them."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import typer.main
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.testing import Broker

_made = cache(typer.main.get_command)


def ottla(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command; the result has its exit code and output."""
    with patch("typer.testing._get_command", _made):
        return CliRunner().invoke(app, arguments, input=stdin)


def ottla_at(broker: Broker, *arguments: str, stdin: str | bytes | None = None) -> Result:
    """The same with the address of a test broker."""
    return ottla(*arguments, "-b", broker.bootstrap_servers, stdin=stdin)


def shown_at(broker: Broker, *arguments: str, stdin: str | bytes | None = None) -> bytes:
    """What the command writes to standard output; AssertionError unless it ends with 0."""
    done = ottla_at(broker, *arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes
