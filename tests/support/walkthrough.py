"""A page of the documentation, walked through as a reader does: files written, commands typed, output compared.

A fenced block is one of three things. A `console` block is a session: lines that begin with `$ ` are typed (`> `: the
command continues), and what stands below each is what it prints. A block whose first line is a comment with a file name
(`# produce.py`, `// Main.java`) is that file. All others must be marked as not run, with the reason:

    <!-- not run: it is the same for Gradle -->
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sybil import Document, Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from support.ports import free_port
from support.terminal import Terminal, matches

#: The port that pages show; walks use a free one in its place.
SHOWN_PORT: Final = "9092"
FILE_NAME: Final = re.compile(r"(?:#|//|--) ?(?P<name>[\w./-]+\.[a-zA-Z]+|Dockerfile|go\.mod)$")
NOT_RUN: Final = re.compile(r"<!-- not run: .+ -->\s*$")
PROMPT: Final = "$ "
MORE: Final = "> "


class CodeBlock(NamedTuple):
    """A fenced block of a page: its language, its text, the line on which it begins, and whether a walk uses it."""

    language: str
    text: str
    line: int
    is_run: bool

    @property
    def file_name(self) -> str | None:
        """The name in its first line, where it is a file."""
        found = FILE_NAME.match(self.text.split("\n", 1)[0])
        return None if found is None else found["name"]


class TypedCommand(NamedTuple):
    """A command of a session, and what the page shows as its output."""

    command: str
    expected: str


def code_blocks(page: Path) -> list[CodeBlock]:
    """The fenced blocks of a page, in order."""
    lexer = FencedCodeBlockLexer(language=r"[\w-]*")

    def parse(document: Document) -> Iterator[Region]:
        for region in lexer(document):
            region.parsed = region.lexemes
            region.evaluator = lambda _: None
            yield region

    document = Document.parse(str(page), parse)
    return [
        CodeBlock(
            example.parsed["language"],
            str(example.parsed["source"]),
            example.line,
            NOT_RUN.search(document.text[: example.region.start]) is None,
        )
        for example in document.examples()
    ]


def session(text: str) -> list[TypedCommand]:
    """The commands of a `console` block. ValueError where it does not begin with one."""
    commands: list[TypedCommand] = []
    typing = False
    for line in text.splitlines():
        if line.startswith(PROMPT):
            commands.append(TypedCommand(line.removeprefix(PROMPT), ""))
            typing = True
        elif not commands:
            raise ValueError(f"a session begins with `$ `, and not with {line!r}")
        elif typing and line.startswith(MORE):
            commands[-1] = TypedCommand(f"{commands[-1].command}\n{line.removeprefix(MORE)}", "")
        else:
            typing = False
            commands[-1] = TypedCommand(commands[-1].command, f"{commands[-1].expected}{line}\n")
    return commands


def unexplained(blocks: list[CodeBlock]) -> list[int]:
    """The lines of blocks that are neither run nor said not to be."""
    return [block.line for block in blocks if block.is_run and block.language != "console" and block.file_name is None]


class Walk:
    """One reader's way through a page, in a directory and a home of his own."""

    def __init__(self, directory: Path, programs: list[Path]) -> None:
        self._directory = directory
        self._port = str(free_port())
        home = directory / "home"
        home.mkdir()
        path = os.pathsep.join([str(Path(sys.executable).parent), *map(str, programs), os.environ["PATH"]])
        work = self._work = directory / "work"
        work.mkdir()
        environment = {
            "PATH": path,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if "PYTHONPATH" in os.environ:  # where the sources of another directory are looked at
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.terminal = Terminal(work, environment)

    def check(self, page: Path) -> None:
        """Do all that the page says; AssertionError with both outputs where one differs."""
        if SHOWN_PORT in page.read_text():
            # Commands that name no server go to 127.0.0.1:9092 on a reader's machine.
            self.terminal.run(self._here(f"export OTTLA_BOOTSTRAP_SERVER=127.0.0.1:{SHOWN_PORT}"), "")
        for block in code_blocks(page):
            if not block.is_run:
                continue
            if block.language == "console":
                for typed in session(self._here(block.text)):
                    self._type(typed, f"{page.name}:{block.line}")
            elif block.file_name is not None:
                path = self._work / block.file_name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._here(block.text))

    def _type(self, typed: TypedCommand, where: str) -> None:
        printed, status = self.terminal.run(typed.command, typed.expected)
        assert matches(typed.expected, printed), (
            f"{where}: $ {typed.command}\nprinted (exit code {status})\n{printed}\nand the page shows\n{typed.expected}"
        )

    def _here(self, text: str) -> str:
        return text.replace(SHOWN_PORT, self._port)

    def close(self) -> None:
        """End everything that the page has started."""
        self.terminal.close()
