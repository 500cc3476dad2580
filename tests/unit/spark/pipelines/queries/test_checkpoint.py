"""Spark's checkpoint as it is read from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint, offsets_as_json, offsets_of_json

ABOUT = '{"batchWatermarkMs":%d,"batchTimestampMs":1795446101535,"conf":{}}'


def _made(folder: Path, *batches: str) -> QueryCheckpoint:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"d918bed7"}')
    for number, text in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "offsets" / f".{number}.crc").write_text("crc")
    return QueryCheckpoint(str(folder))


def test_a_checkpoint_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    checkpoint = QueryCheckpoint(str(tmp_path / "none"))
    assert checkpoint.query_id() is None
    assert checkpoint.batch(0) is None
    assert checkpoint.newest_planned() is None
    assert checkpoint.newest_finished() is None
    assert checkpoint.note("start") is None


def test_batches_have_their_ends_by_source_and_the_watermark(tmp_path: Path) -> None:
    checkpoint = _made(
        tmp_path,
        f'v1\n{ABOUT % 0}\n{{"a":{{"0":5,"1":7}}}}\n-',
        f'v1\n{ABOUT % 1700}\n{{"a":{{"0":6,"1":7}}}}\n{{"b":{{"0":1}}}}',
    )
    assert checkpoint.query_id() == "d918bed7"
    assert checkpoint.newest_planned() == 1
    first, second = checkpoint.batch(0), checkpoint.batch(1)
    assert first is not None
    assert second is not None
    assert first.sources == ({"a": {0: 5, 1: 7}}, None)
    assert first.watermark_ms is None
    assert second.sources[1] == {"b": {0: 1}}
    assert second.watermark_ms == 1700


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{\n{}", "v1\n{}\nnot json", 'v1\n{}\n{"a": 1}'])
def test_a_log_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(PipelineError, match=r"offsets/0 of the checkpoint .* start with another checkpoint"):
        _made(tmp_path, text).batch(0)


def test_notes_are_replaced_and_found_again(tmp_path: Path) -> None:
    checkpoint = QueryCheckpoint(f"file://{tmp_path}/new")
    checkpoint.write_note("start", {"offsets": {"a": 1}})
    checkpoint.write_note("start", {"offsets": {"a": 2}})
    assert checkpoint.note("start") == {"offsets": {"a": 2}}
    assert [each.name for each in (tmp_path / "new" / "ottla").iterdir()] == ["start.json"]


def test_offsets_keep_their_numbers_in_json() -> None:
    offsets = {"b": {1: 2, 0: 1}, "a": {10: 3}}
    written = offsets_as_json(offsets)
    assert list(written) == ["a", "b"]
    assert list(written["b"]) == ["0", "1"]
    assert offsets_of_json(written) == offsets
    with pytest.raises(PipelineError, match="is not offsets"):
        offsets_of_json({"a": 1})
