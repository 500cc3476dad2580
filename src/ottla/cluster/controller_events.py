"""Events and effects of the controller's state machine (`cluster.controller`).

Changes of znodes are named by their meaning; the shell (`broker.control.metadata_writes`) knows paths and JSON. Each
`Write` is a transaction that fails if another controller was elected; a large one is divided into several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec
from ottla.config.topic import LogConfig

PartitionKey: TypeAlias = tuple[str, int]
"""Topic and partition."""


class LiveBroker(NamedTuple):
    """A registered broker. The epoch is the czxid of its registration: a larger one means that it has restarted."""

    image: BrokerImage
    epoch: int


class FoundPartitionState(NamedTuple):
    """A partition as read from its znodes. `version` is that of the state znode, -1 if there is none yet."""

    replicas: tuple[int, ...]
    leader: int = -1
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    version: int = -1


class FoundTopic(NamedTuple):
    """A topic as read from its znodes. `topic_id` is the znode's; a topic without one gets `new_id`."""

    name: str
    topic_id: UUID | None
    new_id: UUID
    partitions: tuple[FoundPartitionState, ...]
    configs: Mapping[str, str]
    is_internal: bool


# Events: changes of the cluster


class Elected(NamedTuple):
    """The broker is the controller now. `brokers` and `topics` were read after the election.

    `applied` are the topics that the broker has applied before.
    """

    epoch: int
    brokers: Mapping[int, LiveBroker]
    topics: Sequence[FoundTopic]
    applied: ClusterImage


class Resigned(NamedTuple):
    """The broker is not the controller any more."""


class BrokersChanged(NamedTuple):
    """The brokers that are registered now."""

    brokers: Mapping[int, LiveBroker]


class TopicsFound(NamedTuple):
    """Others have created topics or added partitions, or a topic was read back after a write of unknown outcome."""

    topics: Sequence[FoundTopic]


class DeletionsMarked(NamedTuple):
    """All topics that are marked for deletion now."""

    names: Sequence[str]


class DeletionMarked(NamedTuple):
    """One topic is marked for deletion."""

    name: str


class ConfigsChanged(NamedTuple):
    """The settings of a topic have changed; they are written already."""

    name: str
    configs: Mapping[str, str]


class ReplicasOffline(NamedTuple):
    """A log directory with these replicas of a broker has failed."""

    broker_id: int
    partitions: Sequence[PartitionKey]


# Events: requests. `token` comes back with the answer.


class TopicAsked(NamedTuple):
    """Create a topic. The answer is a `TopicCreated` or a refusal."""

    token: int
    spec: TopicSpec
    chance: Chance
    topic_id: UUID
    validate_only: bool = False


class PartitionsAsked(NamedTuple):
    """Increase a topic's partitions to this number."""

    token: int
    name: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeletionAsked(NamedTuple):
    """Delete a topic with its logs; with `topic_id` only that one, and not a later one of the same name."""

    token: int
    name: str
    topic_id: UUID | None = None


class ElectionAsked(NamedTuple):
    """Elect the preferred replicas of these partitions where they are alive and in sync."""

    token: int
    partitions: Sequence[PartitionKey]


class ReassignmentAsked(NamedTuple):
    """Reassign partitions to other replicas. Refused unless nothing changes, since it needs replication."""

    token: int
    wanted: Mapping[PartitionKey, tuple[int, ...]]


class IsrProposed(NamedTuple):
    """The leader of a partition proposes another ISR (KIP-497, AlterPartition)."""

    token: int
    broker_id: int
    broker_epoch: int
    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# Events: outcomes of effects


class WriteFailure(Enum):
    """Why a write failed."""

    REFUSED = "refused"
    """It is known not to have been done."""
    UNKNOWN = "unknown"
    """The response was lost: the znodes have to be read back."""
    EXISTS = "exists"
    """A node to be created exists already."""


class Written(NamedTuple):
    """The outcome of a `Write`: success if `failure` is None; otherwise `refusal` is the error for clients."""

    write_id: int
    failure: WriteFailure | None = None
    refusal: TopicRefusal | None = None


class Notified(NamedTuple):
    """The outcome of a `Notify`: applied by the broker if `refusal` is None."""

    notify_id: int
    refusal: TopicRefusal | None = None


class TimerFired(NamedTuple):
    """The deadline of a `SetTimer` has passed."""

    name: str


Event: TypeAlias = (
    Elected
    | Resigned
    | BrokersChanged
    | TopicsFound
    | DeletionsMarked
    | DeletionMarked
    | ConfigsChanged
    | ReplicasOffline
    | TopicAsked
    | PartitionsAsked
    | DeletionAsked
    | ElectionAsked
    | ReassignmentAsked
    | IsrProposed
    | Written
    | Notified
    | TimerFired
)


# Effects: changes of znodes


class CreateTopic(NamedTuple):
    """Create a topic with its settings, replicas and partition states."""

    topic: TopicImage


class AddPartitions(NamedTuple):
    """Add the partitions of `topic` numbered `existing` and above."""

    topic: TopicImage
    existing: int


class RemovePartitions(NamedTuple):
    """Undo an `AddPartitions`: reduce `grown` to `topic`."""

    topic: TopicImage
    grown: TopicImage


class AssignTopicId(NamedTuple):
    """Assign an id to a topic that has none."""

    topic: TopicImage


class PutState(NamedTuple):
    """Write a partition's state if its znode has this version; -1 creates the znode."""

    topic: str
    partition: int
    state: PartitionImage
    version: int


class MarkDeletion(NamedTuple):
    """Mark a topic for deletion, so that an interrupted deletion is finished."""

    name: str


class UnmarkDeletion(NamedTuple):
    """Remove the deletion mark; the topic stays."""

    name: str


class DeleteTopic(NamedTuple):
    """Remove a topic's znodes and its settings, where they exist, and last its deletion mark.

    Without the mark nothing is removed: that deletion has ended, and a topic of this name is a later one. A topic whose
    creation is undone has no mark (`is_marked` is false).
    """

    name: str
    is_marked: bool = True


MetadataChange: TypeAlias = (
    CreateTopic
    | AddPartitions
    | RemovePartitions
    | AssignTopicId
    | PutState
    | MarkDeletion
    | UnmarkDeletion
    | DeleteTopic
)


# Effects


class Write(NamedTuple):
    """Change znodes as the controller of this epoch; `Written` reports the outcome."""

    write_id: int
    epoch: int
    changes: tuple[MetadataChange, ...]


class Notify(NamedTuple):
    """Have a broker apply a change of the image; `Notified` reports the outcome.

    The controller's own broker does so in the process. Other brokers read the same from the znodes; with LeaderAndIsr,
    UpdateMetadata and StopReplica this becomes a request to each.
    """

    notify_id: int
    broker_id: int
    delta: ImageDelta


class ReadBack(NamedTuple):
    """Read a topic's znodes after a write of unknown outcome. `TopicsFound` or `DeletionsMarked` follows."""

    name: str


class SetTimer(NamedTuple):
    """Request `TimerFired(name)` at this time; replaces a timer of the same name."""

    name: str
    at_ms: int


class Answer(NamedTuple):
    """The answer to the request with this token. None means success."""

    token: int
    result: object


class Report(NamedTuple):
    """A line for the broker's log."""

    message: str
    is_error: bool = False


Effect: TypeAlias = Write | Notify | ReadBack | SetTimer | Answer | Report


class TopicCreated(NamedTuple):
    """A topic that was created, or with `validate_only` could be created."""

    topic: TopicImage
    log_config: LogConfig


class IsrAccepted(NamedTuple):
    """The ISR in force and its partition epoch (data version of the state znode)."""

    state: PartitionImage
    partition_epoch: int


class IsrRefused(NamedTuple):
    """The proposal is refused with this AlterPartition error."""

    error_code: int


class Unapplied(NamedTuple):
    """Partitions for which a request failed, with the reasons."""

    reasons: Mapping[PartitionKey, str]
