"""Tables of topics, as they look in a pipe."""

from __future__ import annotations

import io

from ottla.cli.terminal import Terminal, data_size
from ottla.cli.topic.views import description_row, partitions_health, show_description, show_list
from ottla.client.admin.model import ConfigEntry
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import PartitionStatus, ReplicaStatus, TopicStatus

TOPIC = TopicStatus(
    "orders",
    (
        PartitionStatus(
            TopicPartition("orders", 0),
            1,
            4,
            (
                ReplicaStatus(1, True, log_end_offset=110, lag=0, size_bytes=1500),
                ReplicaStatus(2, True, log_end_offset=110, lag=0, size_bytes=1500),
                ReplicaStatus(3, False, log_end_offset=60, lag=50, size_bytes=700),
            ),
            log_start_offset=10,
            high_watermark=110,
            min_insync_replicas=2,
        ),
        PartitionStatus(
            TopicPartition("orders", 1),
            -1,
            2,
            (ReplicaStatus(2, True, log_end_offset=7, size_bytes=50), ReplicaStatus(3, False, is_offline=True)),
            min_insync_replicas=2,
        ),
        PartitionStatus(
            TopicPartition("orders", 2), 3, 5, (ReplicaStatus(1, True, lag=0), ReplicaStatus(3, True, lag=0))
        ),
    ),
    configs={
        "min.insync.replicas": ConfigEntry("min.insync.replicas", "2", "DYNAMIC_TOPIC_CONFIG"),
        "retention.ms": ConfigEntry("retention.ms", "604800000", "DEFAULT_CONFIG"),
    },
)


def test_a_description() -> None:
    stream = io.StringIO()
    show_description(Terminal(stream, width=None, colours=False), TOPIC)
    assert stream.getvalue() == (
        "orders  3 partitions · replication factor 3 · 100 records · 3.8 kB with all replicas\n"
        "  min.insync.replicas=2\n"
        "  PARTITION  LEADER  REPLICAS  ISR  START  END    SIZE  LAG         NOTE\n"
        "          0       1  1,2,3     1,2     10  110  1.5 kB  3: 50       not in sync: 3\n"
        "          1    none  2,3       2        -    -       -  2: ?, 3: ?  offline\n"
        "          2       3  1,3       1,3      -    -       -  -           preferred leader 1\n"
    )


def test_a_list() -> None:
    stream = io.StringIO()
    show_list(Terminal(stream, width=None, colours=False), [TOPIC])
    assert stream.getvalue() == (
        "TOPIC   PARTITIONS  REPLICAS  HEALTH\norders           3         3  1 offline, 1 under-replicated\n"
    )
    assert partitions_health(()).text == "ok"


def test_a_description_as_an_object() -> None:
    row = description_row(TOPIC)
    assert row["configs"] == {"min.insync.replicas": "2"}
    first, second, _ = row["partitions"]
    assert (first["leader"], first["isr"], first["under_replicated"], second["leader"]) == (1, [1, 2], True, None)
    assert first["replica_states"][2] == {
        "broker": 3, "in_sync": False, "offline": False, "log_end_offset": 60, "lag": 50, "size_bytes": 700,
    }  # fmt: skip


def test_sizes() -> None:
    assert [data_size(each) for each in (0, 999, 1000, 1_550_000, 2 * 10**12, 5 * 10**15)] == [
        "0 B", "999 B", "1.0 kB", "1.6 MB", "2.0 TB", "5,000.0 TB",
    ]  # fmt: skip
