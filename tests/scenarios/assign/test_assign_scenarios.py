"""The transcripts beside this file, by our assignors and by Java's; `OTTLA_RECORD=1` writes them again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.assign.assignor import ClusterMetadata, MemberSubscription
from ottla.assign.consumer_protocol import Assignment
from ottla.assign.registry import BUILT_IN
from scenarios.assign.runner import rerun
from support.assignor_oracle import AssignorOracle

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def requirement_ids(path: Path) -> list[str]:
    """A transcript names what it shows in its first line: `# spec: A1`."""
    return re.findall(r"[A-Z]\d+", path.read_text().splitlines()[0].partition("spec:")[2])


def by_ours(
    name: str, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, Assignment]:
    return BUILT_IN[name]().assign(cluster, subscriptions)


PARAMETERS = [pytest.param(path, marks=pytest.mark.spec(*requirement_ids(path)), id=path.stem) for path in TRANSCRIPTS]


@pytest.mark.parametrize("path", PARAMETERS)
def test_transcript(path: Path):
    recorded = path.read_text()
    now = rerun(recorded, by_ours)
    if os.environ.get("OTTLA_RECORD"):
        path.write_text(now)
    else:
        assert now == recorded


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_java_gives_the_same(assignor_oracle: AssignorOracle):
    for path in TRANSCRIPTS:
        assert rerun(path.read_text(), assignor_oracle.assign) == path.read_text()


def test_transcripts_are_found():
    assert len(TRANSCRIPTS) >= 8
