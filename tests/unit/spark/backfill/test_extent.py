"""From where to where a replica may be read: by its leader, and by its own checkpoints."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.backfill.directories import Replica, check_complete, find_replicas
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.extent import LeaderOffsets, extent_by_checkpoints, extent_by_leader
from ottla.storage.checkpoints import HIGH_WATERMARK_FILE, encode_partition_metadata
from ottla.storage.truncation import truncate_fully_and_start_at
from support.storage_logs import TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")


def replica_of(log: TransactedLog) -> Replica:
    log.checkpoint()
    [replica] = find_replicas([str(log.root)])[TopicPartition(TOPIC, 0)]
    return replica


def agrees(epoch: int) -> tuple[int, int]:
    """A leader that has what the replica has, and more."""
    return epoch, 10_000


def test_a_replica_that_has_everything_ends_where_the_leader_says(log: TransactedLog) -> None:
    for _ in range(10):
        log.write(3)
    extent = extent_by_leader(replica_of(log), LeaderOffsets(5, 20, 30), agrees)
    assert (extent.start, extent.end, extent.note) == (5, 20, "")


def test_a_follower_that_lags_ends_before_transactions_whose_markers_it_lacks(log: TransactedLog) -> None:
    log.write(3)
    log.write(3, producer_id=1)
    log.write(3)
    extent = extent_by_leader(replica_of(log), LeaderOffsets(0, 100, 100), agrees)
    assert (extent.start, extent.end) == (0, 3)
    assert extent.note.endswith("ends at 3, the leader's last stable offset is 100")
    log.end(1, commit=False)
    assert extent_by_leader(replica_of(log), LeaderOffsets(0, 100, 100), agrees).end == 10


def test_records_that_the_leader_never_had_are_not_read(log: TransactedLog) -> None:
    for _ in range(10):
        log.write(3)
    replica = replace(replica_of(log), epochs=((2, 0), (4, 12), (6, 21)))

    def ends(**told: tuple[int, int]) -> int:
        answers = {int(name[1:]): answer for name, answer in told.items()}
        return extent_by_leader(replica, LeaderOffsets(0, 100, 100), answers.__getitem__).end

    assert ends(e6=(6, 90)) == 30, "the leader went on in the same epoch"
    assert ends(e6=(6, 25)) == 25, "it ended that epoch earlier"
    assert ends(e6=(4, 15)) == 15, "it does not know the epoch, and ended the one before earlier"
    assert ends(e6=(4, 40)) == 21, "it ended the one before later: ours ended at 21"
    assert ends(e6=(5, 50), e4=(4, 18)) == 18, "we do not know the one that it knows"
    assert ends(e6=(3, 50), e2=(2, 9)) == 9
    assert ends(e6=(-1, -1), e4=(4, 14)) == 14
    assert ends(e6=(1, 7)) == 0, "nothing in common"


def test_a_log_without_epochs_is_taken_as_it_is(log: TransactedLog) -> None:
    log.write(3)
    replica = replace(replica_of(log), epochs=())
    assert extent_by_leader(replica, LeaderOffsets(0, 3, 3), agrees).end == 3


def test_a_replica_that_begins_later_than_the_leader(log: TransactedLog) -> None:
    log.write(3)
    assert extent_by_leader(replica_of(log), LeaderOffsets(2, 3, 3), agrees).start == 2
    truncate_fully_and_start_at(log.log, 50, 0)
    log.checkpoint()
    assert extent_by_leader(replica_of(log), LeaderOffsets(2, 60, 60), agrees).start == 50


def test_without_any_checkpoint_there_is_an_error(log: TransactedLog) -> None:
    log.write(3)
    replica_of(log)
    (log.root / HIGH_WATERMARK_FILE).unlink()
    with pytest.raises(SegmentError, match=r"has no replication-offset-checkpoint, .* or name kafka.bootstrap.servers"):
        extent_by_checkpoints(find_replicas([str(log.root)])[TopicPartition(TOPIC, 0)][0])


def test_a_partition_that_the_checkpoint_does_not_name_has_nothing_committed(log: TransactedLog) -> None:
    log.write(3)
    extent = extent_by_checkpoints(replace(replica_of(log), high_watermark=None))
    assert (extent.start, extent.end) == (0, 0)
    assert "has no high watermark of it yet, so nothing is read, though its log has offsets 0 to 2: wait" in extent.note


def test_transactions_are_followed_from_the_newest_producer_snapshot(
    log: TransactedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turn in range(40):
        log.write(3, producer_id=turn % 3, size=100)
        if turn % 5 == 4:
            log.end(turn % 3, commit=True)
    assert len(list(log.directory.glob("*.snapshot"))) > 2
    seen: list[str] = []
    from ottla.spark.backfill import extent

    walk = extent.walk_heads

    def noted(file, position):
        seen.append(file.path)
        return walk(file, position)

    replica = replica_of(log)
    monkeypatch.setattr(extent, "walk_heads", noted)
    assert extent_by_checkpoints(replica).end == log.log.last_stable_offset
    assert len(set(seen)) == 1
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.write_bytes(b"damaged")
    assert extent_by_checkpoints(replica).end == log.log.last_stable_offset
    assert len(set(seen)) > 2


def test_log_directories_that_are_none(tmp_path: Path, log: TransactedLog) -> None:
    log.write(1)
    log.checkpoint()
    with pytest.raises(SegmentError, match=r"no log directory to read from: cannot list .*/missing"):
        find_replicas([str(tmp_path / "missing")])
    with pytest.raises(SegmentError, match=f"orders-0 is the directory of one partition; name .*, {tmp_path}"):
        find_replicas([str(log.directory)])
    (tmp_path / HIGH_WATERMARK_FILE).write_bytes(b"0\nmany\n")
    with pytest.raises(SegmentError, match=r"not a checkpoint file .*; name kafka.bootstrap.servers"):
        find_replicas([str(tmp_path)])


def test_topic_ids_and_epochs_are_read(log: TransactedLog) -> None:
    log.write(1)
    topic_id = uuid.uuid4()
    (log.directory / "partition.metadata").write_bytes(encode_partition_metadata(topic_id))
    replica = replica_of(log)
    assert replica.topic_id == topic_id
    assert replica.epochs == ((0, 0),)


def test_partitions_that_are_in_no_directory() -> None:
    known = [TopicPartition("t", 0), TopicPartition("t", 3)]
    with pytest.raises(
        SegmentError, match=r"topic t: partition 1, 2 is not in /a, /b; name the log directories of all"
    ):
        check_complete(["t"], known, ["/a", "/b"])
    with pytest.raises(SegmentError, match="topic u has no partition in /a"):
        check_complete(["t", "u"], [TopicPartition("t", 0)], ["/a"])
