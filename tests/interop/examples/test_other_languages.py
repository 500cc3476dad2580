"""The examples in Java, Go, Node and Rust: their tests start `ottla test-broker` and use it with their own clients."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.examples import EXAMPLES, TEST_COMMANDS, built_example, environment_with_ottla
from support.java import PROJECT
from support.processes import run_tool
from support.walkthrough import code_blocks

pytestmark = [pytest.mark.slow, pytest.mark.spec("U1")]

PAGE = PROJECT / "docs" / "testing-other-languages.md"
RUN_TIMEOUT_S = 500.0
#: What each runner prints when one test, or more, has passed and none has failed.
PASSED = {
    "java": r"Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: 0",
    "go": r"--- PASS: Test\w+",
    "node": r"# pass [1-9]\d*\n# fail 0",
    "rust": r"test result: ok\. [1-9]\d* passed; 0 failed",
}


@pytest.mark.needs_examples
@pytest.mark.parametrize("language", sorted(TEST_COMMANDS))
def test_its_tests_pass(language: str, tmp_path: Path) -> None:
    done = run_tool(
        TEST_COMMANDS[language],
        cwd=built_example(language),
        env=environment_with_ottla(tmp_path),
        timeout_s=RUN_TIMEOUT_S,
    )
    assert re.search(PASSED[language], done.stdout), done.stdout


def test_the_page_shows_the_examples_own_files() -> None:
    shown = {
        block.file_name: block.text.split("\n", 1)[1]
        for block in code_blocks(PAGE)
        if block.file_name is not None and block.file_name.startswith("examples/")
    }
    assert {name.split("/")[1] for name in shown} == set(TEST_COMMANDS)
    for name, text in shown.items():
        assert text.strip() in (PROJECT / name).read_text(), name


def test_projects_name_no_registry() -> None:
    pom = (EXAMPLES / "java" / "pom.xml").read_text()
    assert "repositor" not in pom.lower()
    assert '"resolved"' not in (EXAMPLES / "node" / "package-lock.json").read_text()
