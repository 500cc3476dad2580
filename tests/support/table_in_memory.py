"""A table of a pipeline whose commits are kept by the test's process; its files are real."""

from __future__ import annotations

import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit, Staging


class TablesInMemory:
    """Opens tables by their path: `open` stands in the place of `tables.opening.open_table`."""

    def __init__(self) -> None:
        self.commits: defaultdict[tuple[str, str], list[tuple[BatchCommit, str]]] = defaultdict(list)
        self.compactions: list[int | None] = []

    def open(self, settings: TableSinkSettings, pipeline: str) -> TableInMemory:
        """The table at a path as one pipeline sees it."""
        return TableInMemory(self, settings, pipeline)

    def rows(self, path: Path) -> list[dict[str, Any]]:
        """All rows that were committed to a table."""
        found: list[dict[str, Any]] = []
        for (place, _), commits in self.commits.items():
            for batch, staging in commits if place == str(path) else ():
                for file in batch.files:
                    found += pyarrow.parquet.read_table(f"{staging}/{file.path}", partitioning=None).to_pylist()
        return found


class TableInMemory:
    """What `BatchTable` asks for."""

    def __init__(self, tables: TablesInMemory, settings: TableSinkSettings, pipeline: str) -> None:
        self._tables = tables
        self._settings = settings
        self._commits = tables.commits[str(settings.path), pipeline]
        self._opened_at = self.last_commit()
        self._staged = ""

    def last_commit(self) -> LastCommit | None:
        """The newest batch."""
        if not self._commits:
            return None
        batch = self._commits[-1][0]
        return LastCommit(batch.query_id, batch.batch_id, batch.end_offsets)

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """A folder beside the table's."""
        self._staged = f"{self._settings.path}-staged/{query_id}-{batch_id}-{uuid.uuid4()}"
        return Staging(self._staged, {}, self._settings.partition_by, self._settings.compression)

    def commit(self, batch: BatchCommit) -> bool:
        """Keep the batch, unless it is there."""
        there = [each.batch_id for each, _ in self._commits if each.query_id == batch.query_id]
        if batch.batch_id in there:
            return False
        if there and max(there) > batch.batch_id:
            raise SupersededError(f"batch {max(there)} is there already; another driver runs this pipeline")
        self._commits.append((batch, self._staged))
        return True

    def recover(self) -> None:
        """Nothing is left behind."""

    def compact(self, watermark_ms: int | None) -> int:
        """Noted only."""
        self._tables.compactions.append(watermark_ms)
        return 0
