"""Help, completion, and names that people type from habit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from ottla.cli.main import INSTEAD, app
from support.documents import commands

pytestmark = pytest.mark.spec("U2")

PROJECT = Path(__file__).resolve().parents[3]


def said(*arguments: str, code: int) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code
    return re.sub(r"\s+", " ", done.output)


def test_h_is_help() -> None:
    for arguments in ([], ["topic"], ["topic", "list"], ["zookeeper"], ["zookeeper", "ls"]):
        assert said(*arguments, "-h", code=0) == said(*arguments, "--help", code=0)


def test_what_is_named_in_place_of_a_habit_is_there() -> None:
    for habit, instead in INSTEAD.items():
        for each in instead.split("` or `ottla "):
            group, _, names = each.rpartition(" ")
            for name in names.split("|"):
                assert f"{group} {name}".strip() in commands(), habit


def test_each_line_of_the_table_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's counterparts of other tools' lines: commands and options that are there, values that they take."""
    _, _, table = (PROJECT / "docs/coming-from.md").read_text().partition("\n## The command line\n")
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| `")]
    lines = [line for _, here in rows for line in re.findall("`(ottla [^`]+)`", here)]
    assert len(lines) >= len(rows) > 30
    made, ran = typer.main.get_command(app), []
    for place in ("typer.main.get_command", "typer.testing._get_command"):
        monkeypatch.setattr(place, lambda _app: made)
    for name, command in commands().items():
        monkeypatch.setattr(command, "callback", lambda name=name, **_values: ran.append(name))
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}: {done.output}"
    assert len(ran) >= len(lines)


@pytest.mark.parametrize("name", ["kafka-topics", "kafka-topics.sh", "kafka-topics.bat"])
def test_a_habit_gets_a_hint(name: str) -> None:
    assert f"{name} is `ottla topic list|describe|create|alter|delete` here." in said(name, "--list", code=2)
    assert "No such command 'topics'; it is `ottla topic`." in said("topics", code=2)


@pytest.mark.parametrize(("words", "found"), [("ottla prod", "produce"), ("ottla topic desc", "describe")])
def test_the_shell_completes_commands(words: str, found: str) -> None:
    typed = {"_OTTLA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "import sys; sys.argv = ['ottla']; from ottla.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **typed},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == [found], done.stderr
