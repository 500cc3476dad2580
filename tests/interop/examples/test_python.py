"""The examples in Python: their tests run as a user runs them, with the plugin's broker."""

from __future__ import annotations

import sys

import pytest

from support.examples import EXAMPLES, PYTHON_EXAMPLES
from support.java import PROJECT
from support.processes import run_tool
from support.walkthrough import code_blocks

pytestmark = [pytest.mark.slow, pytest.mark.spec("U1")]

#: Pages that show an example whole.
PAGES = {"docs/fastapi.md": "fastapi", "docs/dead-letters.md": "dead_letters"}


@pytest.mark.parametrize("name", PYTHON_EXAMPLES)
def test_its_tests_pass(name: str) -> None:
    done = run_tool([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=EXAMPLES / name)
    assert " passed in " in done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_the_example(page: str) -> None:
    shown = {
        block.file_name: block.text.split("\n", 1)[1].strip()
        for block in code_blocks(PROJECT / page)
        if block.file_name is not None
    }
    files = {path.name: path.read_text().strip() for path in (EXAMPLES / PAGES[page]).glob("*.py")}
    assert shown == files
