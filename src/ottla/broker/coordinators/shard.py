"""What the runtime asks of the state machines that it hosts, and of the kind of coordinator that they belong to.

These are protocols, since the machines are pure and know nothing of their shell. Source: Apache Kafka 3.9,
`CoordinatorShard`, `CoordinatorShardBuilder`, `CoordinatorPlayback`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from logging import Logger
from typing import Any, Protocol, TypeVar, runtime_checkable

from ottla.records.control import TransactionMarker
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode


class CoordinatorBatch(Protocol):
    """Records to be appended together. `producer_id` is -1 where they are not part of a transaction."""

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
    """The answer for whoever waits at `token`, a `Callable[[result], None]`."""

    @property
    def token(self) -> object:
        """Called with the result."""
        ...

    @property
    def result(self) -> Any:
        """The answer, of the kind's own type."""
        ...


class CoordinatorStep(Protocol):
    """What an event led to: batches to append; replies to give and requests to send when those are committed."""

    @property
    def batches(self) -> Sequence[CoordinatorBatch]:
        """Appended and replayed in this order."""
        ...

    @property
    def replies(self) -> Sequence[CoordinatorReply]:
        """Given when everything that the shard has appended is committed."""
        ...

    @property
    def requests(self) -> Sequence[BrokerRequest]:
        """Sent when everything that the shard has appended is committed."""
        ...


Step = TypeVar("Step", bound=CoordinatorStep)
StepIn = TypeVar("StepIn", bound=CoordinatorStep, contravariant=True)
Shard = TypeVar("Shard", bound="CoordinatorShard[Any]")


class CoordinatorShard(Protocol[Step]):
    """The state machines of one partition of the coordinator's topic.

    Events come to it as its kind likes; the runtime carries out the steps that they lead to.
    """

    partition: int
    loading: bool
    """Whether it is being loaded; the runtime gives it no deadlines then, and the kind no events."""

    def append_failed(self, step: Step, error: ErrorCode, now_ms: int) -> Step:
        """The event that the batches of `step` are not in the log."""
        ...

    def settle(self, step: Step) -> None:
        """`step` was carried out: note the next deadlines."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When `expire` wants to be called, None for never."""
        ...

    def expire(self, now_ms: int) -> Step | None:
        """The step of one deadline that is due, None when there is none left."""
        ...

    def replay(self, record: Any, log_offset: int, producer_id: int = -1) -> None:
        """Take up a record that is in the log; `producer_id` is that of a transaction, -1 for none."""
        ...

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        """Take up the control record at `log_offset` that ends a transaction."""
        ...

    def committed(self, high_watermark: int) -> None:
        """Records below `high_watermark` are committed."""
        ...

    def loaded(self, now_ms: int) -> Iterator[Step]:
        """The log has been replayed to its end; each step is carried out like any other."""
        ...

    def unload(self, now_ms: int) -> Iterator[Step]:
        """Leadership is gone; of these steps only the replies are given."""
        ...


@runtime_checkable
class RequestingShard(CoordinatorShard[Step], Protocol):
    """A shard whose steps may hold requests to other brokers."""

    def request_done(self, outcome: BrokerOutcome, now_ms: int) -> Step:
        """The event that one of its requests was answered, or never will be."""
        ...


class ShardState(Enum):
    """Whether a partition of the coordinator's topic is served here."""

    ABSENT = auto()
    """Another broker leads it, or none does."""
    LOADING = auto()
    """This broker leads it and replays its log."""
    ACTIVE = auto()
    """It is served."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """Why a record of the log is not replayed; `is_damage` is False for records that newer versions may write."""

    message: str
    is_damage: bool


class CoordinatorKind(Protocol[Shard, StepIn]):
    """What is particular to one kind of coordinator: its topic, the form of its records, what it counts and logs."""

    topic: str
    log: Logger

    def new_shard(self, partition: int) -> Shard:
        """An empty shard, loading."""
        ...

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record as they are appended. Raises WireError or struct.error for what has no form."""
        ...

    def decode(self, key: bytes | None, value: bytes | None) -> Any | UnreadableRecord:
        """A record as it lies in the log."""
        ...

    def failed_result(self, result: Any, error: ErrorCode) -> Any:
        """What a reply turns into when its batches are lost or not committed in time."""
        ...

    def carried_out(self, shard: Shard, step: StepIn) -> None:
        """A step is in the log and replayed, its replies not given yet."""
        ...

    def unloaded(self, step: StepIn) -> None:
        """A step of a shard that is no longer served."""
        ...

    def state_changed(self, partition: int, before: ShardState, now: ShardState) -> None:
        """A partition was taken up, is loaded, or was given up."""
        ...


class BrokerRequests(Protocol):
    """Sends requests to other brokers."""

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        """Send it, find its destination first where that is a partition; call `done` once."""
        ...
