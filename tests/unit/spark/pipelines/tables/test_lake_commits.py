"""Batches into tables with a log, Delta and Iceberg: once, whatever happens before, while and after the commit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.tables import log_table
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit
from support.staged_tables import Lake, numbered, stage

pytestmark = pytest.mark.spec("D3")


def test_a_batch_is_committed_once(lake: Lake) -> None:
    table = lake.opened()
    assert table.last_commit() is None
    batch = stage(table, 0, numbered(0))
    assert table.commit(batch)
    again = stage(table, 0, numbered(0))
    assert not table.commit(again)
    assert lake.ids() == list(range(10))
    assert lake.written() == lake.files()
    assert table.last_commit() == LastCommit("query-1", 0, {"orders": {"t": {0: 1}}})
    assert table.commit(stage(table, 1, numbered(1)))
    assert lake.opened().last_commit() == LastCommit("query-1", 1, {"orders": {"t": {0: 2}}})
    with pytest.raises(SupersededError, match="has batch 1"):
        table.commit(stage(table, 0, numbered(0)))
    assert lake.ids() == list(range(20))


def test_a_batch_without_files_is_recorded_with_its_offsets(lake: Lake) -> None:
    table = lake.opened()
    for batch_id in range(2):
        assert table.commit(stage(table, batch_id, numbered(0).slice(0, 0)))
    assert lake.ids() == []
    assert table.last_commit() == LastCommit("query-1", 1, {"orders": {"t": {0: 2}}})


def test_offsets_of_topics_that_went_are_gone(lake: Lake) -> None:
    table = lake.opened("a/b %")
    first = {"a/b": {"t%": {0: 5, 1: 7}, "u": {0: 1}}, "empty": {}}
    second = {"a/b": {"t%": {0: 6, 2: 0}}}
    for batch_id, offsets in enumerate((first, second)):
        table.commit(stage(table, batch_id, numbered(batch_id), end_offsets=offsets))
        assert lake.opened("a/b %").last_commit() == LastCommit("query-1", batch_id, offsets)
    assert lake.opened("a/b").last_commit() is None


def test_two_pipelines_and_a_foreign_writer_share_a_table(lake: Lake) -> None:
    one, two = lake.opened("one"), lake.opened("two")
    assert one.commit(stage(one, 0, numbered(0)))
    assert two.commit(stage(two, 0, numbered(1)))
    lake.append(numbered(2))
    assert one.commit(stage(one, 1, numbered(3)))
    assert not two.commit(stage(two, 0, numbered(1)))
    assert lake.ids() == list(range(40))


def between(monkeypatch: pytest.MonkeyPatch, table: Any, *actions: Any) -> None:
    """Run one of the actions after each time that the table was read in a commit, before it is written."""
    left = list(actions)
    real = table._write

    def write(batch: BatchCommit, attempt: Any) -> None:
        if left:
            left.pop(0)()
        real(batch, attempt)

    monkeypatch.setattr(table, "_write", write)


def test_a_foreign_commit_between_read_and_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.opened()
    table.commit(stage(table, 0, numbered(0)))
    foreign = [lambda each=each: lake.append(numbered(each)) for each in (1, 2)]
    between(monkeypatch, table, *foreign, lake.tidy)
    assert table.commit(stage(table, 1, numbered(3)))
    assert lake.ids() == list(range(40))


def test_the_same_batch_between_read_and_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (0, 1):
        each = Lake(lake.path / str(before), lake.kind)
        one, two = each.opened(), each.opened()
        for batch_id in range(before):
            one.commit(stage(one, batch_id, numbered(batch_id)))
        batch = stage(two, before, numbered(before))
        between(monkeypatch, one, lambda two=two, batch=batch: two.commit(batch))
        assert not one.commit(stage(one, before, numbered(before)))
        assert each.ids() == list(range((before + 1) * 10))
        assert each.written() == each.files()


def test_a_commit_whose_answer_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.opened()
    real = table._write

    def write(batch: BatchCommit, attempt: Any) -> None:
        real(batch, attempt)
        raise OSError("the connection broke")

    monkeypatch.setattr(table, "_write", write)
    for batch_id in range(3):
        assert table.commit(stage(table, batch_id, numbered(batch_id)))
    assert lake.ids() == list(range(30))


def test_a_commit_that_fails_says_why(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.opened()
    monkeypatch.setattr(table, "_write", lambda *_: (_ for _ in ()).throw(OSError("no space left\non device")))
    with pytest.raises(PipelineError, match=r"^cannot commit batch 0 to the (Delta|Iceberg) table .*: no space left$"):
        table.commit(stage(table, 0, numbered(0)))


def test_tries_are_bounded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_table, "MAX_TRIES", 3)
    table = lake.opened()
    table.commit(stage(table, 0, numbered(0)))
    between(monkeypatch, table, *[lambda: lake.append(numbered(1))] * 3)
    with pytest.raises(PipelineError, match="3 tries"):
        table.commit(stage(table, 1, numbered(1)))


@pytest.mark.slow
def test_two_drivers_at_once(lake: Lake) -> None:
    batches = 8
    outcomes: list[list[bool]] = [[], []]
    # A driver that fails leaves the other one alone.
    together = threading.Barrier(2, timeout=60)

    def drive(outcome: list[bool]) -> None:
        together.wait()
        table = lake.opened()
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
    assert lake.ids() == list(range(batches * 10))
    assert lake.written() == lake.files()


def test_a_driver_that_was_stopped_ends_after_another_took_over(lake: Lake) -> None:
    stopped = lake.opened()
    stopped.recover()
    stopped.commit(stage(stopped, 0, numbered(0)))
    batch = stage(stopped, 1, numbered(1))
    other = lake.opened()
    other.recover()
    assert lake.written() == lake.files(), "what the stopped one wrote is gone"
    with pytest.raises(SupersededError, match="another driver of this pipeline has taken over"):
        stopped.commit(batch)
    assert other.commit(stage(other, 1, numbered(1)))
    with pytest.raises(SupersededError):
        stopped.commit(stage(stopped, 1, numbered(1)))
    assert lake.ids() == list(range(20))
    assert lake.written() == lake.files()


def test_of_two_drivers_before_the_first_batch_one_goes_on(lake: Lake) -> None:
    one, two = lake.opened(), lake.opened()
    one.recover()
    two.recover()
    first, second = stage(one, 0, numbered(0)), stage(two, 0, numbered(0))
    assert one.commit(first)
    with pytest.raises(SupersededError):
        two.commit(second)
    assert one.commit(stage(one, 1, numbered(1)))
    assert lake.ids() == list(range(20))


def test_another_query_since_the_table_was_opened(lake: Lake) -> None:
    old, new = lake.opened(), lake.opened()
    assert old.commit(stage(old, 7, numbered(0), query_id="old"))
    later = lake.opened()
    assert later.commit(stage(later, 0, numbered(1), query_id="new"))
    assert later.last_commit() == LastCommit("new", 0, {"orders": {"t": {0: 1}}})
    for table, query in ((old, "old"), (new, "third")):
        with pytest.raises(SupersededError, match="query new of this pipeline commits"):
            table.commit(stage(table, 8, numbered(2), query_id=query))
    assert lake.ids() == list(range(20))


def test_recover_keeps_what_is_committed_and_removes_the_rest(lake: Lake) -> None:
    table = lake.opened(partition_by=("day",))
    table.recover()
    table.commit(stage(table, 999, numbered(0)))
    table.commit(stage(table, 1000, numbered(1)))
    for batch_id in (1001, 1001, 2000):
        stage(table, batch_id, numbered(2))
    stage(table, 0, numbered(2), query_id="never/seen")
    other = lake.opened("other", partition_by=("day",))
    other.recover()
    left = lake.written()
    assert len(left) == 6
    again = lake.opened(partition_by=("day",))
    again.recover()
    assert lake.written() == lake.files()
    assert len(lake.files()) == 2
    assert again.commit(stage(again, 1001, numbered(2)))
    assert lake.ids() == list(range(30))
