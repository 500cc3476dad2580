"""The cluster as a broker knows it: brokers, topics, leaders.

It changes by deltas, and a broker applies each delta to the partitions that it hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ottla.config.listeners import Endpoint

NO_LEADER = -1


class BrokerImage(NamedTuple):
    """A live broker and its endpoints."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The broker's endpoint on the listener of that name; None if it has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener_name == listener_name), None)


class PartitionImage(NamedTuple):
    """A partition's leader (-1 for none), its leader epoch, all replicas, those in sync, and those offline."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicImage(NamedTuple):
    """A topic: its id, its partitions in order, its own settings."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    is_internal: bool

    @property
    def replication_factor(self) -> int:
        """Number of replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class TopicDelta(NamedTuple):
    """The change of one topic: `before` is None for a new one, `after` for a deleted one."""

    before: TopicImage | None
    after: TopicImage | None

    @property
    def name(self) -> str:
        """The topic's name."""
        topic = self.after if self.after is not None else self.before
        assert topic is not None, "a delta is about a topic"
        return topic.name

    def reversed(self) -> TopicDelta:
        """The delta that undoes this one."""
        return TopicDelta(self.after, self.before)


class ImageDelta(NamedTuple):
    """A change of the image. None marks an unchanged part."""

    topics: tuple[TopicDelta, ...] = ()
    brokers: Mapping[int, BrokerImage] | None = None
    controller_id: int | None = None
    #: Partition epochs (data versions of the state znodes) of the partitions that change; those left out are 0.
    partition_epochs: Mapping[tuple[str, int], int] = MappingProxyType({})
    #: Partitions that are new, or new here: their replicas begin with empty logs.
    new_partitions: Collection[tuple[str, int]] = frozenset()
    #: Partitions whose leaders were elected without being in sync (KIP-704), until their ISRs change.
    recovering: Collection[tuple[str, int]] = frozenset()
    #: Whether a client waits for the change, which is undone where a new replica cannot be made here.
    is_undone_on_failure: bool = False


def offline_delta(image: ClusterImage, broker_id: int, partitions: Iterable[tuple[str, int]]) -> ImageDelta:
    """The change that takes replicas of a broker offline after their log directory failed; they have no leader then."""
    by_topic: dict[str, set[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, set()).add(index)
    deltas = []
    for name, indexes in by_topic.items():
        topic = image.topics.get(name)
        if topic is None:
            continue
        states = tuple(
            state._replace(leader=NO_LEADER, offline=(broker_id,)) if index in indexes else state
            for index, state in enumerate(topic.partitions)
        )
        deltas.append(TopicDelta(topic, topic._replace(partitions=states)))
    return ImageDelta(tuple(deltas))


class RoleAction(Enum):
    """The action of a broker on one of its replicas, or former replicas."""

    LEAD = "lead"
    FOLLOW = "follow"
    CREATE = "create the log"
    """The leader is not alive: the replica gets its log, so that its high watermark is kept, and no role."""
    IDENTIFY = "assign the topic id"
    STOP = "stop"
    DELETE = "delete"
    NONE = "nothing"


class RoleChange(NamedTuple):
    """A role that a replica of a broker gets or loses. For STOP and DELETE the state may be the former one."""

    action: RoleAction
    topic: TopicImage
    partition: int
    state: PartitionImage
    partition_epoch: int = 0
    #: Whether the leader was elected without being in sync (KIP-704).
    is_recovering: bool = False
    #: Whether the change is undone where the log cannot be made.
    is_undone_on_failure: bool = False


def hosted_changes(delta: TopicDelta, broker_id: int) -> Iterator[RoleChange]:
    """The actions of one broker for a change of a topic; none for unchanged partitions."""
    before, after = delta
    if before is not None and after is not None and before.topic_id != after.topic_id:
        yield from hosted_changes(TopicDelta(before, None), broker_id)
        yield from hosted_changes(TopicDelta(None, after), broker_id)
        return
    old = before.partitions if before is not None else ()
    new = after.partitions if after is not None else ()
    for index in range(max(len(old), len(new))):
        was = old[index] if index < len(old) else None
        now = new[index] if index < len(new) else None
        if was is now:
            continue
        if now is None or broker_id not in now.replicas:
            if before is not None and was is not None and broker_id in was.replicas:
                yield RoleChange(RoleAction.DELETE, before, index, was)
            continue
        assert after is not None
        if was is not None and (was.leader, was.leader_epoch) == (now.leader, now.leader_epoch):
            continue
        if now.leader == broker_id:
            yield RoleChange(RoleAction.LEAD, after, index, now)
        elif now.leader != NO_LEADER:
            yield RoleChange(RoleAction.FOLLOW, after, index, now)
        elif was is not None:
            yield RoleChange(RoleAction.STOP, after, index, now)


class ClusterImage:
    """Brokers by id, topics by name (in the order of their names when it was read), names by topic id.

    It changes by deltas, at the cost of what a delta names. `version` grows with each change, so that data derived
    from the image can be cached until the next one. The parts (`TopicImage` and the rest) are immutable.
    """

    __slots__ = ("_by_metric_name", "brokers", "cluster_id", "controller_id", "topic_names", "topics", "version")

    def __init__(
        self,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: Mapping[int, BrokerImage] | None = None,
        topics: Mapping[str, TopicImage] | None = None,
        version: int = 0,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: Mapping[int, BrokerImage] = brokers if brokers is not None else {}
        self.version = version - 1
        self.topics: dict[str, TopicImage] = {}
        self.topic_names: dict[UUID, str] = {}
        #: Topics by their names in metrics, which have `_` for `.`.
        self._by_metric_name: dict[str, dict[str, None]] = {}
        self.apply(ImageDelta(tuple(TopicDelta(None, topic) for topic in (topics or {}).values())))

    def apply(self, delta: ImageDelta) -> None:
        """Apply a change to the image."""
        if delta.brokers is not None:
            self.brokers = delta.brokers
        if delta.controller_id is not None:
            self.controller_id = delta.controller_id
        for before, after in delta.topics:
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._remove(before)
            if after is not None:
                self._put(after)
        self.version += 1

    def _remove(self, topic: TopicImage) -> None:
        self.topics.pop(topic.name, None)
        self.topic_names.pop(topic.topic_id, None)
        metric_name = metric_name_of(topic.name)
        same = self._by_metric_name.get(metric_name, {})
        same.pop(topic.name, None)
        if not same:
            self._by_metric_name.pop(metric_name, None)

    def _put(self, topic: TopicImage) -> None:
        self.topics[topic.name] = topic
        self.topic_names[topic.topic_id] = topic.name
        self._by_metric_name.setdefault(metric_name_of(topic.name), {})[topic.name] = None

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """A partition's state; None if the partition does not exist."""
        topic = self.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def delta_of_states(self, changed: Mapping[tuple[str, int], PartitionImage]) -> ImageDelta:
        """The change from this image to these states of partitions; topics that are gone are left out."""
        by_topic: dict[str, dict[int, PartitionImage]] = {}
        for (name, index), after in changed.items():
            by_topic.setdefault(name, {})[index] = after
        deltas = []
        for name, states in by_topic.items():
            topic = self.topics.get(name)
            if topic is not None:
                partitions = tuple(states.get(index, old) for index, old in enumerate(topic.partitions))
                deltas.append(self.delta_of(name, topic._replace(partitions=partitions)))
        return ImageDelta(tuple(deltas))

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether the cluster has this partition, on whatever brokers."""
        known = self.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def delta_of(self, name: str, after: TopicImage | None) -> TopicDelta:
        """The delta from the topic's present state to `after`."""
        return TopicDelta(self.topics.get(name), after)

    def topics_of_metric_name(self, name: str) -> list[str]:
        """The topics whose metrics would have the same names as those of topic `name`, itself included."""
        return list(self._by_metric_name.get(metric_name_of(name), ()))


def metric_name_of(topic: str) -> str:
    """A topic's name as it appears in names of metrics."""
    return topic.replace(".", "_")
