"""Batches into a Delta table: once, whatever happens before, while and after the commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.contract import LastCommit
from ottla.spark.pipelines.tables.delta import DeltaBatchTable
from support.staged_tables import delta_sink, numbered, stage

pytestmark = pytest.mark.spec("D3")


def opened(path: Path, pipeline: str = "archive", **settings: Any) -> DeltaBatchTable:
    return DeltaBatchTable(delta_sink(path, **settings), pipeline)


def ids(path: Path) -> list[int]:
    return sorted(pyarrow.table(deltalake.DeltaTable(path).scan()).column("id").to_pylist())


def test_the_last_commit_outlives_the_log(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for batch_id in range(4):
        table.commit(stage(table, batch_id, numbered(batch_id)))
    whole = deltalake.DeltaTable(tmp_path)
    whole.create_checkpoint()
    for each in (tmp_path / "_delta_log").glob("*.json"):
        if int(each.stem) < 3:
            each.unlink()
    expected = LastCommit("query-1", 3, {"orders": {"t": {0: 4}}})
    assert opened(tmp_path).last_commit() == expected
    assert table.last_commit() == expected
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    late = opened(tmp_path)
    assert late.last_commit() == expected
    assert not late.commit(stage(late, 3, numbered(3)))
    assert late.commit(stage(late, 4, numbered(4)))
    assert ids(tmp_path) == list(range(50))


def test_a_stopped_reader_of_the_log_finds_the_checkpoint(tmp_path: Path) -> None:
    table, stopped = opened(tmp_path), opened(tmp_path)
    table.commit(stage(table, 0, numbered(0)))
    assert stopped.last_commit() is not None
    for batch_id in range(1, 5):
        table.commit(stage(table, batch_id, numbered(batch_id)))
    deltalake.DeltaTable(tmp_path).create_checkpoint()
    for each in (tmp_path / "_delta_log").glob("*.json"):
        if int(each.stem) < 4:
            each.unlink()
    found = stopped.last_commit()
    assert found is not None
    assert found.batch_id == 4


def test_tables_with_rules_of_their_own_are_refused(tmp_path: Path) -> None:
    schema = deltalake.Schema.from_arrow(numbered(0).schema)
    retention = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    deltalake.DeltaTable.create(tmp_path / "retention", schema, configuration=retention)
    with pytest.raises(PipelineError, match="delete the pipeline's last batch"):
        opened(tmp_path / "retention")
    deltalake.DeltaTable.create(tmp_path / "rule", schema).alter.add_constraint({"some": "id > 0"})
    with pytest.raises(PipelineError, match=r"has delta\.constraints\.some = id > 0"):
        opened(tmp_path / "rule")
    path = tmp_path / "partitioned"
    deltalake.write_deltalake(path, numbered(0), partition_by=["day"])
    with pytest.raises(PipelineError, match="partitioned by day, and partition_by is nothing"):
        opened(path)
    with pytest.raises(PipelineError, match="needs path"):
        opened("")  # type: ignore[arg-type]
