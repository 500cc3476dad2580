"""What is kept of an Iceberg table's old snapshots, for how long, and what a commit costs after many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.update.snapshot import ExpireSnapshots

from ottla.spark.pipelines.tables.contract import LastCommit
from ottla.spark.pipelines.tables.iceberg import expiry
from support.staged_tables import Lake, numbered, stage

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

FAR = 4_102_444_800_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "iceberg")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Three snapshots but for the newest two expire at once; their files are kept for an hour."""
    monkeypatch.setattr(expiry, "KEPT_MS", -1_000)
    monkeypatch.setattr(expiry, "KEPT_SNAPSHOTS", 2)
    monkeypatch.setattr(expiry, "AT_LEAST", 3)
    return monkeypatch


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "REMOVED_AFTER_MS", -1_000)


def filled(lake: Lake, batches: int = 4) -> Any:
    table = lake.opened(partition_by=("day",))
    for batch_id in range(batches):
        table.commit(stage(table, batch_id, numbered(batch_id)))
    return table


def on_disk(lake: Lake) -> set[str]:
    return {f"file://{each}" for each in lake.path.rglob("*.*") if each.suffix in (".avro", ".parquet")}


def referred(lake: Lake) -> set[str]:
    """All files of all snapshots."""
    table = lake.foreign()
    found: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found |= {each.data_file.file_path for each in entries if each.status != ManifestEntryStatus.DELETED}
    return found


def lists(lake: Lake) -> list[Path]:
    return sorted((lake.path / "lake").rglob("ottla-expired/*"))


def test_snapshots_expire_and_the_last_commit_stays(lake: Lake, soon: pytest.MonkeyPatch) -> None:
    at_once(soon)
    table = lake.opened(partition_by=("day",))
    table.recover()
    for batch_id in range(4):
        table.commit(stage(table, batch_id, numbered(batch_id)))
    assert table.compact(FAR) == 4
    assert len(lake.foreign().snapshots()) == 2
    assert on_disk(lake) == referred(lake)
    assert lake.ids() == list(range(40))
    assert lake.opened(partition_by=("day",)).last_commit() == LastCommit("query-1", 3, {"orders": {"t": {0: 4}}})
    assert not lists(lake)


def test_who_reads_a_snapshot_when_it_expires_can_go_on(lake: Lake, soon: pytest.MonkeyPatch) -> None:
    table = filled(lake)
    reader = lake.foreign()
    oldest = reader.snapshots()[0].snapshot_id
    assert table.compact(FAR) == 4
    assert len(lake.foreign().snapshots()) == 2
    assert reader.scan(snapshot_id=oldest).to_arrow().num_rows == 10
    assert reader.scan().to_arrow().num_rows == 40
    assert len(lists(lake)) == 1
    again = lake.opened(partition_by=("day",))
    again.recover()
    assert reader.scan(snapshot_id=oldest).to_arrow().num_rows == 10
    at_once(soon)
    again = lake.opened(partition_by=("day",))
    again.recover()
    with pytest.raises(FileNotFoundError):
        reader.scan(snapshot_id=oldest).to_arrow()
    assert on_disk(lake) == referred(lake)
    assert not lists(lake)
    assert lake.ids() == list(range(40))


@pytest.mark.parametrize("moment", ["before", "after", "removal"])
def test_a_driver_that_ends_in_expiry(lake: Lake, soon: pytest.MonkeyPatch, moment: str) -> None:
    table = filled(lake)
    real = ExpireSnapshots.commit

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    def commit(self: ExpireSnapshots) -> None:
        if moment == "after":
            real(self)
        end()

    with soon.context() as ending:
        if moment == "removal":
            at_once(ending)
            real_remove = expiry.Expiry._remove
            ending.setattr(
                expiry.Expiry, "_remove", lambda self, path: end() if "/ottla-" not in path else real_remove(self, path)
            )
        else:
            ending.setattr(ExpireSnapshots, "commit", commit)
        with pytest.raises(KeyboardInterrupt):
            table.compact(FAR)
    assert len(lake.foreign().snapshots()) == (5 if moment == "before" else 2)
    (named,) = lists(lake)
    assert named.name.startswith("planned") == (moment != "removal")
    reader = lake.foreign()
    again = lake.opened(partition_by=("day",))
    again.recover()
    assert reader.scan().to_arrow().num_rows == 40
    if moment == "after":
        (dated,) = lists(lake)
        assert dated.name[0].isdigit()
        assert not referred(lake) & set(json.loads(dated.read_text())["rows"])
    at_once(soon)
    again.compact(FAR)
    again = lake.opened(partition_by=("day",))
    again.recover()
    assert on_disk(lake) == referred(lake)
    assert not lists(lake)
    assert lake.ids() == list(range(40))


def test_a_commit_in_between_leaves_no_list(lake: Lake, soon: pytest.MonkeyPatch) -> None:
    table = filled(lake)
    real = SqlCatalog._update_and_stage_table

    def staged(self: SqlCatalog, *given: Any) -> Any:
        made = real(self, *given)
        soon.setattr(SqlCatalog, "_update_and_stage_table", real)
        lake.tidy()
        return made

    real_commit = ExpireSnapshots.commit

    def commit(self: ExpireSnapshots) -> None:
        soon.setattr(SqlCatalog, "_update_and_stage_table", staged)
        real_commit(self)

    soon.setattr(ExpireSnapshots, "commit", commit)
    assert table.compact(FAR) == 4
    assert len(lake.foreign().snapshots()) == 5
    assert not lists(lake)


def test_somebody_else_lets_snapshots_expire_at_the_same_moment(
    lake: Lake, soon: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = filled(lake, 6)
    real = expiry.Expiry.expire

    def expire(self: expiry.Expiry, whole: Any) -> None:
        old = lake.foreign().snapshots()[:3]
        lake.foreign().maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
        for each in old:
            Path(each.manifest_list.removeprefix("file://")).unlink()
        real(self, whole)

    with soon.context() as meanwhile:
        meanwhile.setattr(expiry.Expiry, "expire", expire)
        assert table.compact(FAR) == 6
    assert "old snapshots went while they were looked at" in caplog.text
    assert table.commit(stage(table, 6, numbered(6)))
    table.compact(FAR)
    assert len(lake.foreign().snapshots()) == 2
    assert lake.ids() == list(range(70))


def test_snapshots_with_names_and_those_the_table_wants_stay(lake: Lake) -> None:
    table = lake.opened()
    for batch_id in range(4):
        table.commit(stage(table, batch_id, numbered(batch_id)))
    whole = lake.foreign()
    whole.manage_snapshots().create_tag(whole.snapshots()[0].snapshot_id, "first").commit()
    with whole.transaction() as transaction:
        transaction.set_properties(
            {"history.expire.min-snapshots-to-keep": "1", "history.expire.max-snapshot-age-ms": "0"}
        )
    old = expiry.expirable(whole, whole.snapshots()[-1].timestamp_ms + 1)
    assert {each.snapshot_id for each in old} == {each.snapshot_id for each in whole.snapshots()[1:-1]}
    assert expiry.expirable(whole, 0) == []


def test_a_snapshot_with_a_name_is_read_for_good(lake: Lake, soon: pytest.MonkeyPatch) -> None:
    at_once(soon)
    table = filled(lake, 6)
    whole = lake.foreign()
    whole.manage_snapshots().create_tag(whole.snapshots()[1].snapshot_id, "second").commit()
    assert table.compact(FAR) == 6
    assert table.commit(stage(table, 6, numbered(6)))
    table.compact(FAR)
    whole = lake.foreign()
    tagged = whole.metadata.refs["second"].snapshot_id
    assert tagged in {each.snapshot_id for each in whole.snapshots()}
    assert sorted(whole.scan(snapshot_id=tagged).to_arrow().column("id").to_pylist()) == list(range(20))
    assert lake.ids() == list(range(70))


def test_of_many_young_snapshots_the_newest_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "KEPT_SNAPSHOTS", 2)
    monkeypatch.setattr(expiry, "KEPT_AT_MOST", 5)
    filled(lake, 8)
    whole = lake.foreign()
    newest_first = [each.snapshot_id for each in sorted(whole.snapshots(), key=lambda each: -each.sequence_number)]
    assert [each.snapshot_id for each in expiry.expirable(whole, 0)] == newest_first[5:]
    with whole.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "7"})
    assert [each.snapshot_id for each in expiry.expirable(whole, 0)] == newest_first[7:]
    with whole.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "1000"})
    assert expiry.expirable(whole, 0) == []


def test_what_a_commit_reads_and_writes_does_not_grow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many snapshots, manifests and old metadata files after 60 commits as after 30; two looks at the catalog."""
    monkeypatch.setattr(expiry, "KEPT_AT_MOST", 10)
    monkeypatch.setattr(expiry, "KEPT_SNAPSHOTS", 5)
    monkeypatch.setattr(expiry, "AT_LEAST", 5)
    monkeypatch.setattr(expiry, "NAMES_AT_MOST", 3)
    at_once(monkeypatch)
    loads = 0
    real = SqlCatalog.load_table

    def load(self: SqlCatalog, *given: Any) -> Any:
        nonlocal loads
        loads += 1
        return real(self, *given)

    table = lake.opened()
    for batch_id in range(60):
        batch = stage(table, batch_id, numbered(batch_id))
        monkeypatch.setattr(SqlCatalog, "load_table", load)
        loads = 0
        assert table.commit(batch)
        monkeypatch.setattr(SqlCatalog, "load_table", real)
        assert loads <= 3 - (batch_id > 0)
        if batch_id % 5 == 4:
            table.compact(None)
            whole = lake.foreign()
            assert len(whole.snapshots()) <= 15
            assert len(whole.current_snapshot().manifests(whole.io)) <= 20
            assert len(list(lake.path.rglob("*.metadata.json"))) <= 22
            assert len(list(lake.path.rglob("*.avro"))) <= 2 * (15 + 20)
    merged = on_disk(lake) - referred(lake)
    assert len(merged) <= 1, "what pyiceberg leaves of a merge goes with the snapshot"
    assert all(each.endswith("-m0.avro") for each in merged)
    assert lake.ids() == list(range(600))
