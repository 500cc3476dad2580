"""Batches into a Delta table: once, whatever happens before, while and after the commit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit
from ottla.spark.pipelines.tables.delta import DeltaBatchTable
from ottla.spark.pipelines.tables.delta import table as delta_table
from support.staged_tables import delta_sink, numbered, stage

pytestmark = pytest.mark.spec("D3")


def opened(path: Path, pipeline: str = "archive", **settings: Any) -> DeltaBatchTable:
    return DeltaBatchTable(delta_sink(path, **settings), pipeline)


def ids(path: Path) -> list[int]:
    return sorted(pyarrow.table(deltalake.DeltaTable(path).scan()).column("id").to_pylist())


def parquet_files(path: Path) -> set[str]:
    return {str(each.relative_to(path)) for each in path.rglob("*.parquet") if "_delta_log" not in each.parts}


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert table.last_commit() is None
    batch = stage(table, 0, numbered(0))
    assert table.commit(batch)
    again = stage(table, 0, numbered(0))
    assert not table.commit(again)
    assert ids(tmp_path) == list(range(10))
    assert parquet_files(tmp_path) == {each.replace("%20", " ") for each in files_of(tmp_path)}
    assert table.last_commit() == LastCommit("query-1", 0, {"orders": {"t": {0: 1}}})
    assert table.commit(stage(table, 1, numbered(1)))
    assert opened(tmp_path).last_commit() == LastCommit("query-1", 1, {"orders": {"t": {0: 2}}})
    with pytest.raises(SupersededError, match="has batch 1"):
        table.commit(stage(table, 0, numbered(0)))
    assert ids(tmp_path) == list(range(20))


def files_of(path: Path) -> list[str]:
    root = Path(path).as_uri() + "/"
    return [each.removeprefix(root).removeprefix(f"{path}/") for each in deltalake.DeltaTable(path).file_uris()]


def test_a_batch_without_files_is_recorded_with_its_offsets(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for batch_id in range(2):
        assert table.commit(stage(table, batch_id, numbered(0).slice(0, 0)))
    assert ids(tmp_path) == []
    assert table.last_commit() == LastCommit("query-1", 1, {"orders": {"t": {0: 2}}})


def test_offsets_of_topics_that_went_are_gone(tmp_path: Path) -> None:
    table = opened(tmp_path, "a/b %")
    first = {"a/b": {"t%": {0: 5, 1: 7}, "u": {0: 1}}, "empty": {}}
    second = {"a/b": {"t%": {0: 6, 2: 0}}}
    for batch_id, offsets in enumerate((first, second)):
        table.commit(stage(table, batch_id, numbered(batch_id), end_offsets=offsets))
        assert opened(tmp_path, "a/b %").last_commit() == LastCommit("query-1", batch_id, offsets)
    assert opened(tmp_path, "a/b").last_commit() is None


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


def test_two_pipelines_and_a_foreign_writer_share_a_table(tmp_path: Path) -> None:
    one, two = opened(tmp_path, "one"), opened(tmp_path, "two")
    assert one.commit(stage(one, 0, numbered(0)))
    assert two.commit(stage(two, 0, numbered(1)))
    deltalake.write_deltalake(tmp_path, numbered(2), mode="append")
    assert one.commit(stage(one, 1, numbered(3)))
    assert not two.commit(stage(two, 0, numbered(1)))
    assert ids(tmp_path) == list(range(40))


def between(monkeypatch: pytest.MonkeyPatch, table: DeltaBatchTable, *actions: Any) -> None:
    """Run one of the actions after each time that the table was read in a commit, before it is written."""
    left = list(actions)
    real = table._write

    def write(batch: BatchCommit, attempt: Any) -> None:
        if left:
            left.pop(0)()
        real(batch, attempt)

    monkeypatch.setattr(table, "_write", write)


def test_a_foreign_commit_between_read_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    table.commit(stage(table, 0, numbered(0)))
    foreign = [lambda each=each: deltalake.write_deltalake(tmp_path, numbered(each), mode="append") for each in (1, 2)]
    between(monkeypatch, table, *foreign, lambda: deltalake.DeltaTable(tmp_path).optimize.compact())
    assert table.commit(stage(table, 1, numbered(3)))
    assert ids(tmp_path) == list(range(40))


def test_the_same_batch_between_read_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (0, 1):
        path = tmp_path / str(before)
        one, two = opened(path), opened(path)
        for batch_id in range(before):
            one.commit(stage(one, batch_id, numbered(batch_id)))
        batch = stage(two, before, numbered(before))
        between(monkeypatch, one, lambda two=two, batch=batch: two.commit(batch))
        assert not one.commit(stage(one, before, numbered(before)))
        assert ids(path) == list(range((before + 1) * 10))
        assert parquet_files(path) == set(files_of(path))


def test_a_commit_whose_answer_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    real = table._write

    def write(batch: BatchCommit, attempt: Any) -> None:
        real(batch, attempt)
        raise OSError("the connection broke")

    monkeypatch.setattr(table, "_write", write)
    for batch_id in range(3):
        assert table.commit(stage(table, batch_id, numbered(batch_id)))
    assert ids(tmp_path) == list(range(30))


def test_a_commit_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    monkeypatch.setattr(table, "_write", lambda *_: (_ for _ in ()).throw(OSError("no space left\non device")))
    with pytest.raises(PipelineError, match=r"^cannot commit batch 0 to the Delta table .*: no space left$"):
        table.commit(stage(table, 0, numbered(0)))


def test_tries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "MAX_TRIES", 3)
    table = opened(tmp_path)
    table.commit(stage(table, 0, numbered(0)))
    between(monkeypatch, table, *[lambda: deltalake.write_deltalake(tmp_path, numbered(1), mode="append")] * 3)
    with pytest.raises(PipelineError, match="3 tries"):
        table.commit(stage(table, 1, numbered(1)))


@pytest.mark.slow
def test_two_drivers_at_once(tmp_path: Path) -> None:
    batches = 8
    outcomes: list[list[bool]] = [[], []]
    together = threading.Barrier(2)

    def drive(outcome: list[bool]) -> None:
        table = opened(tmp_path)
        for batch_id in range(batches):
            batch = stage(table, batch_id, numbered(batch_id))
            together.wait()
            outcome.append(table.commit(batch))

    threads = [threading.Thread(target=drive, args=(each,)) for each in outcomes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [one + two for one, two in zip(*outcomes, strict=True)] == [1] * batches
    assert ids(tmp_path) == list(range(batches * 10))
    assert parquet_files(tmp_path) == set(files_of(tmp_path))


def test_a_driver_that_was_stopped_ends_after_another_took_over(tmp_path: Path) -> None:
    stopped = opened(tmp_path)
    stopped.recover()
    stopped.commit(stage(stopped, 0, numbered(0)))
    batch = stage(stopped, 1, numbered(1))
    other = opened(tmp_path)
    other.recover()
    assert parquet_files(tmp_path) == set(files_of(tmp_path)), "what the stopped one wrote is gone"
    with pytest.raises(SupersededError, match="another driver of this pipeline has taken over"):
        stopped.commit(batch)
    assert other.commit(stage(other, 1, numbered(1)))
    with pytest.raises(SupersededError):
        stopped.commit(stage(stopped, 1, numbered(1)))
    assert ids(tmp_path) == list(range(20))
    assert parquet_files(tmp_path) == set(files_of(tmp_path))


def test_of_two_drivers_before_the_first_batch_one_goes_on(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    one.recover()
    two.recover()
    first, second = stage(one, 0, numbered(0)), stage(two, 0, numbered(0))
    assert one.commit(first)
    with pytest.raises(SupersededError):
        two.commit(second)
    assert one.commit(stage(one, 1, numbered(1)))
    assert ids(tmp_path) == list(range(20))


def test_another_query_since_the_table_was_opened(tmp_path: Path) -> None:
    old, new = opened(tmp_path), opened(tmp_path)
    assert old.commit(stage(old, 7, numbered(0), query_id="old"))
    later = opened(tmp_path)
    assert later.commit(stage(later, 0, numbered(1), query_id="new"))
    assert later.last_commit() == LastCommit("new", 0, {"orders": {"t": {0: 1}}})
    for table, query in ((old, "old"), (new, "third")):
        with pytest.raises(SupersededError, match="query new of this pipeline commits"):
            table.commit(stage(table, 8, numbered(2), query_id=query))
    assert ids(tmp_path) == list(range(20))


def test_recover_keeps_what_is_committed_and_removes_the_rest(tmp_path: Path) -> None:
    table = opened(tmp_path, partition_by=("day",))
    table.recover()
    table.commit(stage(table, 999, numbered(0)))
    table.commit(stage(table, 1000, numbered(1)))
    for batch_id in (1001, 1001, 2000):
        stage(table, batch_id, numbered(2))
    stage(table, 0, numbered(2), query_id="never/seen")
    other = opened(tmp_path, "other", partition_by=("day",))
    other.recover()
    left = parquet_files(tmp_path)
    assert len(left) == 6
    again = opened(tmp_path, partition_by=("day",))
    again.recover()
    assert parquet_files(tmp_path) == {each.replace("%3D", "=") for each in files_of(tmp_path)}
    assert len(files_of(tmp_path)) == 2
    assert again.commit(stage(again, 1001, numbered(2)))
    assert ids(tmp_path) == list(range(30))


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
