"""State shared by the parts of the controller, and the outcomes it waits for."""

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
    """Ignore an outcome."""
    return []


class ControllerState:
    """State shared by the parts of the controller, each of which handles its own kind of events."""

    def __init__(self, broker_id: int, config: BrokerConfig) -> None:
        self.broker_id = broker_id
        self.config = config
        #: The controller's epoch while elected, else 0.
        self.epoch = 0
        self.now_ms = 0
        #: The cluster as this controller last published it to its broker.
        self.image = ClusterImage()
        self.live: Mapping[int, LiveBroker] = {}
        #: Versions of the state znodes written more than once.
        self.versions: dict[PartitionKey, int] = {}
        #: Topics whose deletion is under way.
        self.deleting: set[str] = set()
        #: Replicas in failed log directories, by broker.
        self.offline: dict[int, set[PartitionKey]] = {}
        self._last_id = 0
        self.writes: dict[int, OnWritten] = {}
        self.notices: dict[int, OnNotified] = {}
        #: Topics with a change under way, and the events queued behind it.
        self.busy: dict[str, deque[Event]] = {}
        #: Handles an event that was queued.
        self.resume: Callable[[Event], list[Effect]] = nothing

    def write(self, changes: Iterable[MetadataChange], then: OnWritten) -> list[Effect]:
        """Change znodes; `then` handles the outcome."""
        self._last_id += 1
        self.writes[self._last_id] = then
        return [Write(self._last_id, self.epoch, tuple(changes))]

    def notify(self, delta: ImageDelta, then: OnNotified = nothing) -> list[Effect]:
        """Change the image and have this broker apply it."""
        self._last_id += 1
        self.notices[self._last_id] = then
        self.image.apply(delta)
        return [Notify(self._last_id, self.broker_id, delta)]

    def delta(self, name: str, after: TopicImage | None) -> ImageDelta:
        """The change of one topic."""
        return ImageDelta((self.image.delta_of(name, after),))

    def begin(self, name: str) -> None:
        """Mark a change of the topic as under way."""
        self.busy[name] = deque()

    def end(self, name: str, effects: list[Effect]) -> list[Effect]:
        """End the change of a topic and handle the events queued behind it."""
        waiting = self.busy.pop(name, None)
        while waiting:
            effects.extend(self.resume(waiting.popleft()))
            if name in self.busy:
                self.busy[name].extend(waiting)
                break
        return effects

    def must_wait(self, name: str, event: Event) -> bool:
        """Queue the event and return True if a change of its topic is under way."""
        waiting = self.busy.get(name)
        if waiting is not None:
            waiting.append(event)
        return waiting is not None

    def forget_outcomes(self) -> None:
        """Ignore the outcomes of the former term's writes: a new term begins."""
        self.writes.clear()
        self.notices.clear()
        self.busy.clear()
        self.versions.clear()

    def note_versions(self, changes: Iterable[MetadataChange]) -> None:
        """Update the versions of written state znodes."""
        for change in changes:
            if isinstance(change, PutState):
                self.versions[change.topic, change.partition] = change.version + 1

    def version(self, topic: str, partition: int) -> int:
        """The partition epoch: the data version of the state znode."""
        return self.versions.get((topic, partition), 0)

    def offline_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """The brokers whose replica of the partition is in a failed log directory."""
        return tuple(broker_id for broker_id, keys in self.offline.items() if (topic, partition) in keys)

    def has_offline(self, name: str) -> bool:
        """Whether any replica of the topic is in a failed log directory."""
        return any(topic == name for keys in self.offline.values() for topic, _ in keys)


def why(outcome: Written) -> str:
    """The reason why a write failed."""
    return outcome.refusal.message if outcome.refusal is not None else "the metadata could not be written"
