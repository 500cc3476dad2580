"""The assignors of the ZooKeeper consumer, which assign partitions to *threads*, not members.

Each consumer of a group has some threads for each topic; every consumer computes the whole group's assignment by
itself from what it reads in ZooKeeper, and takes its own part. So all have to come to the same result, which is why the
orders below are exact.

Source: Apache Kafka 0.8.2, `kafka.consumer.PartitionAssignor`; `ceil` is the rule of the first design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ottla.assign.consumer_protocol import Partitions
from ottla.assign.java_order import string_hash, text_order
from ottla.assign.range import even_ranges


@dataclass(frozen=True, slots=True)
class ConsumerThread:
    """Thread number `thread` of consumer `consumer`, for each topic it has streams of."""

    consumer: str
    thread: int

    def __str__(self) -> str:
        """As in the owner's node in ZooKeeper."""
        return f"{self.consumer}-{self.thread}"


ThreadsByTopic = Mapping[str, Iterable[ConsumerThread]]
ThreadAssignments = dict[ConsumerThread, Partitions]


class UnequalSubscriptionsError(ValueError):
    """Round robin over threads was asked for where it is not allowed; the message names the topics that differ."""


def consumer_threads(consumer: str, streams: Mapping[str, int]) -> dict[str, list[ConsumerThread]]:
    """The threads of one consumer by topic, `streams` being the number of its threads for each."""
    return {topic: [ConsumerThread(consumer, thread) for thread in range(count)] for topic, count in streams.items()}


def range_over_threads(partitions: Mapping[str, Iterable[int]], threads: ThreadsByTopic) -> ThreadAssignments:
    """Topic by topic, neighbouring partitions to each thread; the first threads get one more where it is uneven."""
    return _topic_by_topic(partitions, threads, even_ranges)


def ceil_over_threads(partitions: Mapping[str, Iterable[int]], threads: ThreadsByTopic) -> ThreadAssignments:
    """Topic by topic, each thread takes ceil(partitions / threads) in turn while there are any; the last ones get none.

    The older rule, never a default: it is here to compare with.
    """
    return _topic_by_topic(partitions, threads, _ceil_ranges)


def round_robin_over_threads(partitions: Mapping[str, Iterable[int]], threads: ThreadsByTopic) -> ThreadAssignments:
    """All partitions of all topics, in an order that mixes the topics, dealt to the threads in a ring.

    UnequalSubscriptionsError unless all topics have the same threads: that is, all consumers subscribe to the same
    topics, each with one number of threads for all of them.
    """
    sets = {topic: set(of_topic) for topic, of_topic in threads.items()}
    ring = _sorted(chain.from_iterable(sets.values()))
    for topic, of_topic in sets.items():
        if len(of_topic) < len(ring):
            missing = ", ".join(str(thread) for thread in ring if thread not in of_topic)
            raise UnequalSubscriptionsError(
                "round robin needs all consumers to subscribe to the same topics, each with the same number of threads "
                f"for all of them; topic {topic} is not taken by {missing}: subscribe alike, or use range"
            )
    dealt: dict[ConsumerThread, dict[str, list[int]]] = {thread: {} for thread in ring}
    taken = sorted(sets) if ring else []
    every = [(topic, partition) for topic in taken for partition in sorted(partitions.get(topic, ()))]
    for position, (topic, partition) in enumerate(sorted(every, key=_mixed)):
        dealt[ring[position % len(ring)]].setdefault(topic, []).append(partition)
    return {
        thread: {topic: tuple(sorted(mine)) for topic, mine in sorted(by_topic.items())}
        for thread, by_topic in dealt.items()
    }


THREAD_ASSIGNORS: dict[str, Callable[[Mapping[str, Iterable[int]], ThreadsByTopic], ThreadAssignments]] = {
    "range": range_over_threads,
    "roundrobin": round_robin_over_threads,
    "ceil": ceil_over_threads,
}
"""By the names of the older setting `partition.assignment.strategy`; `range` is the default."""


def _topic_by_topic(
    partitions: Mapping[str, Iterable[int]],
    threads: ThreadsByTopic,
    cut: Callable[[int, int], Iterator[range]],
) -> ThreadAssignments:
    assigned: ThreadAssignments = {thread: {} for thread in _sorted(chain.from_iterable(threads.values()))}
    for topic, unsorted in threads.items():
        of_topic = _sorted(unsorted)
        numbers = sorted(partitions.get(topic, ()))
        if not of_topic:
            continue
        for thread, share in zip(of_topic, cut(len(numbers), len(of_topic)), strict=True):
            if share:
                assigned[thread][topic] = tuple(numbers[share.start : share.stop])
    return assigned


def _ceil_ranges(count: int, shares: int) -> Iterator[range]:
    most = -(-count // shares)
    return (range(min(count, share * most), min(count, (share + 1) * most)) for share in range(shares))


def _sorted(threads: Iterable[ConsumerThread]) -> Sequence[ConsumerThread]:
    """Threads are sorted by what they are called, thread 10 before thread 2."""
    return sorted(set(threads), key=lambda thread: text_order(str(thread)))


def _mixed(partition: tuple[str, int]) -> int:
    """The signed hash of `[topic,partition]`, so that a topic's partitions do not all go to one consumer."""
    hashed = string_hash(f"[{partition[0]},{partition[1]}]")
    return hashed - (hashed >> 31 << 32)
