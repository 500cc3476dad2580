"""When a table sink looks for small files."""

from __future__ import annotations

import pyarrow
import pytest

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork
from ottla.spark.pipelines.sinks.tables import BATCHES_PER_COMPACTION, TableSink
from ottla.spark.pipelines.tables.contract import BatchCommit

pytestmark = pytest.mark.spec("D3")


class _CountingTable:
    """A table that takes everything."""

    def __init__(self) -> None:
        self.compacted_at: list[int | None] = []

    def commit(self, batch: BatchCommit) -> bool:
        return True

    def compact(self, watermark_ms: int | None) -> int:
        self.compacted_at.append(watermark_ms)
        return 0


def _take(sink: TableSink, table: _CountingTable, batch_id: int) -> None:
    ends = {"source": {"t": {0: batch_id + 1}}}
    batch = BatchInWork("p", "query", batch_id, {"source": {"t": {0: batch_id}}}, ends, batch_id)
    sink._table = table  # type: ignore[assignment]
    sink._staged = BatchCommit("query", batch_id, ends, batch_id, pyarrow.schema([]), [])
    sink.take(None, batch)  # type: ignore[arg-type]


def test_runs_of_few_batches_come_to_it_too() -> None:
    """A run that is scheduled each hour, and killed or ended after two batches, starts with a sink of its own."""
    table = _CountingTable()
    settings = TableSinkSettings(format="parquet", path="table")
    for first in range(0, 3 * BATCHES_PER_COMPACTION, 2):
        sink = TableSink(settings, "p")
        for batch_id in (first, first + 1):
            _take(sink, table, batch_id)
    assert table.compacted_at == [each * BATCHES_PER_COMPACTION - 1 for each in (1, 2, 3)]


def test_never_where_it_is_switched_off() -> None:
    table = _CountingTable()
    sink = TableSink(TableSinkSettings(format="parquet", path="table", compact_to_bytes=None), "p")
    for batch_id in range(2 * BATCHES_PER_COMPACTION):
        _take(sink, table, batch_id)
    assert table.compacted_at == []
