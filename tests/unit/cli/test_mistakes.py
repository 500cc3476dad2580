"""docs/mistakes.md: each line is typed, and gets the sentence and the exit code that the page shows."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from support.command_line import ottla
from support.terminal import matches
from support.walkthrough import SHOWN_PORT, TypedCommand, code_blocks, session

PAGE = Path(__file__).resolve().parents[3] / "docs" / "mistakes.md"

pytestmark = pytest.mark.spec("U2")


def mistakes() -> list[tuple[int, TypedCommand]]:
    """What the page types, each with the exit code that the heading above it names."""
    headings = [
        (number, int(found[1]))
        for number, line in enumerate(PAGE.read_text().splitlines(), 1)
        if (found := re.match(r"## Exit code (\d)", line))
    ]
    return [
        (max((line, code) for line, code in headings if line < block.line)[1], typed)
        for block in code_blocks(PAGE)
        for typed in session(block.text)
    ]


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("orders", 3)
        yield broker.bootstrap_servers.rpartition(":")[2]


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Put back the handlers that a server leaves, which ends with its process as a rule."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def test_there_are_forty() -> None:
    assert len({typed.command for _, typed in mistakes()}) >= 40


@pytest.mark.parametrize(("code", "typed"), mistakes(), ids=lambda each: getattr(each, "command", ""))
def test_a_mistake_gets_its_sentence(
    code: int, typed: TypedCommand, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", f"127.0.0.1:{port}")
    monkeypatch.setenv("COLUMNS", "300")
    result = ottla(*shlex.split(typed.command.replace(SHOWN_PORT, port))[1:], stdin="")
    shown = "\n".join(line.strip() for line in result.output.replace(port, SHOWN_PORT).splitlines())
    assert matches(typed.expected, shown), result.output
    assert result.exit_code == code
