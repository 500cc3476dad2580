"""What people ask, and the glossary: commands can be typed, settings exist, each word is there once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from ottla.client.configs import reference
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from support.documents import commands
from support.walkthrough import session

pytestmark = pytest.mark.spec("U5")

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
QUESTIONS: Final = DOCS / "what-people-ask.md"
IN_LINE: Final = re.compile(r"`([^`]+)`")
SETTING: Final = re.compile(r"(?:kafka\.)?([a-z]+(?:\.[a-z]+)+)(?:=\S+)?")
#: `ottla` and what follows, up to a pipe or the end of a line.
COMMAND: Final = re.compile(r"(?:^|\| )ottla ([^|&>]+)")
COMMANDS: Final = commands()


def answers() -> dict[str, str]:
    """Question to answer."""
    parts = re.split(r"^### (.+)\n", QUESTIONS.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def codes_and_sessions(text: str) -> tuple[list[str], list[str]]:
    """The code within lines of a text, and its sessions."""
    parts = re.split(r"^```(?:console)?\n", text, flags=re.MULTILINE)
    return [" ".join(code.split()) for code in IN_LINE.findall("".join(parts[::2]))], parts[1::2]


def typed_in(answer: str) -> list[str]:
    """What is typed to `ottla` in an answer."""
    codes, sessions = codes_and_sessions(answer)
    codes += [typed.command for block in sessions for typed in session(block)]
    return [line.strip() for code in codes for line in COMMAND.findall(code)]


def parse(line: str) -> None:
    """As the command line parses it, without running it; click.UsageError where it would not."""
    words = shlex.split(line)
    name = max((each for each in COMMANDS if words[: len(each.split())] == each.split()), key=len)
    with COMMANDS[name].make_context(name, words[len(name.split()) :]):
        pass


def test_there_are_forty_questions() -> None:
    assert len(answers()) == len(re.findall("^### ", QUESTIONS.read_text(), re.MULTILINE)) == 40


@pytest.mark.parametrize("question", answers())
def test_the_answer_has_a_command_that_can_be_typed(question: str) -> None:
    lines = typed_in(answers()[question])
    assert lines
    for line in lines:
        parse(line)


@pytest.mark.parametrize("line", ["group why", "group why billing --since 3", "topic lst"])
def test_a_command_that_cannot_be_typed_would_be_found(line: str) -> None:
    with pytest.raises(Exception, match=r"Missing parameter|No such option|empty"):
        parse(line)


def test_settings_of_the_answers_exist() -> None:
    known = {*BROKER_SETTINGS, *TOPIC_SETTINGS, *re.findall(r"^\| `([a-z.]+)`", reference.render(), re.MULTILINE)}
    codes, _ = codes_and_sessions(QUESTIONS.read_text())
    named = {found[1] for code in codes if (found := SETTING.fullmatch(code))}
    assert len(named) > 20
    assert named - known == set()


def test_words_are_unique_and_sorted() -> None:
    words = re.findall(r"^- \*\*(.+?)\*\*: ", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)


def test_each_word_has_one_sentence() -> None:
    entries = [line for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("- ")]
    assert [line for line in entries if not re.fullmatch(r"- \*\*[^*]+\*\*: [^.]+(?:\.[^ .]+)*[^.]*\.", line)] == []
