"""Tables with a log on S3."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchTable
from ottla.spark.pipelines.tables.opening import open_table
from support.played_s3 import PlayedS3
from support.staged_tables import numbered, stage

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

LATE = 4_102_444_800_000


def sink_of(kind: str, s3: PlayedS3, path: Path) -> TableSinkSettings:
    if kind == "delta":
        url = s3.url(f"delta-{path.name}")
        return TableSinkSettings(format="delta", path=url, partition_by=("day",), storage_options=s3.options)
    options = {
        "type": "sql",
        "uri": f"sqlite:///{path}/catalog.db",
        "warehouse": s3.url(f"iceberg-{path.name}"),
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.options["access_key"],
        "s3.secret-access-key": s3.options["secret_key"],
        "s3.region": s3.options["region"],
    }
    return TableSinkSettings(
        format="iceberg", catalog="c", catalog_options=options, table="lake.rows", partition_by=("day",)
    )


def ids(sink: TableSinkSettings) -> list[int]:
    if sink.format == "delta":
        import deltalake

        from ottla.spark.pipelines.tables.delta.location import object_store_options

        table = deltalake.DeltaTable(sink.path or "", storage_options=object_store_options(sink.storage_options))
        return sorted(pyarrow.table(table.scan()).column("id").to_pylist())
    from pyiceberg.catalog import load_catalog

    whole: Any = load_catalog("c", **sink.catalog_options).load_table("lake.rows")
    return sorted(whole.scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_commits_drivers_and_compaction_on_s3(kind: str, s3: PlayedS3, tmp_path: Path) -> None:
    sink = sink_of(kind, s3, tmp_path)
    table = open_table(sink, "archive")
    table.recover()
    assert table.commit(stage(table, 0, numbered(0)))
    assert not table.commit(stage(table, 0, numbered(0)))
    stage(table, 1, numbered(1))
    later = open_table(sink, "archive")
    later.recover()
    assert later.commit(stage(later, 1, numbered(1)))
    assert later.compact(LATE) == 2
    assert ids(sink) == list(range(20))
    last = open_table(sink, "archive").last_commit()
    assert last is not None
    assert last.batch_id == 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_two_drivers_at_once_on_s3(kind: str, s3: PlayedS3, tmp_path: Path) -> None:
    sink = sink_of(kind, s3, tmp_path)
    outcomes: list[list[bool]] = [[], []]
    together = threading.Barrier(2, timeout=60)

    def drive(outcome: list[bool]) -> None:
        table: BatchTable = open_table(sink, "archive")
        for batch_id in range(4):
            batch = stage(table, batch_id, numbered(batch_id))
            together.wait(60)
            outcome.append(table.commit(batch))

    threads = [threading.Thread(target=drive, args=(each,)) for each in outcomes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [one + two for one, two in zip(*outcomes, strict=True)] == [1] * 4
    assert ids(sink) == list(range(40))
