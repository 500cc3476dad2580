"""The source's reader, as a task of Spark drives it, while brokers die, move, stall or delete what is being read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import confluent_kafka
import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

import ottla.testing
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from ottla.spark.errors import DataLossError
from ottla.spark.source.data_source import OttlaDataSource
from ottla.testing.faults.declared import FaultRule
from support.brokers import Address
from support.filled_topics import fill_topic
from support.records_of_tests import numbered
from support.waiting import wait_until

if TYPE_CHECKING:
    import pyarrow

pytestmark = pytest.mark.spec("D1")

TOPIC = "events"
COUNT = 10_000
#: A fetch brings some hundred records, so a batch takes many.
SMALL_FETCHES = {"kafka.fetch.max.bytes": "20000", "rowsPerBatch": "100"}
REQUEST_TIMEOUT_MS = 1_000
NEVER_MS = 3_600_000
#: Long enough for a leader to be elected meanwhile.
LONG_MS = 3_000


@pytest.fixture
def cluster() -> Iterator[ottla.testing.Cluster]:
    with ottla.testing.Cluster(3) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[ottla.testing.Broker]:
    with ottla.testing.Broker() as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


Servers = ottla.testing.Cluster | ottla.testing.Broker


def fill(servers: Servers, count: int = COUNT) -> None:
    """So many records in batches of a few kB."""
    fill_topic(Address(servers.bootstrap_servers), TOPIC, [numbered(count)], create=False, batch_size=4_000)


def offsets(servers: Servers, **options: str) -> list[int]:
    """The offsets that a batch read gives, task by task."""
    source = OttlaDataSource(
        {"kafka.bootstrap.servers": servers.bootstrap_servers, "subscribe": TOPIC} | SMALL_FETCHES | options
    )
    reader = source.reader(source.schema())
    return [
        offset
        for part in reader.partitions()
        for batch in reader.read(part)
        for offset in cast("pyarrow.RecordBatch", batch).column("offset").to_pylist()
    ]


def reading(pool: ThreadPoolExecutor, servers: Servers, rule: FaultRule, **options: str) -> Future[list[int]]:
    """A read that has come to what the rule is about."""
    read = pool.submit(offsets, servers, **options)
    rule.wait_until_fired()
    return read


def test_the_leader_is_killed_in_the_middle(cluster: ottla.testing.Cluster, pool: ThreadPoolExecutor) -> None:
    cluster.create_topic(TOPIC, retention_ms=-1)
    fill(cluster)
    leader = cluster.wait_for_leader(TOPIC)
    read = reading(pool, cluster, cluster.faults(leader).delay("Fetch", ms=NEVER_MS, client_id="ottla-spark", nth=5))
    cluster.kill(leader)
    assert read.result() == list(range(COUNT))


def test_the_leader_moves_in_the_middle(cluster: ottla.testing.Cluster, pool: ThreadPoolExecutor) -> None:
    cluster.create_topic(TOPIC, retention_ms=-1)
    fill(cluster)
    preferred = cluster.wait_for_leader(TOPIC)
    cluster.kill(preferred)
    leader = cluster.wait_for_leader(TOPIC, other_than=preferred)
    cluster.restart(preferred)
    wait_until(lambda: len(cluster.in_sync(TOPIC)) == 3, "all replicas in sync")
    rule = cluster.faults(leader).delay("Fetch", ms=LONG_MS, client_id="ottla-spark", nth=5)
    read = reading(pool, cluster, rule)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.elect_leaders(ElectionType.PREFERRED, [confluent_kafka.TopicPartition(TOPIC, 0)]).result()
    cluster.wait_for_leader(TOPIC, other_than=leader)
    assert read.result() == list(range(COUNT))


def test_a_broker_is_restarted_in_the_middle(cluster: ottla.testing.Cluster, pool: ThreadPoolExecutor) -> None:
    cluster.create_topic(TOPIC, replication_factor=1, retention_ms=-1)
    fill(cluster)
    leader = cluster.wait_for_leader(TOPIC)
    read = reading(pool, cluster, cluster.faults(leader).delay("Fetch", ms=NEVER_MS, client_id="ottla-spark", nth=5))
    cluster.kill(leader)
    cluster.restart(leader)
    assert read.result() == list(range(COUNT))


def test_a_broker_is_slow_throttles_and_does_not_answer(broker: ottla.testing.Broker) -> None:
    broker.create_topic(TOPIC, retention_ms=-1)
    fill(broker)
    broker.faults.delay("Fetch", ms=200, times=3)
    broker.faults.drop("Fetch", nth=6)
    broker.faults.cut("Fetch", after_bytes=3_000, nth=8)
    broker.faults.throttle("Fetch", ms=200, nth=10)
    broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", nth=12)
    broker.faults.disconnect("ListOffsets", nth=1)
    timeout = {"kafka.request.timeout.ms": str(REQUEST_TIMEOUT_MS)}
    assert offsets(broker, **timeout) == list(range(COUNT))


@pytest.mark.spec("D4")
def test_a_coordinator_that_does_not_answer_does_not_hold_a_stream(broker: ottla.testing.Broker) -> None:
    """The commit would wait for an hour; a planning does for a moment, and the ones after it not at all."""
    broker.create_topic(TOPIC, retention_ms=-1)
    fill(broker, 100)
    broker.faults.delay("OffsetCommit", ms=NEVER_MS)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": TOPIC,
        "kafka.group.id": "g",
        "kafka.default.api.timeout.ms": str(NEVER_MS),
        "kafka.request.timeout.ms": str(NEVER_MS),
    }
    source = OttlaDataSource(options)
    stream = source.streamReader(source.schema())
    for done in range(0, 100, 10):
        assert stream.latestOffset({TOPIC: {"0": done}}, ReadAllAvailable()) == {TOPIC: {"0": 100}}
    stream.stop()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_are_deleted_in_the_middle(broker: ottla.testing.Broker, pool: ThreadPoolExecutor, fail: str) -> None:
    broker.create_topic(TOPIC, segment_bytes=20_000, retention_ms=-1)
    fill(broker)
    rule = broker.faults.delay("Fetch", ms=NEVER_MS, client_id="ottla-spark", nth=5)
    read = reading(pool, broker, rule, failOnDataLoss=fail)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(TOPIC, 0): 8_000})
    broker.advance(milliseconds=NEVER_MS)
    if fail == "true":
        with pytest.raises(Exception, match="failOnDataLoss"):
            read.result()
        return
    read_offsets = read.result()
    before = [offset for offset in read_offsets if offset < 8_000]
    assert before == list(range(len(before)))
    assert read_offsets[len(before) :] == list(range(8_000, COUNT))


def test_a_topic_is_made_again_and_longer_while_a_stream_reads_it(broker: ottla.testing.Broker) -> None:
    made: dict[str, DataSourceStreamReader] = {}
    for fail in ("true", "false"):
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, "failOnDataLoss": fail}
        source = OttlaDataSource(options)
        made[fail] = source.streamReader(source.schema())
    done: dict[str, dict[str, int]] = {TOPIC: {"0": 0}}
    for count in (100, 200):
        broker.create_topic(TOPIC, retention_ms=-1)
        fill(broker, count)
        if count == 100:
            for stream in made.values():
                assert stream.latestOffset(done, ReadAllAvailable()) == {TOPIC: {"0": 100}}
            broker.delete_topic(TOPIC)
            done = {TOPIC: {"0": 100}}
    with pytest.raises(DataLossError, match=f"its id is another one.*{TOPIC}-0 was read to 100"):
        made["true"].latestOffset(done, ReadAllAvailable())
    assert made["false"].latestOffset(done, ReadAllAvailable()) == {}
    assert made["false"].latestOffset({}, ReadAllAvailable()) == {TOPIC: {"0": 200}}
    assert [(each.start, each.end) for each in made["false"].partitions({}, {TOPIC: {"0": 200}})] == [(0, 200)]
    for stream in made.values():
        stream.stop()


@pytest.mark.parametrize("is_deleted", [True, False])
def test_what_was_fetched_before_a_loss_is_given(
    broker: ottla.testing.Broker, pool: ThreadPoolExecutor, *, is_deleted: bool
) -> None:
    """Also where it does not fill an Arrow batch yet."""
    broker.create_topic(TOPIC, segment_bytes=20_000, retention_ms=-1)
    fill(broker)
    rule = broker.faults.delay("Fetch", ms=NEVER_MS, client_id="ottla-spark", nth=5)
    read = reading(pool, broker, rule, failOnDataLoss="false", rowsPerBatch=str(COUNT))
    if is_deleted:
        broker.delete_topic(TOPIC)
    else:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition(TOPIC, 0): 8_000})
    broker.advance(milliseconds=NEVER_MS)
    read_offsets = read.result()
    before = [offset for offset in read_offsets if offset < 8_000]
    assert before == list(range(len(before)))
    assert before, "four answers were fetched"
    assert read_offsets[len(before) :] == ([] if is_deleted else list(range(8_000, COUNT)))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_the_topic_is_deleted_in_the_middle(broker: ottla.testing.Broker, pool: ThreadPoolExecutor, fail: str) -> None:
    broker.create_topic(TOPIC, retention_ms=-1)
    fill(broker)
    rule = broker.faults.delay("Fetch", ms=NEVER_MS, client_id="ottla-spark", nth=5)
    read = reading(pool, broker, rule, failOnDataLoss=fail)
    broker.delete_topic(TOPIC)
    broker.advance(milliseconds=NEVER_MS)
    if fail == "true":
        with pytest.raises(Exception, match="does not exist"):
            read.result()
        return
    read_offsets = read.result()
    assert read_offsets == list(range(len(read_offsets)))
    assert 0 < len(read_offsets) < COUNT
