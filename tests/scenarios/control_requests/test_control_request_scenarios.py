"""The transcripts beside this file; `OTTLA_RECORD=1` writes them again, to be reviewed as a diff."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scenarios.control_requests.runner import rerun

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def requirement_ids(path: Path) -> list[str]:
    """A transcript names the requirements that it shows, if any, in its first line: `# spec: Z3`."""
    return re.findall(r"[A-Z]\d+", path.read_text().splitlines()[0].partition("spec:")[2].partition("—")[0])


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.spec(*requirement_ids(path)), id=path.stem) for path in TRANSCRIPTS],
)
def test_transcript(path: Path) -> None:
    recorded = path.read_text()
    now = rerun(recorded)
    if os.environ.get("OTTLA_RECORD"):
        path.write_text(now)
    else:
        assert now == recorded


def test_transcripts_are_found() -> None:
    assert len(TRANSCRIPTS) >= 5
