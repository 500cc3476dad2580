"""What a batch knows of itself from the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.batches import BatchFunction
from ottla.spark.pipelines.queries.starting import Start
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, SourceSettings, TableSinkSettings
from ottla.spark.pipelines.sinks.tables import TableSink

pytestmark = pytest.mark.spec("D3")


def _function(checkpoint: Path, start: Start) -> BatchFunction:
    sink = TableSinkSettings(format="parquet", path="table")
    settings = PipelineSettings(
        name="p",
        kind=PipelineKind.archive,
        checkpoint=str(checkpoint),
        sources=(SourceSettings(name="events", bootstrap_servers="fake:1", group_id="p", topics=("t",)),),
        sink=sink,
    )
    return BatchFunction(settings, {}, start, TableSink(sink, "p"), None)


def _checkpoint(folder: Path, *ends: int) -> None:
    (folder / "offsets").mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "query"}))
    for number, end in enumerate(ends):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{end}}}}}')


def test_a_batch_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    _checkpoint(tmp_path, 10, 25)
    function = _function(tmp_path, Start({"events": {"t": {0: 4}}}))
    first, second = function._in_work(0), function._in_work(1)
    assert (first.start_offsets, first.end_offsets) == ({"events": {"t": {0: 4}}}, {"events": {"t": {0: 10}}})
    assert (second.start_offsets, second.end_offsets) == ({"events": {"t": {0: 10}}}, {"events": {"t": {0: 25}}})


@pytest.mark.parametrize("lost", [0, 1])
def test_a_batch_whose_ends_are_lost_is_refused(tmp_path: Path, lost: int) -> None:
    """Without the end of the batch before, it would begin where the query did, and write rows twice."""
    _checkpoint(tmp_path, 10, 25)
    (tmp_path / "offsets" / str(lost)).unlink()
    with pytest.raises(PipelineError, match=f"has lost batch {lost}: something removed it"):
        _function(tmp_path, Start())._in_work(1)
