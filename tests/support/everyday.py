"""docs/everyday.md: its jobs, and their lines typed in this process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.command_line import ottla
from support.terminal import matches
from support.waiting import wait_until
from support.walkthrough import SHOWN_PORT, TypedCommand, code_blocks, session

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "everyday.md"
#: The comment above the block of a job says against which brokers it is typed; without one, against ottla.
WHERE: Final = {
    "<!-- also typed against Apache Kafka -->": ("ottla", "apache"),
    "<!-- typed against Apache Kafka and its ZooKeeper only -->": ("apache",),
}
#: Its coordinator records the first rebalance of a cluster when the topic for it is there.
RECORDED_SOON: Final = "ottla group why"
_LINE: Final = re.compile(
    r"(?:printf '(?P<text>.*?)' (?:\| |(?=>)))?"
    r"(?P<command>(?:\w+=\S* )*ottla .*?)?"
    r"(?: ?> (?P<file>[\w.-]+))?(?P<code>; echo \$\?)?"
)


class Job(NamedTuple):
    """A job of the page: what is done, its lines, and the brokers that they are typed against."""

    title: str
    lines: list[TypedCommand]
    brokers: tuple[str, ...]


@cache
def jobs() -> list[Job]:
    """The jobs, behind the lines that make the state with which each of them begins."""
    page = PAGE.read_text().splitlines()
    found = []
    for block in code_blocks(PAGE):
        *_, title, last = [line for line in page[: block.line - 1] if line]
        title = title if last in WHERE else last
        found.append(Job(title.rstrip(":"), session(block.text), WHERE.get(last, ("ottla",))))
    return found


def jobs_at(broker: str) -> list[Job]:
    """The jobs that are typed against this kind of broker."""
    return [job for job in jobs()[1:] if broker in job.brokers]


def check_job(job: Job, monkeypatch: pytest.MonkeyPatch, real: Mapping[str, str]) -> None:
    """Type the lines behind those that each job begins with; `real` has what stands for a text of the page."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", _replaced(f"127.0.0.1:{SHOWN_PORT}", real))
    monkeypatch.setenv("COLUMNS", "300")
    # The shell is found among the processes above this one; there may be none.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    for typed in (*jobs()[0].lines, *job.lines):
        check_line(_replaced(typed.command, real), _replaced(typed.expected, real), monkeypatch)


def check_line(command: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type a line, and compare what it prints; it ends with 0."""
    printed, code = type_line(command, monkeypatch)
    if command.startswith(RECORDED_SOON) and code:
        done = wait_until(lambda: _when_done(command, monkeypatch), command)
        assert done is not None
        printed, code = done
    assert matches(expected, printed), f"$ {command}\nprinted\n{printed}\nand the page shows\n{expected}"
    assert code == 0, f"$ {command}\nended with {code}: {printed}"


def _when_done(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int] | None:
    printed, code = type_line(command, monkeypatch)
    return None if code else (printed, code)


def _replaced(text: str, real: Mapping[str, str]) -> str:
    for shown, other in real.items():
        text = text.replace(shown, other)
    return text


def type_line(line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """What the line prints, and its exit code: 0 where the line itself shows the code."""
    parts = _LINE.fullmatch(line)
    assert parts is not None, line
    text = (parts["text"] or "").encode().decode("unicode_escape")
    if parts["command"] is None:
        Path(parts["file"]).write_text(text)
        return "", 0
    words = list(_settled(shlex.split(parts["command"]), monkeypatch))
    done = ottla(*words, stdin=text)
    printed = done.output
    if parts["file"]:
        Path(parts["file"]).write_bytes(done.stdout_bytes)
        printed = done.stderr
    return (f"{printed}{done.exit_code}\n", 0) if parts["code"] else (printed, done.exit_code)


def _settled(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The words behind `ottla`; the variables before it are set."""
    at = words.index("ottla")
    for name, _, value in (word.partition("=") for word in words[:at]):
        monkeypatch.setenv(name, value)
    yield from words[at + 1 :]
