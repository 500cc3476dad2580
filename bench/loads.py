"""The loads of the raw generator: what is sent, and the figures that come of it."""

from __future__ import annotations

import itertools
import ssl
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import loadgen
from contestants import Started
from frames import Caller, fetch_frame, produce_frame, record_batch
from loadgen import Load

from ottla.wire.apis import ApiKey

KIB = 1024
MIB = 1024 * KIB
GB = 1e9

#: Connections of the bulk loads, each with a partition of its own.
CONNECTIONS = 4
IN_FLIGHT = 3
#: What a fetch asks for, in whole batches: the default of the Java consumer (`max.partition.fetch.bytes`).
FETCH_BYTES = MIB
TINY_RECORD_BYTES = 16
#: The records are old, and are to stay.
TOPIC_SETTINGS = {"retention.ms": "-1"}
TOPIC_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Bulk:
    """A bulk load: records of one size in batches of another."""

    record_bytes: int
    batch_bytes: int

    @property
    def title(self) -> str:
        """For tables."""
        record = "1 KiB" if self.record_bytes == KIB else f"{self.record_bytes} B"
        batch = "1 MiB" if self.batch_bytes == MIB else f"{self.batch_bytes // KIB} KiB"
        return f"{record} records, {batch} batches"


BULK_LOADS = tuple(Bulk(record, batch) for record in (100, KIB) for batch in (64 * KIB, MIB))
TINY_CONNECTIONS = (1, 8, 16)


@dataclass
class BulkFigures:
    """Megabytes (10^6) a second, and CPU seconds for each gigabyte (10^9) of broker and generator."""

    mb_per_s: float
    cpu_s_per_gb: float
    generator_cpu_s_per_gb: float


@dataclass
class TinyFigures:
    """Requests a second, latencies in milliseconds, and CPU microseconds for each request of broker and generator."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    generator_cpu_us: float


_numbers = itertools.count(1)


def make_topic(caller: Caller, partitions: int) -> tuple[str, uuid.UUID]:
    """A new topic, ready for use, and its id."""
    name = f"bench-{next(_numbers)}"
    topic_id = caller.create_topic(name, partitions, TOPIC_SETTINGS)
    deadline = time.monotonic() + TOPIC_TIMEOUT_S
    while caller.leaders(name) < partitions:
        if time.monotonic() > deadline:
            raise loadgen.LoadFailed(f"{name} had no leaders after {TOPIC_TIMEOUT_S:g} s")
        time.sleep(0.01)
    return name, topic_id


def delete_topic(caller: Caller, broker: Started, topic: str) -> None:
    """Delete a topic, files and all."""
    caller.delete_topic(topic)
    broker.wait_until_deleted(topic)


def produce_and_consume(
    broker: Started, bulk: Bulk, total_bytes: int, passes: int, tls: tuple[int, ssl.SSLContext] | None = None
) -> tuple[BulkFigures, BulkFigures]:
    """Produce `total_bytes` to a new topic, read all of it `passes` times while it is in the page cache, delete it.

    The load goes to the broker's port, or to that of `tls`.
    """
    port, context = tls or (broker.port, None)
    batch, records = record_batch(bulk.record_bytes, bulk.batch_bytes)
    per_fetch = max(1, FETCH_BYTES // len(batch))
    fetches = max(1, total_bytes // len(batch) // CONNECTIONS // per_fetch)
    produces = fetches * per_fetch
    with Caller(broker.port) as caller:
        topic, topic_id = make_topic(caller, CONNECTIONS)
        frames = [produce_frame(topic, {partition: batch}) for partition in range(CONNECTIONS)]
        answer_size = max(caller.probe(ApiKey.PRODUCE, frame) for frame in frames)
        produced = _measured(
            broker,
            lambda: loadgen.stream(
                port, [itertools.repeat(frame, produces) for frame in frames], answer_size, IN_FLIGHT, context
            ),
            len(batch) * produces * CONNECTIONS,
        )
        expected = [records * (produces + 1)] * CONNECTIONS
        ends = caller.end_offsets(topic, CONNECTIONS)
        if ends != expected:
            raise loadgen.LoadFailed(f"the partitions end at {ends} instead of {expected}")
        fetch_bytes = per_fetch * len(batch)
        reads = [
            [fetch_frame(topic_id, partition, turn * per_fetch * records, fetch_bytes) for turn in range(fetches)]
            for partition in range(CONNECTIONS)
        ]
        answer_size = caller.probe(ApiKey.FETCH, reads[0][0])
        consumed = _measured(
            broker,
            lambda: loadgen.stream(port, [one * passes for one in reads], answer_size, IN_FLIGHT, context),
            fetch_bytes * fetches * CONNECTIONS * passes,
        )
        delete_topic(caller, broker, topic)
    return produced, consumed


def _measured(broker: Started, load: Callable[[], Load], payload_bytes: int) -> BulkFigures:
    before = broker.cpu_seconds()
    done = load()
    cpu_s = broker.cpu_seconds() - before
    gigabytes = payload_bytes / GB
    return BulkFigures(gigabytes * 1000 / done.seconds, cpu_s / gigabytes, done.generator_cpu_s / gigabytes)


def tiny(broker: Started, connections: int, requests: int) -> TinyFigures:
    """Produce single tiny records, one request in flight on each connection, each to a partition of its own."""
    batch, _ = record_batch(TINY_RECORD_BYTES, 0)
    with Caller(broker.port) as caller:
        topic, _ = make_topic(caller, connections)
        frames = [produce_frame(topic, {partition: batch}) for partition in range(connections)]
        answer_size = max(caller.probe(ApiKey.PRODUCE, frame) for frame in frames)
        before = broker.cpu_seconds()
        done = loadgen.ping_pong(broker.port, frames, answer_size, requests)
        cpu_s = broker.cpu_seconds() - before
        appended = sum(caller.end_offsets(topic, connections))
        if appended != requests + connections:
            raise loadgen.LoadFailed(f"{appended} records were appended instead of {requests + connections}")
        delete_topic(caller, broker, topic)
    return TinyFigures(
        per_s=requests / done.seconds,
        p50_ms=done.percentile_ms(50),
        p99_ms=done.percentile_ms(99),
        cpu_us=cpu_s / requests * 1e6,
        generator_cpu_us=done.generator_cpu_s / requests * 1e6,
    )


def fill_partitions(broker: Started, partitions: int) -> None:
    """Create a topic of many partitions and append one tiny record to each of them."""
    batch, _ = record_batch(TINY_RECORD_BYTES, 0)
    with Caller(broker.port) as caller:
        topic, _ = make_topic(caller, partitions)
        caller.probe(ApiKey.PRODUCE, produce_frame(topic, dict.fromkeys(range(partitions), batch)))


def warm_up(broker: Started, seconds: float) -> None:
    """All kinds of load in turn, until the time is over: a JVM compiles what it runs often."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for bulk in BULK_LOADS:
            produce_and_consume(broker, bulk, 128 * MIB, 2)
        for connections in TINY_CONNECTIONS:
            tiny(broker, connections, 10_000)
