"""Every `ottla …` line of the documents is one that the command line can read: its command and its options exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ottla.cli.main import app
from support.walkthrough import code_blocks

PROJECT = Path(__file__).resolve().parents[2]
#: Mistakes, whose messages another test compares, and commands that are wanted and not built yet.
OTHERS = {"docs/mistakes.md", "docs/requirements.md"}
FOUND = {*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *(PROJECT / "examples").rglob("*.md")}
DOCUMENTS = sorted(FOUND - {PROJECT / each for each in OTHERS})
SHELLS = {"", "console", "sh", "bash", "shell"}
INLINE = re.compile(r"`(ottla [^`]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: A command of a shell ends here.
ENDS = re.compile(r"^[|;&()<>]+$")

#: A message that opens with the program's name (docs/spark.md).
MESSAGE = "ottla needs "
COMMANDS = typer.main.get_command(app)
USAGE_ERROR: Any = typer.BadParameter.__base__

pytestmark = pytest.mark.spec("U5")


def shell_lines(text: str, *, is_session: bool) -> Iterator[tuple[int, str]]:
    """The commands that a block shows, continued lines joined, with the number of the line in it."""
    lines = iter(enumerate(text.splitlines()))
    for number, line in lines:
        if not is_session or line.startswith("$ "):
            line = line.removeprefix("$ ")
            while line.endswith("\\"):
                line = line[:-1] + next(lines)[1].removeprefix("> ")
            yield number, line


def ottla_commands(line: str) -> Iterator[list[str]]:
    """The words after each `ottla` of a line of the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation over several lines
        return
    for at, word in enumerate(words):
        if word == "ottla" and (
            at == 0 or ENDS.match(words[at - 1]) or words[at - 1] in {"./run", "exec", "do", "until"}
        ):
            end = next((n for n in range(at, len(words)) if ENDS.match(words[n])), len(words))
            yield words[at + 1 : end]


def shown_commands(document: Path) -> Iterator[tuple[int, list[str]]]:
    """The commands of a document, of blocks and of its text, with their lines."""
    for block in code_blocks(document):
        if block.language in SHELLS:
            for number, line in shell_lines(block.text, is_session="$ " in block.text):
                yield from ((block.line + 1 + number, words) for words in ottla_commands(line))
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), document.read_text())
    for found in INLINE.finditer(text):
        if found[1].startswith(MESSAGE):
            continue
        at = text.count("\n", 0, found.start()) + 1
        yield from ((at, words) for words in ottla_commands(found[1].replace("\n", " ")))


def problem_of(words: list[str]) -> str | None:
    """What the command line cannot read of these words: a command or an option."""
    command: Any = COMMANDS
    path, rest = "ottla", [word for word in words if word != "…"]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name, *rest = rest
        if name not in command.commands:
            return None if not re.fullmatch(r"[a-z-]+", name) else f"`{path}` has no command {name}"
        command, path = command.commands[name], f"{path} {name}"
    if rest[-1:] == ["--"] or not rest:
        return None
    context = command.context_class(command, info_name=path)
    try:
        command.make_parser(context).parse_args(rest)
    except USAGE_ERROR as error:
        # A text may name an option without its value.
        return None if "requires an argument" in str(error) else f"`{path}`: {error}"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(PROJECT)))
def test_commands_and_their_options_exist(document: Path) -> None:
    problems = ((line, problem_of(words)) for line, words in shown_commands(document))
    assert [f"{document.name}:{line}: {problem}" for line, problem in problems if problem] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ottla topic crate orders", "`ottla topic` has no command crate"),
        ("until ottla topic create orders --partitons 3; do sleep 1; done", "No such option: --partitons"),
        ("seq 9 | ottla produce orders -Q : > out", "No such option: -Q"),
    ],
)
def test_what_the_command_line_cannot_read_is_found(line: str, problem: str) -> None:
    (words,) = ottla_commands(line)
    assert problem in str(problem_of(words))
