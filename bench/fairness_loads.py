"""What `bench/fairness.py` measures: a client beside a follower that catches up, a cold reader, a flood of requests."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import loadgen
from cluster_loads import TWO_OF_THREE
from clusters import SETTLE_TIMEOUT_S, Cluster
from frames import Caller, fetch_frame, produce_frame, record_batch
from loads import KIB, MIB, TOPIC_SETTINGS
from storage_loads import ColdReader

from ottla.wire.apis import ApiKey

ALL_IN_SYNC = -1
#: The measured client's requests a second, half of them produce with acks=all and half fetches, over these connections.
PER_S = 200.0
CONNECTIONS = 8
#: Broker 3 leads nothing: it is the follower that goes away and catches up. Broker 1 has the cold reader and the flood.
LEADERS = (1, 2)
GONE = 3
ASSIGNMENTS = [[LEADERS[index % 2], LEADERS[(index + 1) % 2], GONE] for index in range(CONNECTIONS)]
FLOOD_CONNECTIONS = 16
FLOOD_IN_FLIGHT = 8
FLOOD_PARTITIONS = 4
COLD_PARTITIONS = 4
BEHIND_PARTITIONS = 12
IN_FLIGHT = 4


@dataclass
class Latencies:
    """p99 of the measured client, in milliseconds, and for how long it was measured."""

    produce_ms: float
    fetch_ms: float
    seconds: float


class Foreground:
    """The measured client: small records to a topic of three replicas, and fetches of one small batch."""

    def __init__(self, cluster: Cluster) -> None:
        batch, _ = record_batch(KIB, KIB)
        cluster.make_topic("steady", ASSIGNMENTS, TWO_OF_THREE)
        cluster.make_topic("read", ASSIGNMENTS, TWO_OF_THREE)
        self._ports, self._frames, self._sizes = list[int](), list[bytes](), list[int]()
        with Caller(cluster.ports[1]) as caller:
            (read,) = caller.metadata(["read"]).topics
        for index, (leader, *_) in enumerate(ASSIGNMENTS):
            port = cluster.ports[leader]
            with Caller(port) as caller:
                caller.probe(ApiKey.PRODUCE, produce_frame("read", {index: batch}, ALL_IN_SYNC))
                for key, frame in (
                    (ApiKey.PRODUCE, produce_frame("steady", {index: batch}, ALL_IN_SYNC)),
                    (ApiKey.FETCH, fetch_frame(read.topic_id, index, 0, MIB)),
                ):
                    self._ports.append(port)
                    self._frames.append(frame)
                    self._sizes.append(caller.probe(key, frame))

    def measure(self, seconds: float, goes_on: Callable[[], bool] = lambda: True) -> Latencies:
        """Send for so long, or until it need not continue."""
        done = loadgen.paced(self._ports, self._frames, self._sizes, PER_S, seconds, goes_on)
        kinds = [[each for one in done.by_stream_ns[kind::2] for each in one] for kind in (0, 1)]
        produce_ms, fetch_ms = (loadgen.percentile_ms(each, 99) for each in kinds)
        return Latencies(produce_ms, fetch_ms, done.seconds)


class Behind:
    """A topic that broker 3 lacks much of: it is stopped, this many bytes are produced, and it starts again."""

    def __init__(self, cluster: Cluster, total_bytes: int) -> None:
        self._cluster = cluster
        self._bytes = total_bytes
        self._numbers = itertools.count(1)

    def measure(self, foreground: Foreground, seconds: float) -> tuple[Latencies, float]:
        """While it catches up, at most for so long; and the MB a second that it copied, till it was in sync."""
        cluster, name = self._cluster, f"behind-{next(self._numbers)}"
        assignments = [[*(LEADERS if index % 2 else LEADERS[::-1]), GONE] for index in range(BEHIND_PARTITIONS)]
        cluster.make_topic(name, assignments, TWO_OF_THREE)
        cluster.halt(GONE, in_order=True)
        for topic in (name, "steady", "read"):
            cluster.wait_until_without(topic, GONE)
        batch, _ = record_batch(KIB, 256 * KIB)
        frames = [produce_frame(name, {index: batch}, ALL_IN_SYNC) for index in range(BEHIND_PARTITIONS)]
        ports = [cluster.ports[brokers[0]] for brokers in assignments]
        each = max(1, self._bytes // BEHIND_PARTITIONS // len(batch))
        with Caller(ports[0]) as caller:
            answer_size = caller.probe(ApiKey.PRODUCE, frames[0])
        loadgen.stream(ports, [itertools.repeat(frame, each) for frame in frames], answer_size, IN_FLIGHT)
        registered, in_sync = threading.Event(), threading.Event()
        cluster.zk.exists(f"/brokers/ids/{GONE}", watch=lambda _event: registered.set())
        starting = threading.Thread(target=cluster.restart, args=(GONE,))
        starting.start()
        assert registered.wait(SETTLE_TIMEOUT_S), "the broker did not register"
        began_s = time.monotonic()

        def wait_until_in_sync() -> None:
            cluster.wait_until_in_sync(name, every_s=LOOK_S)
            in_sync.set()

        watching = threading.Thread(target=wait_until_in_sync)
        watching.start()
        found = foreground.measure(seconds, lambda: not in_sync.is_set())
        watching.join()
        copied_s = time.monotonic() - began_s
        starting.join()
        cluster.wait_until_in_sync("steady", "read")
        cluster.delete_topic(name)
        return found, each * BEHIND_PARTITIONS * len(batch) / 1e6 / copied_s


#: How often the metadata is asked for whether the follower has caught up: it costs the brokers something.
LOOK_S = 0.25


class Cold:
    """A topic of broker 1 that another process reads from the disk, again and again."""

    def __init__(self, cluster: Cluster, total_bytes: int) -> None:
        self._cluster = cluster
        with Caller(cluster.ports[cluster.controller()]) as caller:
            assignments = [[1]] * COLD_PARTITIONS
            self._topic_id: uuid.UUID = caller.create_topic(
                "cold", COLD_PARTITIONS, TOPIC_SETTINGS, assignments=assignments
            )
        cluster.wait_until_in_sync("cold")
        batch, _ = record_batch(KIB, MIB)
        self._batches = max(1, total_bytes // COLD_PARTITIONS // len(batch))
        frames = [produce_frame("cold", {index: batch}) for index in range(COLD_PARTITIONS)]
        port = cluster.ports[1]
        with Caller(port) as caller:
            answer_size = caller.probe(ApiKey.PRODUCE, frames[0])
        loadgen.stream(port, [itertools.repeat(frame, self._batches) for frame in frames], answer_size, IN_FLIGHT)

    def measure(self, foreground: Foreground, seconds: float) -> tuple[Latencies, float]:
        """While it is read; and the MB a second of that."""
        reader = ColdReader(self._cluster.brokers[1], "cold", self._topic_id, COLD_PARTITIONS, self._batches)
        try:
            reader.wait_until_reading()
            found = foreground.measure(seconds)
            return found, reader.stop() / 1e6 / found.seconds
        except BaseException:
            reader.kill()
            raise


class Flood:
    """Another process that sends as many small produce requests to broker 1 as it takes."""

    def __init__(self, cluster: Cluster) -> None:
        self._port = cluster.ports[1]
        cluster.make_topic("flood", [[1, 2, 3]] * FLOOD_PARTITIONS, TWO_OF_THREE)

    def measure(self, foreground: Foreground, seconds: float) -> tuple[Latencies, float]:
        """Beside it; and its requests a second."""
        arguments = map(str, (self._port, "flood", FLOOD_PARTITIONS, FLOOD_CONNECTIONS, FLOOD_IN_FLIGHT))
        flood = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fairness_flood.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert flood.stdout is not None
            if not flood.stdout.readline():
                raise loadgen.LoadFailed("the flood ended early")
            found = foreground.measure(seconds)
            told, _ = flood.communicate(timeout=60)
            return found, float(told.split()[-1])
        except BaseException:
            flood.kill()
            flood.communicate()
            raise
