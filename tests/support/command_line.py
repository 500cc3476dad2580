"""`ottla` in the process of a test. Its commands are made once, which takes longer than most of them."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

import typer.main
from typer.testing import CliRunner, Result

from ottla.cli.main import app

_made = cache(typer.main.get_command)


def ottla(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command; the result has its exit code and output."""
    with patch("typer.testing._get_command", _made):
        return CliRunner().invoke(app, arguments, input=stdin)
