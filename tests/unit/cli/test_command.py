"""What all commands share: exit codes, messages, confirmation, options, and help texts as they were written."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ottla.cli.command import EXIT_FAILED, EXIT_INTERRUPTED, Command, CommandError, confirmed
from ottla.cli.main import app
from support.documents import commands

COMMAND = Command("ottla thing")


def ended(work: object, capsys: pytest.CaptureFixture[str], *expected: type[Exception]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        COMMAND.run(work, expected)  # type: ignore[arg-type]
    return int(end.value.code or 0), capsys.readouterr().err


def raising(error: BaseException) -> object:
    def work() -> int:
        raise error

    return work


def test_exit_codes_and_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda: 0, capsys) == (0, "")
    assert ended(lambda: COMMAND.report("no such thing"), capsys) == (1, "ottla thing: no such thing\n")
    assert ended(raising(CommandError("name a thing")), capsys) == (2, "ottla thing: name a thing\n")
    assert ended(raising(LookupError("gone")), capsys, LookupError) == (2, "ottla thing: gone\n")
    assert ended(raising(KeyboardInterrupt()), capsys) == (EXIT_INTERRUPTED, "")
    with pytest.raises(LookupError):
        COMMAND.run(raising(LookupError("a bug")))  # type: ignore[arg-type]


def test_a_message_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    COMMAND.report("a\nb\x1b[2J")
    assert capsys.readouterr().err == "ottla thing: a\\nb\\x1b[2J\n"


def test_missing_packages_name_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    COMMAND.require("the thing", ["json"], "spark")
    with pytest.raises(SystemExit) as caught:
        COMMAND.require("the thing", ["no_such", "json", "nor_this"], "spark")
    assert caught.value.code == EXIT_FAILED
    assert capsys.readouterr().err == "ottla thing: the thing needs no-such, nor-this: pip install 'ottla[spark]'\n"


def piped(run: str) -> tuple[int, int]:
    """The exit code of a command of whose output only the first line is read, and the lines that it wrote."""
    code = f"""
import sys
from ottla.cli.command import Command
def work():
    for number in range(3000):
        print("line", number, flush=True)
        print(number, file=sys.stderr)
    return 1
Command("ottla thing").{run}
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        written = process.stderr.read().splitlines()
        return process.wait(), len(written)


def test_the_exit_code_holds_although_the_reader_of_the_pipe_is_gone() -> None:
    assert piped("run(work)") == (1, 3000)


def test_what_follows_ends_with_its_reader() -> None:
    code, written = piped("run(work, until_closed=True)")
    assert code == 0
    assert written < 3000


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "goes_on"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_confirmation_at_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: str, goes_on: bool) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    monkeypatch.setattr(sys, "stdout", Keyboard())
    assert confirmed("Delete it?", yes=False) is goes_on
    assert not confirmed("Delete it?", yes=False, as_json=True)


def test_confirmation_in_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert not confirmed("Delete it?", yes=False)
    assert confirmed("Delete it?", yes=True)


def words(text: str) -> str:
    """A help text without the line breaks and indentation of the page."""
    return re.sub(r"[\s│]+", " ", text)


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_shows_every_text_as_it_was_written(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=400, env={"COLUMNS": "400"})
    assert shown.exit_code == 0
    for parameter in commands()[name].params:
        text = getattr(parameter, "help", None)
        if text and not getattr(parameter, "hidden", False):
            assert words(text) in words(shown.output)


#: They need brokers where a pipeline's file names none, and ask them for nothing that they would print.
RUN_OR_END_A_PIPELINE = {"pipeline run", "pipeline stop", "pipeline submit"}


@pytest.mark.parametrize("name", sorted(commands()))
def test_commands_that_connect_or_change_share_their_options(name: str) -> None:
    options = {option: parameter for parameter in commands()[name].params for option in parameter.opts}
    if "--bootstrap-server" in options:
        assert options["--bootstrap-server"].envvar == "OTTLA_BOOTSTRAP_SERVER"
        assert "-b" in options
        assert name in RUN_OR_END_A_PIPELINE or {"--timeout", "--json"} <= options.keys()
    assert ("--yes" in options) == ("--execute" in options)
    if name.split()[0] in ("group", "rebalance", "log") and name != "log repair":
        assert "--json" in options
