"""A driver whose successor took its files away says that another one has taken over."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.sinks import tables
from ottla.spark.pipelines.sinks.sink import BatchInWork
from ottla.spark.pipelines.sinks.tables import TableSink
from ottla.spark.pipelines.tables.contract import Staging
from ottla.spark.pipelines.tables.parquet.place import TablePlace
from ottla.spark.pipelines.writing.files import write_files
from ottla.spark.pipelines.writing.manifests import WrittenRows
from ottla.spark.pipelines.writing.refusals import RefusedRows
from support.staged_tables import delta_sink, iceberg_sink, numbered

pytestmark = pytest.mark.spec("D3")


def _batch(batch_id: int) -> BatchInWork:
    ends: Any = [{"source": {"t": {0: batch_id + place}}} for place in (0, 1)]
    return BatchInWork("p", "query", batch_id, *ends, None)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_files_that_the_next_driver_removed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "parquet": lambda: TableSinkSettings(format="parquet", path=str(tmp_path / "table")),
        "delta": lambda: delta_sink(tmp_path / "table"),
        "iceberg": lambda: iceberg_sink(tmp_path / "table"),
    }[kind]()
    first, second = TableSink(settings, "p"), TableSink(settings, "p")
    rows = numbered(0)
    takes_over = False

    def write(frame: object, staging: Staging) -> tuple[pyarrow.Schema, WrittenRows]:
        files = list(write_files(rows.to_batches(), staging, rows.schema))
        if takes_over:
            second.prepare()
            Path(staging.url.removeprefix("file://"), files[0].path).rename(tmp_path / "any")
        return rows.schema, WrittenRows(files, RefusedRows())

    monkeypatch.setattr(tables, "_write_rows", write)
    first.prepare()
    first.stage(None, _batch(0))  # type: ignore[arg-type]
    first.take(None, _batch(0))  # type: ignore[arg-type]
    takes_over = True
    with pytest.raises(SupersededError, match=r"another driver of .* has taken over"):
        first.stage(None, _batch(1))  # type: ignore[arg-type]


def test_another_failure_is_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(frame: object, staging: Staging) -> None:
        raise FileNotFoundError("no such file")

    monkeypatch.setattr(tables, "_write_rows", write)
    sink = TableSink(TableSinkSettings(format="parquet", path=str(tmp_path)), "p")
    sink.prepare()
    with pytest.raises(FileNotFoundError, match="no such file"):
        sink.stage(None, _batch(0))  # type: ignore[arg-type]


def test_a_commit_that_fails_after_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = numbered(0)

    def write(frame: object, staging: Staging) -> tuple[pyarrow.Schema, WrittenRows]:
        return rows.schema, WrittenRows(list(write_files(rows.to_batches(), staging, rows.schema)), RefusedRows())

    created = TablePlace.create

    def create(place: TablePlace, path: str, data: bytes) -> bool:
        created(place, path, data)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tables, "_write_rows", write)
    sink = TableSink(TableSinkSettings(format="parquet", path=str(tmp_path / "table")), "p")
    sink.prepare()
    sink.stage(None, _batch(0))  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(TablePlace, "create", create)
        with pytest.raises(PipelineError, match="no space left on device") as failed:
            sink.take(None, _batch(0))  # type: ignore[arg-type]
    assert not isinstance(failed.value, SupersededError)
    sink.stage(None, _batch(0))  # type: ignore[arg-type]
    sink.take(None, _batch(0))  # type: ignore[arg-type]
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 1


def test_a_sink_in_another_process_that_cannot_open_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Spark Connect batches run in another process than the start."""
    sink = TableSink(TableSinkSettings(format="parquet", path=str(tmp_path / "table")), "p")
    sink.prepare()
    moved: TableSink = pickle.loads(pickle.dumps(sink))

    def fail(place: TablePlace, path: str) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(TablePlace, "make_folder", fail)
    with pytest.raises(PipelineError, match="no space left on device") as failed:
        moved.stage(None, _batch(0))  # type: ignore[arg-type]
    assert not isinstance(failed.value, SupersededError)
