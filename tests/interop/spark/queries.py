"""Batch queries by options, and the rows they give: the same ones for both connectors and both brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.records.record import Record
from support.brokers import RunningBroker
from support.filled_topics import fill_topic

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

START_MS = 1_357_017_300_123
#: 9999-12-31, the latest day that every side can show.
FAR_MS = 253_402_214_400_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics that `fill` makes, all beginning with `prefix`."""

    prefix: str

    @property
    def plain(self) -> str:
        """Partitions of 700, 300 and 0 records; a record each millisecond, in the second each other one."""
        return f"{self.prefix}-plain"

    @property
    def odd(self) -> str:
        """Records without key, without value, with headers, large, old, from the far future."""
        return f"{self.prefix}-odd"

    @property
    def codecs(self) -> str:
        """A partition for each codec."""
        return f"{self.prefix}-codecs"

    @property
    def stamped(self) -> str:
        """Records have the time of the broker."""
        return f"{self.prefix}-stamped"

    @property
    def empty(self) -> str:
        """Two partitions without a record."""
        return f"{self.prefix}-empty"

    def fill(self, broker: RunningBroker) -> None:
        """Make the topics on a broker."""
        fill_topic(broker, self.plain, [_records(700), _records(300, step_ms=2), []])
        fill_topic(broker, self.odd, [_odd_records(), [], _records(1)])
        fill_topic(broker, self.codecs, [[] for _ in CODECS])
        for number, codec in enumerate(CODECS):
            partitions = [_records(400) if each == number else [] for each in range(len(CODECS))]
            fill_topic(broker, self.codecs, partitions, create=False, compression_type=codec)
        fill_topic(broker, self.stamped, [_records(50)], config={"message.timestamp.type": "LogAppendTime"})
        fill_topic(broker, self.empty, [[], []])


def _records(count: int, *, step_ms: int = 1) -> list[Record]:
    return [Record(0, START_MS + n * step_ms, b"k%d" % (n % 7), b"value %d" % n) for n in range(count)]


def _odd_records() -> list[Record]:
    return [
        Record(0, START_MS, None, b"no key"),
        Record(0, START_MS + 1, b"no value", None),
        Record(0, START_MS + 2, None, None),
        Record(0, START_MS + 3, b"", b""),
        Record(0, START_MS + 4, b"\x00\xff", bytes(range(256))),
        Record(0, START_MS + 5, b"h", b"1", (("a", b"1"), ("a", None), ("ü\U0001f600", b""), ("", b"\xff"))),
        Record(0, START_MS + 6, b"h", b"no headers"),
        Record(0, START_MS + 7, b"large", b"x" * LARGE_BYTES),
        Record(0, 0, b"t", b"1970"),
        Record(0, FAR_MS, b"t", b"9999"),
        Record(0, START_MS, b"t", b"back"),
    ]


@dataclass(frozen=True, slots=True)
class Query:
    """A batch query: its options, made for the names of the topics, and how many rows it gives."""

    name: str
    options: Callable[[Topics], Mapping[str, str]]
    rows: int
    #: Rows of LogAppendTime differ from broker to broker in their times.
    is_stamped: bool = False
    #: It differs little from another one, and runs with --long only.
    is_long: bool = False


def offsets(document: object) -> str:
    """The JSON of an option."""
    return json.dumps(document)


QUERIES = (
    Query("subscribe", lambda t: {"subscribe": t.plain}, 1_000),
    Query("subscribe-several", lambda t: {"subscribe": f" {t.plain}, {t.empty} ,{t.odd}"}, 1_012),
    Query("empty", lambda t: {"subscribe": t.empty}, 0, is_long=True),
    Query("headers", lambda t: {"subscribe": t.odd, "includeHeaders": "true"}, 12),
    Query("codecs", lambda t: {"subscribe": t.codecs}, 2_000),
    Query("stamped", lambda t: {"subscribe": t.stamped}, 50, is_stamped=True),
    Query("pattern", lambda t: {"subscribePattern": f"{t.prefix}-(plain|em.*)$"}, 1_000),
    Query("pattern-anywhere", lambda t: {"subscribePattern": " qual-rows-p "}, 1_000, is_long=True),
    Query("pattern-whole-name", lambda t: {"subscribePattern": f"^{t.prefix}$"}, 0),
    Query("assign", lambda t: {"assign": offsets({t.plain: [1, 2], t.odd: [0]})}, 311),
    Query(
        "offsets",
        lambda t: {
            "subscribe": t.plain,
            "startingOffsets": offsets({t.plain: {"0": 690, "1": -2, "2": 0}}),
            "endingOffsets": offsets({t.plain: {"0": -1, "1": 3, "2": -1}}),
        },
        13,
    ),
    Query(
        "words",
        lambda t: {"subscribe": t.plain, "startingOffsets": "Earliest", "endingOffsets": "LATEST"},
        1_000,
        is_long=True,
    ),
    Query(
        "times",
        lambda t: {
            "subscribe": t.plain,
            "startingTimestamp": str(START_MS + 39),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingTimestamp": str(START_MS + 45),
        },
        9,
    ),
    Query(
        "times-by-partition",
        lambda t: {
            "assign": offsets({t.plain: [0, 1]}),
            "startingOffsetsByTimestamp": offsets({t.plain: {"0": START_MS + 10, "1": START_MS + 597}}),
            "endingOffsetsByTimestamp": offsets({t.plain: {"0": START_MS + 12, "1": START_MS + 100_000}}),
        },
        3,
    ),
    Query(
        "later-than-all",
        lambda t: {
            "subscribe": t.plain,
            "startingTimestamp": str(START_MS + 650),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        50,
        is_long=True,
    ),
    Query(
        "start-is-end",
        lambda t: {"assign": offsets({t.plain: [0]}), "startingOffsets": offsets({t.plain: {"0": 700}})},
        0,
    ),
    Query("more-tasks", lambda t: {"subscribe": t.plain, "minPartitions": "7"}, 1_000),
    Query("smaller-tasks", lambda t: {"subscribe": t.plain, "maxRecordsPerPartition": "90"}, 1_000, is_long=True),
    Query(
        "settings",
        lambda t: {
            "subscribe": t.plain,
            "failOnDataLoss": "false",
            "groupIdPrefix": "me",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "20",
            "kafkaConsumer.pollTimeoutMs": "50000",
            "kafka.client.id": "me",
            "kafka.check.crcs": "true",
            "kafka.fetch.min.bytes": "1",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.max.partition.fetch.bytes": "3000",
            "kafka.max.poll.records": "7",
            "kafka.request.timeout.ms": "20000",
            "kafka.isolation.level": "read_committed",
        },
        1_000,
    ),
)

#: Options that neither connector takes for a batch.
REFUSED: Mapping[str, Callable[[Topics], Mapping[str, str]]] = {
    "nothing": lambda t: {},
    "two-ways": lambda t: {"subscribe": t.plain, "subscribePattern": "plain"},
    "no-topic": lambda t: {"subscribe": " , "},
    "no-pattern": lambda t: {"subscribePattern": " "},
    "missing-topic": lambda t: {"subscribe": f"{t.prefix}-missing"},
    "start-at-latest": lambda t: {"subscribe": t.plain, "startingOffsets": "latest"},
    "start-at-minus-one": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets({t.plain: {"0": -1, "1": 0, "2": 0}}),
    },
    "end-at-earliest": lambda t: {"subscribe": t.plain, "endingOffsets": "earliest"},
    "end-at-minus-two": lambda t: {
        "subscribe": t.plain,
        "endingOffsets": offsets({t.plain: {"0": -2, "1": 0, "2": 0}}),
    },
    "partition-left-out": lambda t: {"subscribe": t.plain, "startingOffsets": offsets({t.plain: {"0": 5}})},
    "no-json": lambda t: {"subscribe": t.plain, "startingOffsets": "soon"},
    "later-than-all": lambda t: {"subscribe": t.plain, "startingTimestamp": str(START_MS + 650)},
    "no-tasks": lambda t: {"subscribe": t.plain, "minPartitions": "0"},
    "auto-offset-reset": lambda t: {"subscribe": t.plain, "kafka.auto.offset.reset": "earliest"},
    "auto-commit": lambda t: {"subscribe": t.plain, "kafka.enable.auto.commit": "true"},
    "deserializer": lambda t: {"subscribe": t.plain, "kafka.key.deserializer": "a.B"},
    "isolation": lambda t: {"subscribe": t.plain, "kafka.isolation.level": "none"},
    "interceptor": lambda t: {"subscribe": t.plain, "kafka.interceptor.classes": "a.B"},
}


def rows(spark: SparkSession, source: str, broker: RunningBroker, options: Mapping[str, str]) -> pyarrow.Table:
    """All rows of a batch query in the order of topic, partition, offset."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.bootstrap).options(**options)
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    return reader.load().toArrow().sort_by(order)
