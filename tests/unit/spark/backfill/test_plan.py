"""Options, plans with and without a broker, and the reader that Spark gets."""

from __future__ import annotations

import pickle
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from ottla.client.model import EARLIEST, PartitionMetadata, TopicMetadata, TopicPartition
from ottla.spark.backfill import ending_offsets
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.options import parse_backfill_options
from ottla.spark.backfill.plan import make_plan
from ottla.spark.backfill.reader import SegmentPartition, SegmentReader
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.source.data_source import OttlaDataSource
from ottla.storage.checkpoints import encode_partition_metadata
from support.storage_logs import TOPIC
from support.transacted_logs import TransactedLog

pytestmark = pytest.mark.spec("D5")

P = TopicPartition(TOPIC, 0)


@pytest.fixture
def filled(log: TransactedLog) -> TransactedLog:
    for _ in range(100):
        log.write(3)
    log.checkpoint()
    return log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segments": " , "}, "option segments names no log directory"),
        (
            {"kafka.isolation.level": "read_uncommitted"},
            "kafka.isolation.level: 'read_uncommitted' is not one of read_",
        ),
        ({"startingOffsets": "latest"}, "a batch read cannot start at latest"),
        ({"endingOffsets": "earliest"}, "a read cannot end at earliest"),
        ({"startingTimestamp": "5"}, r"the starting timestamp is looked up by the brokers; give kafka.bootstrap.ser"),
        ({"maxOffsetsPerTrigger": "5"}, "unknown option 'maxoffsetspertrigger' when reading segment files"),
        ({"assign": f'{{"{TOPIC}": [0]}}'}, "give exactly one of the options"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_backfill_options({"segments": "/data", "subscribe": TOPIC} | options)


def test_large_segments_are_divided_and_small_ones_put_together(filled: TransactedLog, plan, rows, small) -> None:
    segments = len(list(filled.directory.glob("*.log")))
    assert len(plan().ranges) == 1
    many = plan(minPartitions="30").ranges
    assert len(many) >= 30 > segments
    assert many[0].start == 0
    assert all(before.end == after.start for before, after in pairwise(many))
    assert many[-1].end == 300
    assert [row for each in many for row in rows(each)] == filled.expected()


def test_one_task_opens_few_segments(filled: TransactedLog, plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.backfill.plan.MOST_SEGMENTS", 2)
    segments = len(list(filled.directory.glob("*.log")))
    assert len(plan().ranges) == -(-segments // 2)


def test_starting_behind_the_end_reads_nothing_and_goes_on_there(filled: TransactedLog, plan) -> None:
    behind = plan(startingOffsets=f'{{"{TOPIC}": {{"0": 400}}}}')
    assert behind.ranges == ()
    assert behind.ending == {P: 400}


def test_the_end_can_be_asked_for_before_reading(filled: TransactedLog, tmp_path: Path, plan) -> None:
    end = ending_offsets({"segments": str(tmp_path), "subscribe": TOPIC})
    assert end == '{"orders": {"0": 300}}'
    filled.write(5)
    filled.checkpoint()
    assert plan(endingOffsets=end).ending == {P: 300}


def test_ending_behind_what_is_committed_is_refused(filled: TransactedLog, plan) -> None:
    with pytest.raises(OptionError, match="the ending offset 301 of orders-0 is beyond 300"):
        plan(endingOffsets=f'{{"{TOPIC}": {{"0": 301}}}}')


def test_partitions_and_topics_that_are_not_there(filled: TransactedLog, tmp_path: Path) -> None:
    def planned(**options: str) -> Any:
        return make_plan(parse_backfill_options({"segments": str(tmp_path)} | options))

    with pytest.raises(SegmentError, match="topic other has no partition in"):
        planned(subscribe="other")
    with pytest.raises(SegmentError, match="orders-3 not found in"):
        planned(assign=f'{{"{TOPIC}": [0, 3]}}')
    with pytest.raises(OptionError, match="the starting offsets must name the partitions that are read: orders-0"):
        planned(subscribe=TOPIC, startingOffsets='{"x": {"0": 1}}')
    assert planned(subscribePattern="rder").ending == {P: 300}
    assert planned(assign=f'{{"{TOPIC}": [0]}}').ending == {P: 300}


def test_the_replica_that_reaches_furthest_is_read(tmp_path: Path) -> None:
    for name, batches in (("a", 3), ("b", 7), ("c", 5)):
        (tmp_path / name).mkdir()
        replica = TransactedLog(tmp_path / name)
        for _ in range(batches):
            replica.write(2)
        replica.checkpoint()
    names = ",".join(str(tmp_path / name) for name in "abc")
    [wanted] = make_plan(parse_backfill_options({"segments": names, "subscribe": TOPIC})).ranges
    assert (wanted.directory, wanted.end) == (str(tmp_path / "b" / "orders-0"), 14)


class FakeLeader:
    """A client of a cluster in which the partition's leader has these offsets."""

    def __init__(self, log_start: int, stable: int, high_watermark: int, topic_id: uuid.UUID | None = None) -> None:
        self.offsets = (log_start, stable, high_watermark)
        self.topic_id = topic_id

    def __enter__(self) -> FakeLeader:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def describe_topics(self, names: list[str]) -> dict[str, TopicMetadata]:
        return {
            name: TopicMetadata(name, (PartitionMetadata(0, 1, 0, (1,), (1,)),), False, self.topic_id) for name in names
        }

    def offsets_at(self, partitions: list[TopicPartition], at: int, *, read_committed: bool = False) -> dict[Any, int]:
        which = 0 if at == EARLIEST else 1 if read_committed else 2
        return dict.fromkeys(partitions, self.offsets[which] if at < 0 else 33)

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> tuple[int, int]:
        return epoch, 10_000


@pytest.fixture
def by_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plan for reading the log where the leader is asked."""

    def planned(leader: FakeLeader, **options: str) -> Any:
        monkeypatch.setattr("ottla.spark.backfill.plan.connect", lambda connection: leader)
        given = {"segments": str(tmp_path), "subscribe": TOPIC, "kafka.bootstrap.servers": "there:9092"}
        return make_plan(parse_backfill_options(given | options))

    return planned


def test_the_leader_says_what_may_be_read(filled: TransactedLog, by_leader, rows) -> None:
    planned = by_leader(FakeLeader(7, 250, 300))
    assert (planned.starting, planned.ending) == ({P: 7}, {P: 250})
    assert [row for each in planned.ranges for row in rows(each)] == filled.expected(250, 7)
    assert by_leader(FakeLeader(7, 250, 300), startingTimestamp="5").starting == {P: 33}
    assert by_leader(FakeLeader(7, 250, 300), endingTimestamp="5").ending == {P: 33}
    assert by_leader(FakeLeader(7, 20, 300), endingTimestamp="5").ending == {P: 20}
    with pytest.raises(OptionError, match="the ending offset 260 of orders-0 is beyond 250"):
        by_leader(FakeLeader(7, 250, 300), endingOffsets=f'{{"{TOPIC}": {{"0": 260}}}}')


def test_what_the_leader_has_and_the_directory_has_not(filled: TransactedLog, by_leader) -> None:
    for segment in sorted(filled.directory.glob("*.log"))[:2]:
        segment.unlink()
    with pytest.raises(DataLossError, match=r"orders-0 wanted 7, .*; name another replica's, start from what is left"):
        by_leader(FakeLeader(7, 250, 300))
    assert by_leader(FakeLeader(7, 250, 300), failOnDataLoss="false").starting[P] > 7


def test_another_topic_of_the_same_name(filled: TransactedLog, by_leader) -> None:
    (filled.directory / "partition.metadata").write_bytes(encode_partition_metadata(uuid.uuid4()))
    with pytest.raises(SegmentError, match="holds another topic of the name orders than the cluster has"):
        by_leader(FakeLeader(0, 300, 300, uuid.uuid4()))


def test_partitions_of_the_cluster_that_are_in_no_directory(filled: TransactedLog, by_leader) -> None:
    with pytest.raises(SegmentError, match=r"other-0 not found in .*; name the log directories of all brokers"):
        by_leader(FakeLeader(0, 300, 300), subscribe="other")


def test_spark_gets_a_reader_of_segments(filled: TransactedLog, tmp_path: Path) -> None:
    source = OttlaDataSource({"segments": str(tmp_path), "subscribe": TOPIC, "includeHeaders": "true"})
    reader = pickle.loads(cloudpickle.dumps(source.reader(source.schema())))
    assert isinstance(reader, SegmentReader)
    [partition] = pickle.loads(cloudpickle.dumps(reader.partitions()))
    assert isinstance(partition, SegmentPartition)
    assert repr(partition) == "SegmentPartition(orders-0, 0 to 300)"
    batches = list(reader.read(partition))
    assert batches[0].schema.names == source.schema().names
    assert sum(batch.num_rows for batch in batches) == 300
    assert list(reader.read(None)) == []


def test_columns_are_chosen_and_values_decoded_as_by_the_source(log: TransactedLog, tmp_path: Path) -> None:
    log.write(keys=[b"a", b"b"])
    log.checkpoint()
    options = {"segments": str(tmp_path), "subscribe": TOPIC}

    def rows(**more: str) -> list[dict[str, Any]]:
        source = OttlaDataSource(options | more)
        reader = source.reader(source.schema())
        [partition] = reader.partitions()
        return [row for batch in reader.read(partition) for row in batch.to_pylist()]

    assert rows(columns="offset,key") == [{"offset": 0, "key": b"a"}, {"offset": 1, "key": b"b"}]
    decoded = rows(valueFormat="json", valueSchema="n INT")
    assert "value" not in decoded[0]
    assert decoded[0]["n"] is None, "no JSON"


def test_a_pattern_takes_no_internal_topic(tmp_path: Path, log: TransactedLog) -> None:
    log.write(1)
    log.checkpoint()
    (tmp_path / "__consumer_offsets-0").mkdir()
    planned = make_plan(parse_backfill_options({"segments": str(tmp_path), "subscribePattern": "o"}))
    assert set(planned.ending) == {P}
