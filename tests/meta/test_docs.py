"""Documents say what is true: made pages are current, links lead somewhere, commands exist."""

from __future__ import annotations

import re
import subprocess
from ast import ImportFrom, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST, walk
from importlib import import_module
from pathlib import Path

import pytest

from ottla.broker.served import SERVED
from ottla.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.wire.apis import API
from support.documents import PAGES, commands
from support.spec_report import requirement_ids
from support.walkthrough import code_blocks

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(\./run [^\n#]*)", re.MULTILINE)
IN_LINE_COMMAND = re.compile(r"`(\./run [^`\n]*)`")


def name_of(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_made_pages_are_current(page: str, request: pytest.FixtureRequest) -> None:
    path, text = PROJECT / page, PAGES[page]()
    if request.config.getoption("--update-docs"):
        path.write_text(text)
    assert path.exists(), f"{page} is missing: ./run docs"
    assert path.read_text() == text, f"{page} is out of date: ./run docs"


def anchors(document: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for match in LINK.finditer(CODE_BLOCK.sub("", document.read_text())):
        target = match[1] or match[2]
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        destination = (document.parent / path).resolve() if path else document
        if not destination.exists() or (anchor and destination.suffix == ".md" and anchor not in anchors(destination)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_python_blocks_import_what_there_is(document: Path) -> None:
    """Of all pages, those that no walk runs included: the block is Python, and what it imports of ottla is there."""
    for block in code_blocks(document):
        if block.language != "python" or block.text.startswith(">>>"):  # a session at the prompt
            continue
        source = f"{document.name}, line {block.line}"
        tree = compile(block.text.replace("…", "..."), source, "exec", PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in walk(tree):
            if isinstance(node, ImportFrom) and node.module and node.module.partition(".")[0] == "ottla":
                module = import_module(node.module)
                missing = [each.name for each in node.names if not hasattr(module, each.name)]
                assert missing == [], source


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_exist(document: Path) -> None:
    """Every `./run X` that a page shows is one that `./run help` lists, and every `./run ottla X` a command."""
    usage = subprocess.run([PROJECT / "run", "help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  (\w+) ", usage, re.MULTILINE))
    text = document.read_text()
    shown = [*COMMAND.findall(text), *IN_LINE_COMMAND.findall(text)]
    unknown = [line for line in shown if line.split()[1] not in known and not line.split()[1].isupper()]
    ottla = [line.split()[2] for line in shown if line.split()[1] == "ottla" and len(line.split()) > 2]
    first_words = {name.split()[0] for name in commands()}
    unknown += [f"ottla {word}" for word in ottla if word[0].islower() and word not in first_words]
    assert unknown == []


def test_the_number_of_apis_is_right() -> None:
    for name in ("README.md", "CHANGELOG.md"):
        assert f"serves {len(SERVED)} APIs" in (PROJECT / name).read_text()


def test_every_setting_is_documented() -> None:
    page = (PROJECT / "docs" / "settings.md").read_text()
    assert [name for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{name}`" not in page] == []


def test_served_versions_are_versions_that_kafka_has() -> None:
    wrong = [
        API[key].name
        for key, served in SERVED.items()
        if not API[key].min_version <= served.min_version <= served.max_version <= API[key].max_version
    ]
    assert wrong == []


def test_requirements_are_listed_once() -> None:
    ids = requirement_ids(PROJECT / "docs" / "requirements.md")
    assert len(ids) == len(set(ids)) > 60


def test_readme_has_the_two_commands() -> None:
    readme = (PROJECT / "README.md").read_text()
    assert "./run demo" in readme
    assert "./run test" in readme


def test_decisions_are_numbered_and_listed() -> None:
    files = sorted((PROJECT / "docs" / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in files]
    assert len(numbers) == len(set(numbers)), "each has a number of its own; gaps are decisions that are still open"
    index = (PROJECT / "docs" / "index.md").read_text()
    assert [path.name for path in files if f"decisions/{path.name}" not in index] == []


def test_decisions_say_whether_they_hold() -> None:
    """Each has a status; one that is superseded, wholly or in part, links what supersedes it."""
    for path in sorted((PROJECT / "docs" / "decisions").glob("*.md")):
        status = re.search(r"^\*\*Status:\*\* (.+?)\n\n", path.read_text(), re.DOTALL | re.MULTILINE)
        assert status is not None, path.name
        assert status[1].startswith(("accepted", "superseded", "proposed")), path.name
        assert "superseded" not in status[1] or re.search(r"\[decision \d+\]\(\d{4}-", status[1]), path.name
