"""What `bench/cluster.py` does with a cluster: replicated produce, deaths, returns, and many partitions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import loadgen
from clusters import BROKER_IDS, SETTLE_TIMEOUT_S, Cluster
from frames import CALL_TIMEOUT_S, Caller, CallFailed, produce_frame, record_batch
from loads import GB, KIB, TOPIC_SETTINGS, Bulk

from ottla.wire.apis import ApiKey
from ottla.wire.messages.produce import ProduceResponse
from support.waiting import wait_until

ALL_IN_SYNC = -1
#: Partitions that are produced to, a connection each; every broker leads as many.
PARTITIONS = 12
IN_FLIGHT = 4
TWO_OF_THREE = TOPIC_SETTINGS | {"min.insync.replicas": "2"}
#: The partitions of a large cluster are spread over topics of this many.
TOPIC_PARTITIONS = 100
#: A client asks again after this time for the leader of a partition that has none.
RETRY_S = 0.005
LOOK_S = 0.02

_numbers = itertools.count(1)


@dataclass
class ProduceFigures:
    """Megabytes (10^6) a second, and CPU seconds of cluster and generator for each gigabyte (10^9) produced."""

    mb_per_s: float
    cpu_s_per_gb: float
    generator_cpu_s_per_gb: float
    #: Of the time it took, how much of one core the generator used.
    generator_share: float


def spread(partitions: int) -> list[list[int]]:
    """Replicas of this many partitions on all brokers, which lead them in turn."""
    ids = BROKER_IDS
    return [[*ids[index % len(ids) :], *ids[: index % len(ids)]] for index in range(partitions)]


class Producing:
    """A topic of `PARTITIONS` partitions with three replicas, and requests of acks=all to it; deleted in the end."""

    def __init__(self, cluster: Cluster, bulk: Bulk) -> None:
        self._cluster = cluster
        self._batch, self._records = record_batch(bulk.record_bytes, bulk.batch_bytes)
        self._topic = f"bench-{next(_numbers)}"
        self._appended = [0] * PARTITIONS
        assignments = spread(PARTITIONS)
        cluster.make_topic(self._topic, assignments, TWO_OF_THREE)
        self._ports = [cluster.ports[brokers[0]] for brokers in assignments]
        self._frames = [produce_frame(self._topic, {index: self._batch}, ALL_IN_SYNC) for index in range(PARTITIONS)]
        sizes = set()
        for index, frame in enumerate(self._frames):
            with Caller(self._ports[index]) as caller:
                sizes.add(caller.probe(ApiKey.PRODUCE, frame))
            self._appended[index] += 1
        (self._answer_size,) = sizes

    def saturate(self, total_bytes: int) -> ProduceFigures:
        """As fast as the cluster takes it."""
        each = max(1, total_bytes // PARTITIONS // len(self._batch))
        requests = [itertools.repeat(frame, each) for frame in self._frames]
        before = self._cluster.cpu_seconds()
        done = loadgen.stream(self._ports, requests, self._answer_size, IN_FLIGHT)
        cpu_s = self._cluster.cpu_seconds() - before
        self._appended = [count + each for count in self._appended]
        gigabytes = each * PARTITIONS * len(self._batch) / GB
        return ProduceFigures(
            gigabytes * 1000 / done.seconds,
            cpu_s / gigabytes,
            done.generator_cpu_s / gigabytes,
            done.generator_cpu_s / done.seconds,
        )

    def paced(self, mb_per_s: float, seconds: float) -> tuple[float, float]:
        """At a fixed rate for so long; p50 and p99 of the time from when a request was due to its answer, ms."""
        per_s = mb_per_s * 1e6 / len(self._batch)
        done = loadgen.paced(self._ports, self._frames, self._answer_size, per_s, seconds)
        for number in range(done.requests):
            self._appended[number % PARTITIONS] += 1
        return done.percentile_ms(50), done.percentile_ms(99)

    def end(self) -> None:
        """Check that everything was appended, and delete the topic."""
        expected = [count * self._records for count in self._appended]
        ends = [0] * PARTITIONS
        for start, broker_id in enumerate(BROKER_IDS):
            led = range(start, PARTITIONS, len(BROKER_IDS))
            with Caller(self._cluster.ports[broker_id]) as caller:
                for index, end in zip(led, caller.ends(self._topic, led), strict=True):
                    ends[index] = end
        if ends != expected:
            raise loadgen.LoadFailed(f"the partitions end at {ends} instead of {expected}")
        self._cluster.delete_topic(self._topic)


def warm_up(cluster: Cluster, seconds: float, loads: Sequence[Bulk]) -> None:
    """Produce until the time is over: a JVM compiles what it runs often."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for bulk in loads:
            producing = Producing(cluster, bulk)
            producing.saturate(128 * KIB * KIB)
            producing.end()


@dataclass
class CreateFigures:
    """Seconds until CreateTopics is answered, until each partition tells its end, and of the cluster's CPU."""

    answered_s: float
    led_s: float
    cpu_s: float


def create_many(cluster: Cluster, partitions: int) -> CreateFigures:
    """A topic of many partitions with three replicas; deleted afterwards."""
    name = f"bench-{next(_numbers)}"
    assignments = spread(partitions)
    before = cluster.cpu_seconds()
    callers = {broker_id: Caller(cluster.ports[broker_id]) for broker_id in BROKER_IDS}
    began_s = time.monotonic()
    callers[cluster.controller()].create_topic(name, partitions, {}, assignments=assignments)
    answered_s = time.monotonic() - began_s
    for start, broker_id in enumerate(BROKER_IDS):
        led = range(start, partitions, len(BROKER_IDS))
        deadline = time.monotonic() + CALL_TIMEOUT_S
        # First one alone: asking for all again and again would take much of the time that is measured.
        while not (_tells_ends(callers[broker_id], name, led[-1:]) and _tells_ends(callers[broker_id], name, led)):
            if time.monotonic() > deadline:
                raise CallFailed(f"broker {broker_id} does not lead its partitions of {name}")
            time.sleep(RETRY_S)
    led_s = time.monotonic() - began_s
    cpu_s = cluster.cpu_seconds() - before
    for caller in callers.values():
        caller.close()
    cluster.delete_topic(name)
    return CreateFigures(answered_s, led_s, cpu_s)


def _tells_ends(caller: Caller, topic: str, indexes: Sequence[int]) -> bool:
    try:
        caller.ends(topic, indexes)
    except CallFailed:
        return False
    return True


@dataclass
class ReturnFigures:
    """MB (10^6) a second that a broker copies, from its registration until all is in sync; the cluster's CPU."""

    mb_per_s: float
    seconds: float
    cpu_s_per_gb: float


def catch_up(cluster: Cluster, total_bytes: int, bulk: Bulk) -> ReturnFigures:
    """Stop a broker in order, produce so much to the others, start it, and wait until it is in sync again."""
    gone = next(broker_id for broker_id in reversed(BROKER_IDS) if broker_id != cluster.controller())
    others = [broker_id for broker_id in BROKER_IDS if broker_id != gone]
    name = f"bench-{next(_numbers)}"
    assignments = [[*(others if index % 2 else reversed(others)), gone] for index in range(PARTITIONS)]
    cluster.make_topic(name, assignments, TWO_OF_THREE)
    cluster.halt(gone, in_order=True)
    cluster.wait_until_without(name, gone)
    batch, _ = record_batch(bulk.record_bytes, bulk.batch_bytes)
    frames = [produce_frame(name, {index: batch}, ALL_IN_SYNC) for index in range(PARTITIONS)]
    ports = [cluster.ports[brokers[0]] for brokers in assignments]
    each = max(1, total_bytes // PARTITIONS // len(batch))
    with Caller(ports[0]) as caller:
        answer_size = caller.probe(ApiKey.PRODUCE, frames[0])
    loadgen.stream(ports, [itertools.repeat(frame, each) for frame in frames], answer_size, IN_FLIGHT)
    registered = threading.Event()
    began_s: list[float] = []

    def seen(_event: object) -> None:
        began_s.append(time.monotonic())
        registered.set()

    cluster.zk.exists(f"/brokers/ids/{gone}", watch=seen)
    starting = threading.Thread(target=cluster.restart, args=(gone,))
    starting.start()
    assert registered.wait(SETTLE_TIMEOUT_S), "the broker did not register"
    before = cluster.cpu_seconds()
    cluster.wait_until_in_sync(name)
    seconds = time.monotonic() - began_s[0]
    cpu_s = cluster.cpu_seconds() - before
    starting.join()
    cluster.delete_topic(name)
    size = each * PARTITIONS * len(batch)
    return ReturnFigures(size / 1e6 / seconds, seconds, cpu_s / (size / GB))


@dataclass
class DeathFigures:
    """Seconds from the moment a dead broker's node is gone, and from its death."""

    acknowledged_s: float
    told_s: float
    total_s: float
    gone_after_s: float
    cpu_s: float


@dataclass
class _Death:
    """What the watchers of a death see; moments are monotonic seconds."""

    broker_id: int
    gone_at_s: float = 0.0
    acknowledged_at_s: float = 0.0
    told_at_s: float = 0.0
    gone: threading.Event = field(default_factory=threading.Event)
    #: What a watcher could not cope with.
    failure: BaseException | None = None


def make_many(cluster: Cluster, partitions: int) -> list[str]:
    """Topics with this many partitions together, three replicas each, for what happens in large clusters."""
    names = []
    for number in range(partitions // TOPIC_PARTITIONS):
        names.append(f"many-{number}")
        with Caller(cluster.ports[cluster.controller()]) as caller:
            caller.create_topic(names[-1], TOPIC_PARTITIONS, {}, assignments=spread(TOPIC_PARTITIONS))
    cluster.wait_until_in_sync(*names)
    return names


def death(cluster: Cluster, topics: Sequence[str], *, of_controller: bool) -> DeathFigures:
    """Kill a broker, and bring it back afterwards.

    Seen are: its node in ZooKeeper goes; a request of acks=all to a partition that it led is acknowledged; and both
    others' metadata has none of the partitions of `topics` led by it or with it in sync.
    """
    controller = cluster.controller()
    victim = controller if of_controller else next(each for each in BROKER_IDS if each != controller)
    others = [broker_id for broker_id in BROKER_IDS if broker_id != victim]
    probe = f"bench-{next(_numbers)}"
    cluster.make_topic(probe, [[victim, *others]], TWO_OF_THREE)
    seen = _Death(victim)
    watchers = [
        threading.Thread(target=_watched, args=(seen, _acknowledged, cluster, probe, others)),
        *(threading.Thread(target=_watched, args=(seen, _told, cluster, topics, [each])) for each in others),
    ]

    def gone(_event: object) -> None:
        seen.gone_at_s = time.monotonic()
        seen.gone.set()

    cluster.zk.exists(f"/brokers/ids/{victim}", watch=gone)
    killed_at_s = cluster.halt(victim, in_order=False)
    before = cluster.cpu_seconds()
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    cpu_s = cluster.cpu_seconds() - before
    if seen.failure is not None:
        raise seen.failure
    cluster.restart(victim)
    cluster.wait_until_in_sync(probe, *topics)
    cluster.prefer_leaders()
    cluster.delete_topic(probe)
    return DeathFigures(
        acknowledged_s=seen.acknowledged_at_s - seen.gone_at_s,
        told_s=seen.told_at_s - seen.gone_at_s,
        total_s=seen.told_at_s - killed_at_s,
        gone_after_s=seen.gone_at_s - killed_at_s,
        cpu_s=cpu_s,
    )


def _watched(seen: _Death, watch: Callable[..., None], *arguments: object) -> None:
    try:
        watch(seen, *arguments)
    except BaseException as error:
        seen.failure = error


def _acknowledged(seen: _Death, cluster: Cluster, topic: str, others: Sequence[int]) -> None:
    """As a client does: ask who leads, send to it, and again."""
    batch, _ = record_batch(100, 0)
    frame = produce_frame(topic, {0: batch}, ALL_IN_SYNC)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    callers = {broker_id: Caller(cluster.ports[broker_id]) for broker_id in others}
    while time.monotonic() < deadline:
        leader = callers[others[0]].metadata([topic]).topics[0].partitions[0].leader_id
        if leader in callers:
            answer: ProduceResponse = callers[leader].decoded(ApiKey.PRODUCE, callers[leader].exchange(frame))
            if not answer.responses[0].partition_responses[0].error_code:
                seen.acknowledged_at_s = time.monotonic()
                return
        time.sleep(RETRY_S)
    raise CallFailed(f"{topic} has no leader that acknowledges")


def _told(seen: _Death, cluster: Cluster, topics: Sequence[str], others: Sequence[int]) -> None:
    """Ask a survivor, after the node has gone, for the topics in which it still has the dead broker."""
    assert seen.gone.wait(SETTLE_TIMEOUT_S), "the node of the dead broker stays"
    (broker_id,) = others
    with Caller(cluster.ports[broker_id]) as caller:
        left = list(topics)

        def is_over() -> bool:
            while left and not cluster.has(caller, left[-1], seen.broker_id):
                left.pop()
            return not left

        wait_until(is_over, f"broker {broker_id} to hear of the death", SETTLE_TIMEOUT_S, LOOK_S)
    seen.told_at_s = max(seen.told_at_s, time.monotonic())
