"""The interfaces of the state machines that the runtime hosts, of the kind of coordinator that they belong to, and of
the broker around them.

These are protocols, since the state machines are pure and do not know their shell. Source: Apache Kafka 3.9,
`CoordinatorShard`, `CoordinatorShardBuilder`, `CoordinatorPlayback`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from logging import Logger
from typing import Any, Protocol, TypeVar, runtime_checkable

from ottla.cluster.image import ClusterImage
from ottla.cluster.refusal import TopicRefusal
from ottla.records.control import TransactionMarker
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode


class CoordinatorBatch(Protocol):
    """Records to be appended together. `producer_id` is -1 if they are not part of a transaction."""

    @property
    def records(self) -> Sequence[Any]:
        """The records, of the kind's own type."""
        ...

    @property
    def producer_id(self) -> int:
        """The transaction's producer id."""
        ...

    @property
    def producer_epoch(self) -> int:
        """The transaction's producer epoch."""
        ...


class CoordinatorReply(Protocol):
    """The reply to a caller; `token` is its `Callable[[result], None]`."""

    @property
    def token(self) -> object:
        """Called with the result."""

    @property
    def result(self) -> Any:
        """The result, of the kind's own type."""
        ...


class CoordinatorStep(Protocol):
    """The outcome of an event: batches to append; replies and requests to send when those are committed."""

    @property
    def batches(self) -> Sequence[CoordinatorBatch | TransactionMarker]:
        """Appended and replayed in this order; a marker is appended as a control batch."""

    @property
    def replies(self) -> Sequence[CoordinatorReply]:
        """Delivered when everything that the shard has appended is committed."""

    @property
    def requests(self) -> Sequence[BrokerRequest]:
        """Sent when everything that the shard has appended is committed."""


Step = TypeVar("Step", bound=CoordinatorStep)
StepIn = TypeVar("StepIn", bound=CoordinatorStep, contravariant=True)
Shard = TypeVar("Shard", bound="CoordinatorShard[Any]")


class CoordinatorShard(Protocol[Step]):
    """The state machines of one partition of the coordinator's topic.

    The kind passes events to it; the runtime carries out the resulting steps.
    """

    partition: int
    loading: bool
    """Whether it is being loaded; until then it gets neither deadlines nor events."""

    def append_failed(self, step: Step, error: ErrorCode, now_ms: int) -> Step:
        """Handle the failure to append the batches of `step`."""

    def settle(self, step: Step) -> None:
        """Note the next deadlines after `step` was carried out."""

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next; None for never."""

    def expire(self, now_ms: int) -> Step | None:
        """The step of one passed deadline; None if there is none left."""

    def replay(self, record: Any, log_offset: int, producer_id: int = -1) -> None:
        """Apply a record of the log; `producer_id` is that of its transaction, -1 for none."""

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        """Apply the control record at `log_offset`, which ends a transaction once it is committed."""

    def committed(self, high_watermark: int) -> None:
        """Note that records below `high_watermark` are committed."""

    def lead(self, coordinator_epoch: int, now_ms: int) -> Iterator[Step]:
        """Note the leader epoch of the partition, before it is loaded and whenever the same leader enters a newer one.

        Each step is carried out like any other; there are none while it is being loaded.
        """

    def loaded(self, now_ms: int) -> Iterator[Step]:
        """Finish loading: the log has been replayed. Each step is carried out like any other."""

    def unload(self, now_ms: int) -> Iterator[Step]:
        """Resign after the loss of leadership; only the replies of these steps are delivered."""


@runtime_checkable
class RequestingShard(CoordinatorShard[Step], Protocol):
    """A shard whose steps may contain requests to other brokers."""

    def request_done(self, outcome: BrokerOutcome, now_ms: int) -> Step:
        """Handle the response to one of its requests, or its failure."""


class ShardState(Enum):
    """Whether this broker serves a partition of the coordinator's topic."""

    ABSENT = auto()
    """The partition is led elsewhere, or has no leader."""
    LOADING = auto()
    """This broker leads it and replays its log."""
    ACTIVE = auto()
    """This broker serves the partition."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """Why a record of the log is not replayed; `is_damage` is False for records of newer versions."""

    message: str
    is_damage: bool


class CoordinatorKind(Protocol[Shard, StepIn]):
    """The specifics of one kind of coordinator: topic, record format, counters, logging."""

    topic: str
    log: Logger

    def new_shard(self, partition: int) -> Shard:
        """An empty shard, loading."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record in the log. Raises WireError or struct.error if it cannot be encoded."""

    def decode(self, key: bytes | None, value: bytes | None) -> Any | UnreadableRecord:
        """Decode a record of the log."""
        ...

    def failed_result(self, result: Any, error: ErrorCode) -> Any:
        """The result of a reply whose batches are lost or not committed in time."""

    def carried_out(self, shard: Shard, step: StepIn) -> None:
        """Called when a step is in the log and replayed, before its replies are delivered."""

    def unloaded(self, step: StepIn) -> None:
        """Called for a step of a shard that is not served any more."""

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        """Called when the state of a partition changes."""


class Topics(Protocol):
    """The part of `ottla.broker.control.cluster_admin.ClusterAdmin` that coordinators need."""

    @property
    def image(self) -> ClusterImage:
        """The present image of the cluster."""
        ...

    async def ensure_topic(self, name: str) -> TopicRefusal | None:
        """Create an internal topic unless it exists."""


class BrokerRequests(Protocol):
    """Sends requests to other brokers."""

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        """Send a request, first looking up the leader if its destination is a partition; call `done` once, later."""

    def close(self) -> None:
        """End; what is not answered has no outcome any more."""
