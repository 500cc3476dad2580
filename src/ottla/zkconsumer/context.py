"""The data in ZooKeeper from which a consumer computes the whole group's assignment: all threads, and the partitions.

Source: Apache Kafka 0.8.2.2, `kafka.consumer.AssignmentContext`, `TopicCount` and `ZkUtils`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.assign.threads import THREAD_ASSIGNORS, ConsumerThread, ThreadAssignments, consumer_threads
from ottla.client.errors import ClientError, InvalidArgumentError
from ottla.client.model import TopicPartition
from ottla.zk.client import ZkClient
from ottla.zk.layout import ConsumerIdZnode, ConsumerRegistration, TopicZnode
from ottla.zk.tree import NoNodeError
from ottla.zkconsumer.topic_filters import FILTERS
from ottla.zkconsumer.znodes import children_or_none


class NotRegisteredError(ClientError):
    """The consumer's own node is not there: its session has expired, and the new one has not registered it yet."""


@dataclass(frozen=True, slots=True)
class AssignmentContext:
    """The group as one consumer found it. Threads and partitions are by topic."""

    consumer: str
    my_threads: dict[str, list[ConsumerThread]]
    partitions: dict[str, tuple[int, ...]]
    """Of the topics that this consumer has threads for; none of a topic that does not exist."""
    threads: dict[str, list[ConsumerThread]]
    """Of all consumers of the group."""
    consumers: list[str]

    def assign(self, strategy: str) -> ThreadAssignments:
        """Assign this consumer's topics to threads. Raises UnequalSubscriptionsError for round robin."""
        threads = self.threads
        if strategy != "roundrobin":
            threads = {topic: threads[topic] for topic in self.my_threads}
        return THREAD_ASSIGNORS[strategy](self.partitions, threads)

    def mine(self, assignments: ThreadAssignments) -> dict[TopicPartition, ConsumerThread]:
        """The partitions of this consumer's threads."""
        return {
            TopicPartition(topic, partition): thread
            for thread, by_topic in assignments.items()
            if thread.consumer == self.consumer
            for topic, partitions in by_topic.items()
            for partition in partitions
        }


async def read_context(zk: ZkClient, group: str, consumer: str, *, exclude_internal_topics: bool) -> AssignmentContext:
    """Read the group: a node for each consumer, one for each topic of this consumer, all topics where anyone filters.

    Raises NotRegisteredError, `ZnodeDataError` where a node cannot be read, InvalidArgumentError for another consumer's
    filter that Python does not know, `ZkError`s, NoNodeError among them where a consumer leaves in between.
    """
    consumers = await zk.children(ConsumerIdZnode.group_path(group))
    if consumer not in consumers:
        raise NotRegisteredError(f"consumer {consumer} is not registered (any more)")
    topics: list[str] | None = None
    threads: dict[str, list[ConsumerThread]] = {}
    my_threads: dict[str, list[ConsumerThread]] = {}
    for name in consumers:
        path = ConsumerIdZnode.path(group, name)
        registration = ConsumerIdZnode.decode(path, (await zk.get(path))[0])
        if registration.pattern != "static" and topics is None:
            topics = await children_or_none(zk, TopicZnode.ROOT)
        try:
            streams = streams_of(registration, topics or [], exclude_internal_topics=exclude_internal_topics)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"consumer {name} of this group filters by what cannot be read here ({error}); give it an expression "
                "that Java and Python both know, or stop it"
            ) from error
        of_consumer = consumer_threads(name, streams)
        for topic, its_threads in of_consumer.items():
            threads.setdefault(topic, []).extend(its_threads)
        if name == consumer:
            my_threads = of_consumer
    partitions = {topic: await _partitions_of(zk, topic) for topic in sorted(my_threads)}
    return AssignmentContext(consumer, my_threads, partitions, threads, consumers)


def streams_of(
    registration: ConsumerRegistration, topics: list[str], *, exclude_internal_topics: bool
) -> dict[str, int]:
    """The number of threads for each topic; of filters for those of `topics` that they take."""
    if registration.pattern == "static":
        return dict(registration.subscription)
    streams: dict[str, int] = {}
    for regex, count in registration.subscription.items():
        wanted = FILTERS[registration.pattern](regex)
        streams.update(
            (topic, count)
            for topic in topics
            if wanted.is_allowed(topic, exclude_internal_topics=exclude_internal_topics)
        )
    return streams


async def _partitions_of(zk: ZkClient, topic: str) -> tuple[int, ...]:
    try:
        data, _ = await zk.get(TopicZnode.path(topic))
    except NoNodeError:
        return ()
    return tuple(sorted(TopicZnode.decode(topic, data).partitions))
