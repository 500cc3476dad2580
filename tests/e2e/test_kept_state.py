"""What 0.1.0 left on disk at 825c1d67 is continued: no record is lost, none comes twice."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kept_state import ALL, KEPT_RECORDS, KeptState

ARCHIVE = Path(__file__).resolve().parents[1] / "golden" / "kept" / "0.1.0-825c1d67.tar.xz"
MORE = 50
EVERY = list(range(KEPT_RECORDS + MORE))

pytestmark = [pytest.mark.slow, pytest.mark.data]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[KeptState]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    with KeptState(tmp_path) as state:
        yield state


@pytest.mark.spec("L3", "L9", "G12")
def test_a_data_directory_is_continued(state: KeptState) -> None:
    """The group reads on where it was, and new records come after the old ones."""
    state.send(range(KEPT_RECORDS, KEPT_RECORDS + MORE))
    before = json.loads((state.folder / "read.json").read_text())
    assert sorted(before + state.read_by_group(len(EVERY) - len(before))) == EVERY


@pytest.mark.needs_java
@pytest.mark.spec("D3")
@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "online"])
def test_a_table_and_its_checkpoint_are_continued(state: KeptState, kind: str) -> None:
    state.send(range(KEPT_RECORDS, KEPT_RECORDS + MORE))
    state.run(kind)
    assert state.numbers(kind) == EVERY


@pytest.mark.needs_java
@pytest.mark.spec("D3")
def test_totals_are_continued(state: KeptState) -> None:
    state.send(range(KEPT_RECORDS, KEPT_RECORDS + MORE))
    state.run("online")
    assert state.numbers("online") == [(KEPT_RECORDS + MORE) // 5] * 5
