"""What the controller knows, and the outcomes that it waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ottla.cluster.controller_events import (
    Effect,
    Event,
    LiveBroker,
    MetadataChange,
    Notified,
    Notify,
    PartitionKey,
    PutState,
    Write,
    Written,
)
from ottla.cluster.image import ClusterImage, ImageDelta, TopicImage

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

OnWritten: TypeAlias = Callable[[Written], list[Effect]]
OnNotified: TypeAlias = Callable[[Notified], list[Effect]]


def nothing(_: object) -> list[Effect]:
    """Nothing follows from an outcome."""
    return []


class ControllerState:
    """Shared by the parts of the controller, each of which decides for its kind of events."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self.broker_id = broker_id
        self.config = config
        #: The controller's epoch while elected, else 0.
        self.epoch = 0
        self.now_ms = 0
        #: The cluster as this controller has told it to its broker.
        self.image = ClusterImage()
        self.live: Mapping[int, LiveBroker] = {}
        #: Versions of the state znodes that were written more than once.
        self.versions: dict[PartitionKey, int] = {}
        #: Topics whose deletion has begun and not ended.
        self.deleting: set[str] = set()
        #: Replicas in log directories that have failed, by broker.
        self.offline: dict[int, set[PartitionKey]] = {}
        self._last_id = 0
        self.writes: dict[int, OnWritten] = {}
        self.notices: dict[int, OnNotified] = {}
        #: Topics with a change under way, and the events that wait for its end.
        self.busy: dict[str, deque[Event]] = {}
        #: Handles an event that had to wait.
        self.resume: Callable[[Event], list[Effect]] = nothing

    def write(self, changes: Iterable[MetadataChange], then: OnWritten) -> list[Effect]:
        """Change znodes; `then` says what follows from the outcome."""
        self._last_id += 1
        self.writes[self._last_id] = then
        return [Write(self._last_id, self.epoch, tuple(changes))]

    def notify(self, delta: ImageDelta, then: OnNotified = nothing) -> list[Effect]:
        """Change the image, and have this broker apply it."""
        self._last_id += 1
        self.notices[self._last_id] = then
        self.image.apply(delta)
        return [Notify(self._last_id, self.broker_id, delta)]

    def delta(self, name: str, after: TopicImage | None) -> ImageDelta:
        """The change of one topic."""
        return ImageDelta((self.image.delta_of(name, after),))

    def begin(self, name: str) -> None:
        """A change of the topic is under way."""
        self.busy[name] = deque()

    def end(self, name: str, effects: list[Effect]) -> list[Effect]:
        """The change of a topic is over: what waited for that has its turn."""
        waiting = self.busy.pop(name, None)
        while waiting:
            effects.extend(self.resume(waiting.popleft()))
            if name in self.busy:
                self.busy[name].extend(waiting)
                break
        return effects

    def must_wait(self, name: str, event: Event) -> bool:
        """Whether the event has to wait for the end of a change of its topic; it is kept then."""
        waiting = self.busy.get(name)
        if waiting is not None:
            waiting.append(event)
        return waiting is not None

    def forget_outcomes(self) -> None:
        """Another term begins: what comes of writes of the former one does not matter."""
        self.writes.clear()
        self.notices.clear()
        self.busy.clear()
        self.versions.clear()

    def note_versions(self, changes: Iterable[MetadataChange]) -> None:
        """These states were written."""
        for change in changes:
            if isinstance(change, PutState):
                self.versions[change.topic, change.partition] = change.version + 1

    def version(self, topic: str, partition: int) -> int:
        """The partition epoch: the data version of the state znode."""
        return self.versions.get((topic, partition), 0)

    def offline_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """The brokers whose replica of the partition lies in a log directory that has failed."""
        return tuple(broker_id for broker_id, keys in self.offline.items() if (topic, partition) in keys)

    def has_offline(self, name: str) -> bool:
        """Whether a replica of the topic does."""
        return any(topic == name for keys in self.offline.values() for topic, _ in keys)


def why(outcome: Written) -> str:
    """The reason of a write that was not done."""
    return outcome.refusal.message if outcome.refusal is not None else "the metadata could not be written"
