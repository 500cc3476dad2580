"""Retention while brokers run leaves the same segments as in Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from interop.both_brokers import BrokerPair
from interop.raw import RawConnection
from interop.test_raw_data import listing, produce
from interop.test_raw_settings import SET, TOPIC, changed
from support.apache import ApacheKafka, ApacheZooKeeper
from support.brokers import RunningBroker
from support.ottla_server import OttlaServer
from support.storage_logs import batch
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L4"), pytest.mark.slow]

OFTEN = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
EARLIEST = -2
BATCHES = 30
HOUR_MS = 3_600_000


class Case(NamedTuple):
    """What a topic is given while it holds batches, how old these are, and whether anything goes."""

    settings: dict[str, str]
    #: Hours before now, for each batch.
    ages: list[int]
    shrinks: bool = True
    deleted_below: int | None = None


OLD = [100] * BATCHES
CASES = {
    "time": Case({"retention.ms": str(2 * HOUR_MS)}, [BATCHES - number for number in range(BATCHES)]),
    "everything-old": Case({"retention.ms": "1000"}, OLD),
    "old-behind-new": Case({"retention.ms": str(2 * HOUR_MS)}, [9] * 10 + [0] * 3 + [9] * 17),
    "future": Case({"retention.ms": "1000"}, [-9] * BATCHES, shrinks=False),
    "one-byte": Case({"retention.bytes": "1"}, OLD),
    "nothing-kept": Case({"retention.bytes": "0"}, OLD),
    "some-bytes": Case({"retention.bytes": "2500"}, OLD),
    "more-than-there-is": Case({"retention.bytes": "1000000"}, OLD, shrinks=False),
    "both": Case({"retention.bytes": "3000", "retention.ms": str(20 * HOUR_MS)}, [30 - n for n in range(BATCHES)]),
    "compacted": Case({"retention.bytes": "1", "cleanup.policy": "compact"}, OLD, shrinks=False),
    "compacted-and-deleted": Case({"retention.bytes": "1", "cleanup.policy": "compact,delete"}, OLD),
    "deleted-records": Case({"flush.messages": "5"}, OLD, deleted_below=31),
    "all-records-deleted": Case({"flush.messages": "5"}, OLD, deleted_below=-1),
}


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaServer]:
    server = OttlaServer(tmp_path_factory.mktemp("ottla"), overrides=OFTEN, arguments=["--id", "1"])
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper) -> Iterator[ApacheKafka]:
    # The other tests' broker lives in the root.
    apart = {**OFTEN, "zookeeper.connect": f"{apache_zookeeper.connect}/retention"}
    server = ApacheKafka(tmp_path_factory.mktemp("apache"), zookeeper=apache_zookeeper, overrides=apart)
    try:
        yield server.start()
    finally:
        server.stop()


def left(server: OttlaServer | ApacheKafka, raw: RawConnection, topic: str) -> tuple[int, list[str]]:
    """The log's start, and the segments there are."""
    (answer,) = raw.request("ListOffsets", 7, **listing(topic, EARLIEST))["topics"]
    folder: Path = server.log_dir / f"{topic}-0"
    return answer["partitions"][0]["offset"], sorted(path.name for path in folder.glob("*.log"))


def test_what_is_left(
    ottla: OttlaServer, apache: ApacheKafka, connect: Callable[[RunningBroker], RawConnection]
) -> None:
    pair = BrokerPair(connect(ottla), connect(apache))
    now_ms = int(time.time() * 1000)
    for name, case in CASES.items():
        # The cleaner's own work is not what is compared.
        kept = {"retention_ms": "-1", "segment_bytes": "700", "min_compaction_lag_ms": str(10**15)}
        pair.create_topic(name, **kept)
        for hours in case.ages:
            records = bytes(batch(2, size=100, timestamp=now_ms - hours * HOUR_MS))
            assert produce(pair, name, records)["error_code"] == 0
    before = left(ottla, pair.ours, "time")
    assert before == left(apache, pair.theirs, "time")
    assert len(before[1]) > 10
    for name, case in CASES.items():
        changes = [(key, SET, value) for key, value in case.settings.items()]
        pair.check_alike("IncrementalAlterConfigs", 1, resources=[changed(TOPIC, name, *changes)], validate_only=False)
        if case.deleted_below is not None:
            topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": case.deleted_below}]}]
            pair.check_alike("DeleteRecords", 2, topics=topics, timeout_ms=20_000)
    for name, case in CASES.items():

        def settled(name: str = name, case: Case = case) -> bool:
            ours, theirs = left(ottla, pair.ours, name), left(apache, pair.theirs, name)
            return ours == theirs and (not case.shrinks or (ours[0] > 0 and len(ours[1]) < len(before[1])))

        wait_until(settled, f"{name}: {left(ottla, pair.ours, name)} beside {left(apache, pair.theirs, name)}")
        # Both have looked several times since the change.
        assert case.shrinks or left(ottla, pair.ours, name)[0] == 0
