"""Reports of lost records: what is merged, kept, forgotten and stored; the tagged field that carries them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.losses import KEPT_MS, PER_PARTITION, LossFile, LossReports, epochs_between
from ottla.client.admin.brokers import described_log_dir
from ottla.env.disk import RealDisk
from ottla.env.executor import InlineExecutor
from ottla.wire.codec import decode, encode
from ottla.wire.errors import WireError
from ottla.wire.lost_records import LOST_RECORDS_TAG, LostRecords, decode_lost_records, encode_lost_records
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

pytestmark = pytest.mark.spec("R2")

NOW_MS = 1_700_000_000_000
REMOVED = LostRecords(False, 10, 20, 15, (3, 4), 2, 6, NOW_MS)


def partition(end: int = 10, epoch: int = 4, told: int = 0, leader_epoch: int = 6) -> Any:
    log = SimpleNamespace(name="t-0", log_end_offset=end, leader_epoch=epoch)
    return SimpleNamespace(topic="t", index=0, log=log, leader_epoch=leader_epoch, reported_committed_end=told)


def reports() -> LossReports:
    return LossReports(lambda: NOW_MS)


def test_a_removal_says_what_of_it_was_committed() -> None:
    found = reports()
    found.removed(partition(), 10, 20, 15, (3, 4), 2)
    assert found.of("t", 0) == [REMOVED]
    assert (found.removed_records, found.lost_records) == (10, 5)
    found.removed(partition(leader_epoch=8), 7, 9, 7, (3,), 1)
    assert [each.was_committed for each in found.of("t", 0)] == [True, False]
    assert (found.removed_records, found.lost_records) == (12, 5)


def test_steps_for_one_leader_are_one_report() -> None:
    """Logs that share no epoch at their ends come together in several truncations."""
    found = reports()
    found.removed(partition(), 15, 20, 15, (4,), 2)
    found.removed(partition(), 10, 15, 15, (3,), 2)
    assert found.of("t", 0) == [REMOVED]
    found.removed(partition(leader_epoch=9), 5, 10, 5, (3,), 2)
    assert len(found.of("t", 0)) == 2, "another leader's epoch"


@pytest.mark.parametrize(("told", "end"), [(10, -1), (0, -1), (14, 14)])
def test_an_election_says_what_the_former_leader_had_told(told: int, end: int) -> None:
    found = reports()
    found.elected(partition(told=told), 1, 7)
    assert found.of("t", 0) == [LostRecords(True, 10, end, end, (), 1, 7, NOW_MS)]
    assert found.unclean_leaderships == 1


def test_a_leader_that_nobody_followed_meanwhile_is_reported_once() -> None:
    found = reports()
    found.elected(partition(), 1, 7)
    found.elected(partition(end=12, epoch=7), 1, 8)
    assert [each.leader_epoch for each in found.of("t", 0)] == [8]
    found.elected(partition(end=12, epoch=8), 1, 9)
    assert [(each.start, each.leader_epoch) for each in found.of("t", 0)] == [(10, 9)]
    found.elected(partition(end=12, epoch=11), 1, 12)
    assert [each.leader_epoch for each in found.of("t", 0)] == [9, 12], "somebody else led in between"
    assert found.unclean_leaderships == 2


def test_the_newest_are_kept_and_a_deleted_partition_is_forgotten() -> None:
    found = reports()
    for epoch in range(PER_PARTITION + 3):
        found.removed(partition(leader_epoch=epoch), 10, 20, 0, (), 2)
    assert [each.leader_epoch for each in found.of("t", 0)] == list(range(3, PER_PARTITION + 3))
    found.forget("t", 0)
    assert found.of("t", 0) == ()


def test_the_partitions_reported_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.replicas.losses.MOST_PARTITIONS", 2)
    found = reports()
    for index in (0, 1, 0, 2):
        one = partition()
        one.index = index
        found.removed(one, 10, 20, 0, (), 2)
    assert [len(found.of("t", index)) for index in range(3)] == [2, 0, 1]


def test_they_survive_a_restart_unless_they_are_old(tmp_path: Path) -> None:
    file = LossFile(RealDisk(), InlineExecutor(), str(tmp_path))
    assert file.read() == b""
    found = LossReports(lambda: NOW_MS, file.write)
    found.removed(partition(), 10, 20, 15, (3, 4), 2)
    again = reports()
    again.load(file.read())
    assert again.of("t", 0) == [REMOVED]
    assert again.lost_records == 0, "a counter begins at 0 with the broker"
    late = LossReports(lambda: NOW_MS + KEPT_MS + 1)
    late.load(file.read())
    assert late.of("t", 0) == ()


@pytest.mark.parametrize("data", [b"x", b"[1]", b'["t", 0, "[1]"]', b'["t", 0, 5]', b'["t", "x", "[]"]\n{}'])
def test_a_damaged_file_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        reports().load(data)


def test_epochs_of_a_range() -> None:
    entries = [(0, 0), (2, 10), (5, 20), (6, 30)]
    assert epochs_between(entries, 10, 20) == (2,)
    assert epochs_between(entries, 5, 25) == (0, 2, 5)
    assert epochs_between(entries, 25, 90) == (5, 6)
    assert epochs_between([], 0, 5) == ()


@pytest.mark.parametrize("version", [2, 4])
def test_the_field_goes_through_the_answer_of_describe_log_dirs(version: int) -> None:
    one = DescribeLogDirsPartition(partition_index=0, partition_size=5, offset_lag=0, is_future_key=False)
    one.unknown_tagged_fields = {LOST_RECORDS_TAG: encode_lost_records([REMOVED])}
    other = DescribeLogDirsPartition(partition_index=1, partition_size=5, offset_lag=0, is_future_key=False)
    other.unknown_tagged_fields = {LOST_RECORDS_TAG: b"of a later version"}
    topics = [DescribeLogDirsTopic(name="t", partitions=[one, other])]
    answer = DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=0, log_dir="/d", topics=topics)])
    read = decode(DescribeLogDirsResponse, encode(answer, version), version)
    found = described_log_dir(read.results[0])
    assert dict(found.lost_records) == {("t", 0): [REMOVED]}
    assert len(found.replicas) == 2


def test_fields_of_later_versions_are_passed_over() -> None:
    data = encode_lost_records([REMOVED])
    assert decode_lost_records(data.replace(b'"start":10', b'"added":[1],"start":10')) == [REMOVED]
    for damaged in (b"{}", b"[{}]", data.replace(b"10", b'"10"'), data.replace(b"false", b"0"), b"\xff"):
        with pytest.raises(WireError):
            decode_lost_records(damaged)
