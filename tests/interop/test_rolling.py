"""The same batches leave the same segments as in Apache Kafka: where a new one begins, and every byte of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.both_brokers import BrokerPair
from interop.test_raw_data import TIMESTAMP, produce
from ottla.storage.topic_settings import TOPIC_SETTINGS_FILE
from support.apache import ApacheKafka
from support.ottla_server import OttlaServer
from support.storage_logs import batch

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L3")]

#: What is written of a segment while it grows differs: preallocated indexes, and what waits in memory.
GROWING = (".index", ".timeindex")
STEP_MS = 100


def directory_of(server: OttlaServer | ApacheKafka, topic: str) -> Path:
    return server.log_dir / f"{topic}-0"


#: Files that differ, or are not there, by design.
OTHERS = ("partition.metadata", TOPIC_SETTINGS_FILE)


def files(folder: Path) -> dict[str, bytes]:
    """All files but for what grows, what names the topic's id, and settings, which only ottla keeps here."""
    active = max(folder.glob("*.log")).stem
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not (path.stem == active and path.suffix in GROWING) and path.name not in OTHERS
    }


CASES: dict[str, tuple[dict[str, str], list[tuple[int, int]]]] = {
    # Settings, and batches: bytes of each value and steps of time.
    "by size": ({"segment_bytes": "2000"}, [(size, number) for number, size in enumerate([300, 700, 10] * 12)]),
    "to the byte": ({"segment_bytes": "510"}, [(100, number) for number in range(9)]),
    "by time": ({"segment_ms": "1000"}, [(10, step) for step in (0, 1, 10, 11, 12, 22, 23, 5, 40, 39, 51, 52)]),
    "by time, backwards": ({"segment_ms": "1000"}, [(10, step) for step in (*range(30, 0, -1), 40, 41, 51, 3, 52)]),
    "a full index": (
        {"segment_index_bytes": "80", "index_interval_bytes": "0"},
        [(50, number) for number in range(40)],
    ),
    "a full index, times in disorder": (
        {"segment_index_bytes": "96", "index_interval_bytes": "100"},
        [(50, number * 7 % 40) for number in range(60)],
    ),
    "an odd size of the index": (
        {"segment_index_bytes": "101", "index_interval_bytes": "1"},
        [(50, number) for number in range(40)],
    ),
    "a short lag of compaction": (
        {"segment_ms": "100000", "max_compaction_lag_ms": "500", "cleanup_policy": "compact"},
        [(10, number) for number in range(20)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_segments_begin_and_look_alike(
    pair: BrokerPair, unique: str, ottla_only: OttlaServer, apache_kafka: ApacheKafka, case: str
) -> None:
    settings, batches = CASES[case]
    pair.create_topic(unique, **settings)
    for size, step in batches:
        records = bytes(batch(2, size=size, timestamp=TIMESTAMP + step * STEP_MS))
        assert produce(pair, unique, records)["error_code"] == 0
    ours, theirs = (files(directory_of(server, unique)) for server in (ottla_only, apache_kafka))
    assert sorted(ours) == sorted(theirs)
    assert len([name for name in ours if name.endswith(".log")]) > 2
    for name in sorted(ours):
        assert ours[name] == theirs[name], name
