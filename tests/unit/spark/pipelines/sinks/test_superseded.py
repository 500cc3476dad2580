"""A driver whose successor took its files away says that another one has taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.sinks import tables
from ottla.spark.pipelines.sinks.sink import BatchInWork
from ottla.spark.pipelines.sinks.tables import TableSink
from ottla.spark.pipelines.tables.contract import Staging
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
