"""A full or failing disk under a running broker: what was acknowledged stays, what is refused is told and not done."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.embedded import EmbeddedBroker
from ottla.ops.cluster_status import PartitionStatus, read_cluster_status
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings
from ottla.wire.errors import ErrorCode
from support.raw_client import RawClient, batch_of
from support.waiting import wait_until

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
REASONS = {errno.ENOSPC: "No space left on device", errno.EIO: "Input/output error"}
both_errors = pytest.mark.parametrize("error", list(REASONS), ids=["full", "failing"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path / "data").start()
    try:
        yield made
    finally:
        made.disk.heal()
        made.stop()


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as made:
        yield made


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A disk that fails is not a bug of ours: it is told in words."""
    yield
    for phase in ("setup", "call"):
        for record in caplog.get_records(phase):
            assert record.exc_info is None, record.getMessage()


def values(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in client.read_all(topic, partition)]


def restarted_values(broker: EmbeddedBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    broker.restart()
    with RawClient(broker.port) as client:
        return values(client, topic, partition)


def status(broker: EmbeddedBroker, topic: str) -> PartitionStatus:
    """Partition 0 as the commands of topics see it."""

    async def read() -> PartitionStatus:
        cluster = Cluster(ConnectionSettings(f"127.0.0.1:{broker.port}"))
        try:
            return (await read_cluster_status(cluster, [topic], offsets=False)).topics[0].partitions[0]
        finally:
            await cluster.close()

    return asyncio.run(read())


def produce_until_refused(client: RawClient, topic: str, first: int = 0, size: int = 100) -> list[bytes | None]:
    """Produce one record after the other until one is refused; the acknowledged ones."""
    acknowledged: list[bytes | None] = []
    for number in range(first, first + 10_000):
        value = b"%d " % number + b"." * size
        answer = client.produce(topic, 0, batch_of(value))
        if answer.error_code:
            assert (answer.error_code, answer.base_offset) == (STORAGE_ERROR, -1)
            return acknowledged
        assert answer.base_offset == first + len(acknowledged)
        acknowledged.append(value)
    raise AssertionError("nothing was refused")


def said(caplog: pytest.LogCaptureFixture, *words: str) -> bool:
    return any(all(word in record.getMessage() for word in words) for record in caplog.records)


# Segments


@pytest.mark.spec("L3")
@both_errors
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_segment_that_cannot_be_written(
    broker: EmbeddedBroker, client: RawClient, caplog: pytest.LogCaptureFixture, error: int, after: int
) -> None:
    assert client.create_topic("t", 2) == 0
    broker.disk.fail("write", "*/t-0/*.log", error, after=after)
    acknowledged = produce_until_refused(client, "t")
    assert len(acknowledged) == after
    assert said(caplog, "t-0", REASONS[error]), caplog.messages
    assert client.produce("t", 0, batch_of(b"again")).error_code == STORAGE_ERROR
    assert client.produce("t", 1, batch_of(b"other")).error_code == 0, "other partitions go on"
    assert values(client, "t") == acknowledged
    broker.disk.heal()
    assert client.produce("t", 0, batch_of(b"healed")).base_offset == after
    assert values(client, "t") == [*acknowledged, b"healed"]
    assert restarted_values(broker, "t") == [*acknowledged, b"healed"]


@both_errors
def test_the_failure_is_reported_once_not_for_every_request(
    broker: EmbeddedBroker, client: RawClient, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    assert client.create_topic("t") == 0
    broker.disk.fail("write", "*/t-0/*.log", error)
    for _ in range(50):
        assert client.produce("t", 0, batch_of(b"x")).error_code == STORAGE_ERROR
    assert len([message for message in caplog.messages if "t-0" in message]) == 1


def test_a_disk_that_fills_up(broker: EmbeddedBroker, client: RawClient) -> None:
    assert client.create_topic("t") == 0
    assert client.find_coordinator("g") == 0
    assert client.commit("g", "t", 0, 1) == 0
    broker.disk.capacity = 50_000
    acknowledged = produce_until_refused(client, "t", size=1000)
    assert len(acknowledged) > 20
    broker.disk.capacity = 0
    assert client.create_topic("more") == STORAGE_ERROR
    refused = client.produce("t", 0, batch_of(b"refused"))
    assert refused.error_code == STORAGE_ERROR
    assert refused.error_message is not None
    assert refused.error_message.endswith("No space left on device. Make room on the disk")
    full = status(broker, "t")
    assert (full.is_well, full.refusal) == (False, refused.error_message)
    assert client.commit("g", "t", 0, 2) == ErrorCode.NOT_COORDINATOR
    assert client.committed("g", "t", 0) == (0, 1)
    assert values(client, "t") == acknowledged
    broker.disk.heal()
    acknowledged += [b"healed"]
    assert client.produce("t", 0, batch_of(b"healed")).base_offset == len(acknowledged) - 1
    assert client.commit("g", "t", 0, 3) == 0
    assert client.create_topic("more") == 0
    assert status(broker, "t").is_well
    assert restarted_values(broker, "t") == acknowledged
    with RawClient(broker.port) as after:
        wait_until(lambda: after.committed("g", "t", 0) == (0, 3), "the committed offset")
        assert {"t", "more"} <= after.topics()


def test_what_cannot_be_cut_off_again_stops_the_partition_until_a_restart(
    broker: EmbeddedBroker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.create_topic("t") == 0
    assert client.produce("t", 0, batch_of(b"good")).error_code == 0
    broker.disk.fail("write", "*/t-0/*.log")
    broker.disk.fail("truncate", "*/t-0/*.log")
    assert client.produce("t", 0, batch_of(b"half")).error_code == STORAGE_ERROR
    broker.disk.heal()
    assert client.produce("t", 0, batch_of(b"behind")).error_code == STORAGE_ERROR
    assert said(caplog, "t-0", "takes no more records until the disk works again and the broker was restarted")
    assert values(client, "t") == [b"good"]
    assert restarted_values(broker, "t") == [b"good"]
    with RawClient(broker.port) as after:
        assert after.produce("t", 0, batch_of(b"next")).base_offset == 1
        assert values(after, "t") == [b"good", b"next"]


@both_errors
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [("open", "*/t-0/*.log"), ("write", "*/t-0/*.*index"), ("replace", "*/t-0/*.snapshot"), ("open", "*/t-0/*")],
)
def test_a_segment_that_cannot_be_begun(
    broker: EmbeddedBroker, client: RawClient, error: int, operation: str, pattern: str
) -> None:
    """Rolling fails: refused, or done without what can be made again; never half."""
    assert client.create_topic("t", segment_bytes="2000", index_interval_bytes="100") == 0
    _, producer_id = client.producer_id()
    acknowledged: list[bytes | None] = []
    for number in range(100):
        if number == 30:
            broker.disk.fail(operation, pattern, error)
        if number == 60:
            broker.disk.heal()
        value = b"%d" % number * 30
        sequence = len(acknowledged)
        batch = batch_of(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        answer = client.produce("t", 0, batch)
        assert answer.error_code in (0, STORAGE_ERROR)
        if answer.error_code == 0:
            assert answer.base_offset == len(acknowledged)
            acknowledged.append(value)
        else:
            assert 30 <= number < 60
    assert values(client, "t") == acknowledged
    assert restarted_values(broker, "t") == acknowledged


@both_errors
def test_an_idempotent_producer_goes_on_after_the_failure(
    broker: EmbeddedBroker, client: RawClient, error: int
) -> None:
    """A refused batch leaves no sequence behind: sent again it is written, once."""
    assert client.create_topic("t") == 0
    _, producer_id = client.producer_id()

    def produce(sequence: int) -> tuple[int, int]:
        batch = batch_of(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        answer = client.produce("t", 0, batch, acks=-1)
        return answer.error_code, answer.base_offset

    assert produce(0) == (0, 0)
    broker.disk.fail("write", "*/t-0/*.log", error)
    assert produce(1)[0] == STORAGE_ERROR
    broker.disk.heal()
    assert produce(1) == (0, 1)
    assert produce(1) == (0, 1), "a duplicate"
    assert produce(2) == (0, 2)
    assert restarted_values(broker, "t") == [b"0", b"1", b"2"]


@pytest.mark.slow
def test_a_failed_fsync_stops_the_partition_and_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a failed fsync nobody knows what is on the disk (Linux forgets the pages): no more is promised."""
    broker = EmbeddedBroker(tmp_path / "data", log_flush_interval_messages="1").start()
    try:
        with RawClient(broker.port) as client:
            assert client.create_topic("t") == 0
            assert client.produce("t", 0, batch_of(b"good")).error_code == 0
            broker.disk.fail("flush", "*/t-0/*")
            assert client.produce("t", 0, batch_of(b"x")).error_code == STORAGE_ERROR
            assert client.produce("t", 0, batch_of(b"y")).error_code == STORAGE_ERROR
            assert said(caplog, "t-0", "Input/output error")
            assert values(client, "t") == [b"good"], "what may not be on the disk is not shown"
        assert restarted_values(broker, "t") in ([b"good"], [b"good", b"x"])
    finally:
        broker.stop()


@pytest.mark.slow
def test_a_flush_that_finds_no_file_handle_is_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Too many open files: nothing was forced, and nothing is lost by trying again."""
    broker = EmbeddedBroker(tmp_path / "data", log_flush_interval_messages="1").start()
    try:
        with RawClient(broker.port) as client:
            broker.disk.fail("open", "*/t-0/partition.metadata", errno.EMFILE, after=1)
            assert client.create_topic("t") == 0
            assert client.produce("t", 0, batch_of(b"one")).error_code == STORAGE_ERROR
            assert said(caplog, "t-0", "Too many open files")
            assert values(client, "t") == []
            broker.disk.heal()
            assert client.produce("t", 0, batch_of(b"two")).error_code == 0
            log = broker.broker.logs.get("t", 0)
            assert log is not None
            wait_until(lambda: not log.flush_needed(), "the flush to be repeated")
        assert restarted_values(broker, "t") == [b"one", b"two"]
    finally:
        broker.stop()


@pytest.mark.slow
@both_errors
def test_checkpoints_that_cannot_be_written(tmp_path: Path, error: int) -> None:
    """They only shorten the next start."""
    settings = {"log_flush_offset_checkpoint_interval_ms": "1000", "log_flush_scheduler_interval_ms": "1000"}
    broker = EmbeddedBroker(tmp_path / "data", **settings).start()
    try:
        broker.disk.fail("replace", "*-checkpoint", error)
        with RawClient(broker.port) as client:
            assert client.create_topic("t") == 0
            for number in range(20):
                assert client.produce("t", 0, batch_of(b"%d" % number)).base_offset == number
            expected = values(client, "t")
        broker.stop()
        broker.disk.heal()
        broker.start()
        with RawClient(broker.port) as client:
            assert values(client, "t") == expected
    finally:
        broker.stop()


@both_errors
@pytest.mark.parametrize(("operation", "pattern"), [("*", "*"), ("flush", "*"), ("write", "*"), ("replace", "*")])
def test_stopping_on_a_failing_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: int, operation: str, pattern: str
) -> None:
    """The stop ends, in words; the next start finds all that was acknowledged."""
    broker = EmbeddedBroker(tmp_path / "data").start()
    try:
        with RawClient(broker.port) as client:
            assert client.create_topic("t") == 0
            assert client.find_coordinator("g") == 0
            for number in range(20):
                assert client.produce("t", 0, batch_of(b"%d" % number)).base_offset == number
            assert client.commit("g", "t", 0, 7) == 0
        broker.disk.fail(operation, pattern, error)
        broker.stop()
        if operation in ("*", "flush"):
            assert said(caplog, REASONS[error])
        assert restarted_values(broker, "t") == [b"%d" % number for number in range(20)]
        with RawClient(broker.port) as client:
            wait_until(lambda: client.committed("g", "t", 0) == (0, 7), "the committed offset")
    finally:
        broker.stop()


# Groups


@pytest.mark.spec("L3")
@both_errors
def test_a_commit_that_cannot_be_written_is_refused_and_not_applied(
    broker: EmbeddedBroker, client: RawClient, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    assert client.create_topic("t") == 0
    assert client.find_coordinator("g") == 0
    assert client.commit("g", "t", 0, 5) == 0
    broker.disk.fail("write", "*/__consumer_offsets-*/*.log", error)
    # What Kafka makes of a storage error here: the client looks for the coordinator and tries again.
    assert client.commit("g", "t", 0, 9) == ErrorCode.NOT_COORDINATOR
    assert client.commit("new", "t", 0, 9) == ErrorCode.NOT_COORDINATOR
    assert client.committed("g", "t", 0) == (0, 5)
    assert client.committed("new", "t", 0) == (0, -1)
    assert said(caplog, "__consumer_offsets-0", REASONS[error])
    broker.disk.heal()
    assert client.committed("g", "t", 0) == (0, 5)
    assert client.commit("g", "t", 0, 6) == 0
    broker.restart()
    with RawClient(broker.port) as after:
        wait_until(lambda: after.committed("g", "t", 0) == (0, 6), "the committed offset")
        assert after.committed("new", "t", 0) == (0, -1)


@both_errors
def test_an_offsets_topic_that_cannot_be_made(broker: EmbeddedBroker, client: RawClient, error: int) -> None:
    broker.disk.fail("open", "*/__consumer_offsets-*", error)
    assert client.find_coordinator("g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "__consumer_offsets" not in client.topics()
    broker.disk.heal()
    assert client.find_coordinator("g") == 0
    assert client.create_topic("t") == 0
    assert client.commit("g", "t", 0, 1) == 0


@pytest.mark.slow
def test_offsets_that_cannot_be_read_are_not_answered_by_half(
    broker: EmbeddedBroker, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the disk gives them the coordinator says that it is loading; consumers wait instead of starting again."""
    assert client.create_topic("t") == 0
    assert client.find_coordinator("g") == 0
    for offset in range(1, 6):
        assert client.commit("g", "t", 0, offset) == 0
    broker.stop()
    start_with_reads_failing(broker, "*/__consumer_offsets-0/*.log")
    with RawClient(broker.port) as after:
        assert after.committed("g", "t", 0) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert after.commit("g", "t", 0, 9) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert said(caplog, "__consumer_offsets-0 cannot be read", "Input/output error")
        broker.disk.heal()
        wait_until(lambda: after.committed("g", "t", 0) == (0, 5), "the committed offset")


def start_with_reads_failing(broker: EmbeddedBroker, pattern: str) -> None:
    """Start on a disk on which the start itself still works, and reading fails soon after."""
    for reads in range(20):
        broker.disk.heal()
        broker.disk.fail("read", pattern, after=reads)
        with suppress(AssertionError):
            broker.start()
            return
    raise AssertionError("the broker does not start")


# The tree


@pytest.mark.spec("L3")
@both_errors
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("write", "*/ottla-tree.log"),
        ("open", "*/half-2*"),
        ("open", "*/half-0*"),
        ("open", "*/half-1/*.log"),
    ],
)
def test_a_topic_that_cannot_be_made_is_not_there_by_half(
    broker: EmbeddedBroker, client: RawClient, error: int, operation: str, pattern: str
) -> None:
    broker.disk.fail(operation, pattern, error)
    assert client.create_topic("half", 3) == STORAGE_ERROR
    assert client.metadata("half").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("half", 0, batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert directories_of(broker, "half") == []
    broker.restart()
    with RawClient(broker.port) as after:
        assert "half" not in after.topics()
        assert after.create_topic("half", 3) == 0
        assert after.produce("half", 2, batch_of(b"x")).error_code == 0
        assert directories_of(broker, "half") == ["half-0", "half-1", "half-2"]


@both_errors
def test_a_partition_whose_topic_id_cannot_be_written_takes_no_records_until_it_can(
    broker: EmbeddedBroker, client: RawClient, error: int
) -> None:
    broker.disk.fail("write", "*/t-1/partition.metadata", error, times=1)
    assert client.create_topic("t", 2) == 0
    assert client.produce("t", 0, batch_of(b"x")).error_code == 0
    assert client.produce("t", 1, batch_of(b"x")).error_code == STORAGE_ERROR
    broker.disk.heal()
    if error == errno.ENOSPC:
        assert client.produce("t", 1, batch_of(b"x")).error_code == 0


@both_errors
@pytest.mark.parametrize(("operation", "pattern"), [("write", "*/ottla-tree.log"), ("open", "*/grown-3*")])
def test_a_topic_that_cannot_grow_keeps_its_partitions(
    broker: EmbeddedBroker, client: RawClient, error: int, operation: str, pattern: str
) -> None:
    assert client.create_topic("grown", 2) == 0
    broker.disk.fail(operation, pattern, error)
    assert client.create_partitions("grown", 5) == STORAGE_ERROR
    broker.disk.heal()
    assert len(client.metadata("grown").topics[0].partitions) == 2
    assert client.produce("grown", 2, batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert directories_of(broker, "grown") == ["grown-0", "grown-1"]
    broker.restart()
    with RawClient(broker.port) as after:
        assert len(after.metadata("grown").topics[0].partitions) == 2
        assert after.create_partitions("grown", 5) == 0
        assert after.produce("grown", 4, batch_of(b"x")).error_code == 0


def directories_of(broker: EmbeddedBroker, topic: str) -> list[str]:
    """Its partitions' folders, those that are being removed not counted."""
    names = (path.name for path in broker.folder.iterdir())
    return sorted(name for name in names if name.startswith(f"{topic}-") and not name.endswith("-delete"))


@both_errors
def test_topics_made_after_the_disk_healed_are_kept(broker: EmbeddedBroker, client: RawClient, error: int) -> None:
    """What a failed write leaves in the tree's log does not hide what is written behind it."""
    assert client.create_topic("before") == 0
    broker.disk.fail("write", "*/ottla-tree.log", error)
    broker.disk.fail("truncate", "*/ottla-tree.log", error)
    assert client.create_topic("refused") == STORAGE_ERROR
    assert client.create_topic("refused-too") == STORAGE_ERROR
    assert client.delete_topic("before") == STORAGE_ERROR
    broker.disk.heal()
    assert client.create_topic("after", 2, retention_ms="12345") == 0
    ids = {topic.name: topic.topic_id for topic in client.metadata().topics}
    broker.restart()
    with RawClient(broker.port) as again:
        assert {topic.name: topic.topic_id for topic in again.metadata().topics} == ids
        assert set(ids) == {"before", "after"}
        assert broker.broker.image.topics["after"].configs == {"retention.ms": "12345"}
        assert again.produce("before", 0, batch_of(b"x")).error_code == 0


@both_errors
def test_a_deletion_that_cannot_be_written(broker: EmbeddedBroker, client: RawClient, error: int) -> None:
    assert client.create_topic("t") == 0
    assert client.produce("t", 0, batch_of(b"x")).error_code == 0
    broker.disk.fail("write", "*/ottla-tree.log", error)
    assert client.delete_topic("t") == STORAGE_ERROR
    assert values(client, "t") == [b"x"], "nothing was done"
    broker.disk.heal()
    assert restarted_values(broker, "t") == [b"x"]
    with RawClient(broker.port) as after:
        assert after.delete_topic("t") == 0
        assert "t" not in after.topics()


@both_errors
def test_producer_ids_that_cannot_be_taken(broker: EmbeddedBroker, client: RawClient, error: int) -> None:
    """The client is told to ask again; ids given out later are new ones."""
    broker.disk.fail("write", "*/ottla-tree.log", error)
    assert client.producer_id() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    broker.disk.heal()
    refused, first = client.producer_id()
    assert refused == 0
    broker.restart()
    with RawClient(broker.port) as after:
        assert after.producer_id()[1] > first
