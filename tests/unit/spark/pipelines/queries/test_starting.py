"""Where queries start, and which checkpoint belongs to which table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.errors import CheckpointMismatchError, PipelineSettingsError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.starting import Start, check_fit, decide_start, read_start, starting_option
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, SourceSettings, StepSettings
from ottla.spark.pipelines.tables.contract import LastCommit

SOURCE = SourceSettings(name="events", bootstrap_servers="b:9092", group_id="g", topics=("t",))
LAST = LastCommit("q", 3, {"events": {"t": {0: 10, 1: 20}}})


def _settings(folder: Path, source: SourceSettings = SOURCE) -> PipelineSettings:
    return PipelineSettings(name="p", kind=PipelineKind.stream, checkpoint=str(folder / "c"), sources=(source,))


def _checkpoint(folder: Path, query_id: str = "q", **batches: dict[str, Any]) -> QueryCheckpoint:
    (folder / "c" / "offsets").mkdir(parents=True)
    (folder / "c" / "metadata").write_text(json.dumps({"id": query_id}))
    for name, offsets in batches.items():
        (folder / "c" / "offsets" / name[1:]).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    return QueryCheckpoint(str(folder / "c"))


def _decide(folder: Path, last: LastCommit | None = LAST, *, go_on: bool = False) -> Start:
    return decide_start(QueryCheckpoint(str(folder / "c")), _settings(folder), last, continue_from_table=go_on)


def test_a_new_checkpoint_beside_a_new_table_starts_at_the_beginning(tmp_path: Path) -> None:
    assert _decide(tmp_path, None) == Start()


def test_the_checkpoint_that_wrote_the_last_batch_goes_on(tmp_path: Path) -> None:
    _checkpoint(tmp_path, b3={"t": {"0": 10, "1": 20}}, b4={"t": {"0": 11, "1": 20}})
    assert _decide(tmp_path) == Start()


@pytest.mark.parametrize(
    ("query_id", "batches", "complaint"),
    [
        ("other", {"b3": {"t": {"0": 10, "1": 20}}}, "is of another query"),
        ("q", {"b2": {"t": {"0": 9, "1": 20}}}, "is older than that"),
        ("q", {"b3": {"t": {"0": 9, "1": 20}}}, "or not the one that wrote it"),
    ],
)
def test_any_other_checkpoint_is_refused_also_where_it_may_go_on(
    tmp_path: Path, query_id: str, batches: dict[str, Any], complaint: str
) -> None:
    _checkpoint(tmp_path, query_id, **batches)
    for go_on in (False, True):
        with pytest.raises(CheckpointMismatchError, match=complaint) as refused:
            _decide(tmp_path, go_on=go_on)
        assert "batch 3 of pipeline p" in str(refused.value)


def test_a_lost_one_goes_on_from_the_table_where_it_may_and_is_known_again(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatchError, match="is new or was lost: continue from the offsets"):
        _decide(tmp_path)
    start = _decide(tmp_path, go_on=True)
    assert start == Start(LAST.end_offsets, (LAST,))
    assert read_start(QueryCheckpoint(str(tmp_path / "c"))) == start
    assert _decide(tmp_path) == start, "before the first commit of the new query"
    _checkpoint(tmp_path, "new", b0={"t": {"0": 12, "1": 20}})
    assert _decide(tmp_path) == start
    assert _decide(tmp_path, LastCommit("new", 0, {"events": {"t": {0: 12, 1: 20}}})) == start


def test_dead_letters_that_are_a_batch_ahead_are_not_taken_again(tmp_path: Path) -> None:
    letters = LastCommit("q", 4, {"events": {"t": {0: 15, 1: 20}}})
    checkpoint = QueryCheckpoint(str(tmp_path / "c"))
    start = decide_start(checkpoint, _settings(tmp_path), LAST, letters, continue_from_table=True)
    assert start.offsets == LAST.end_offsets
    assert start.dead_letters == letters.end_offsets
    assert read_start(checkpoint) == start


def test_the_option_is_the_setting_unless_a_start_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = replace(SOURCE, starting_offsets="latest")
    assert starting_option(Start(), latest, finished=True) == "latest"
    assert starting_option(Start({}, (LAST,)), latest, finished=False) == "earliest"


def test_a_query_with_state_goes_on_from_its_own_checkpoint_only(tmp_path: Path) -> None:
    steps = (StepSettings(name="totals", sql="SELECT count(*) FROM events"),)
    settings = replace(_settings(tmp_path), steps=steps)
    checkpoint = QueryCheckpoint(settings.checkpoint)
    with pytest.raises(PipelineSettingsError, match="step totals keeps state that was lost with the checkpoint"):
        decide_start(checkpoint, settings, LAST, continue_from_table=True)
    assert read_start(checkpoint) is None
    _checkpoint(tmp_path, b3={"t": {"0": 10, "1": 20}})
    assert decide_start(checkpoint, settings, LAST, continue_from_table=True) == Start()


def test_a_checkpoint_that_was_lost_is_found_before_the_start_too(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatchError, match=r"is new or was lost: continue from .* --continue-from-table"):
        check_fit(QueryCheckpoint(str(tmp_path / "c")), _settings(tmp_path), LAST)
    check_fit(_checkpoint(tmp_path, b3={"t": {"0": 10, "1": 20}}), _settings(tmp_path), LAST)
