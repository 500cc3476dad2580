"""README and the guides, walked through as a new reader does: every file written, every command typed in order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.walkthrough import Walk, code_blocks, unexplained

PROJECT = Path(__file__).resolve().parents[3]
#: The pages that are walked, and what some need beside Python.
PAGES = {
    "README.md": [pytest.mark.needs_java],
    "docs/getting-started.md": [pytest.mark.needs_kcat],
    "docs/acls.md": [],
    "docs/quotas.md": [],
    "docs/testing.md": [],
    "docs/client-admin.md": [],
    "docs/coming-from.md": [],
    "docs/dead-letters.md": [],
    "docs/fastapi.md": [],
    "docs/testing-other-languages.md": [],
    "docs/docker.md": [],
    "docs/doctor.md": [],
    "docs/named-clusters.md": [],
    "docs/operations.md": [],
    "docs/produce-consume.md": [],
    "docs/profiles.md": [],
    "docs/rebalance.md": [],
    "docs/records.md": [],
    "docs/security-recipes.md": [pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")],
    "docs/what-people-ask.md": [],
    **{f"docs/tour/{page.name}": [] for page in sorted((PROJECT / "docs" / "tour").glob("[0-9]*.md"))},
    "docs/tour/17-one-stream-three-pipelines.md": [pytest.mark.needs_java],
    "docs/spark.md": [pytest.mark.needs_java],
    "docs/pipelines.md": [pytest.mark.needs_java],
    "docs/pipelines-lake.md": [pytest.mark.needs_java],
}
#: The pages about Spark start it several times, which takes minutes on a busy machine.
WALK_TIMEOUT_S = 1500

pytestmark = [pytest.mark.spec("U5"), pytest.mark.slow]


@pytest.mark.timeout(WALK_TIMEOUT_S)
@pytest.mark.parametrize("page", [pytest.param(page, marks=marks) for page, marks in PAGES.items()])
def test_the_page_says_what_happens(page: str, tmp_path: Path) -> None:
    walk = Walk(tmp_path, [])
    try:
        walk.check(PROJECT / page)
    finally:
        walk.close()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    assert unexplained(code_blocks(PROJECT / page)) == []
