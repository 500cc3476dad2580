"""What goes into the controller's state machine and what comes out of it (`cluster.controller`).

Changes of znodes are named by what they mean; the shell (`broker.control.metadata_writes`) knows paths and JSON. Each
`Write` is a transaction that fails where another controller was elected, or several where it is large.
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
    """A registered broker. The epoch is the czxid of its registration: a larger one is another life of it."""

    image: BrokerImage
    epoch: int


class FoundPartitionState(NamedTuple):
    """A partition as its znodes have it. `version` is that of the state znode, -1 where there is none yet."""

    replicas: tuple[int, ...]
    leader: int = -1
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    version: int = -1


class FoundTopic(NamedTuple):
    """A topic as its znodes have it. `topic_id` is the znode's; where that has none, `new_id` is to be given to it."""

    name: str
    topic_id: UUID | None
    new_id: UUID
    partitions: tuple[FoundPartitionState, ...]
    configs: Mapping[str, str]
    is_internal: bool


# Events: what has become of the cluster


class Elected(NamedTuple):
    """The broker is the controller now. `brokers` and `topics` were read after the election.

    `applied` has the topics as the broker has applied them before.
    """

    epoch: int
    brokers: Mapping[int, LiveBroker]
    topics: Sequence[FoundTopic]
    applied: ClusterImage


class Resigned(NamedTuple):
    """The broker is no controller any more."""


class BrokersChanged(NamedTuple):
    """The brokers that are registered now."""

    brokers: Mapping[int, LiveBroker]


class TopicsFound(NamedTuple):
    """Others have made topics, or added partitions, or the outcome of a write was not known and was read back."""

    topics: Sequence[FoundTopic]


class DeletionsMarked(NamedTuple):
    """The topics that are marked for deletion now, all of them."""

    names: Sequence[str]


class DeletionMarked(NamedTuple):
    """One topic is marked for deletion."""

    name: str


class ConfigsChanged(NamedTuple):
    """A topic has other settings of its own; whoever changed them has written them."""

    name: str
    configs: Mapping[str, str]


class ReplicasOffline(NamedTuple):
    """The log directory of these replicas of a broker has failed."""

    broker_id: int
    partitions: Sequence[PartitionKey]


# Events: what is asked. `token` comes back with the answer.


class TopicAsked(NamedTuple):
    """Make a topic. The answer is a `CreatedTopic` or a refusal."""

    token: int
    spec: TopicSpec
    chance: Chance
    topic_id: UUID
    validate_only: bool = False


class PartitionsAsked(NamedTuple):
    """Bring a topic to this number of partitions."""

    token: int
    name: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeletionAsked(NamedTuple):
    """Delete a topic with its logs."""

    token: int
    name: str


class ElectionAsked(NamedTuple):
    """Make the preferred replicas leaders of these partitions, where they are alive and in sync."""

    token: int
    partitions: Sequence[PartitionKey]


class ReassignmentAsked(NamedTuple):
    """Give these partitions other replicas. Needs replication, so that it is refused but where nothing changes."""

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
    """Why a write was not done."""

    REFUSED = "refused"
    """It is known not to be done."""
    UNKNOWN = "unknown"
    """The answer was lost: the znodes have to be read back."""
    EXISTS = "exists"
    """Something that it makes is there already."""


class Written(NamedTuple):
    """The outcome of a `Write`: done where `failure` is None; then `refusal` says it in words for clients."""

    write_id: int
    failure: WriteFailure | None = None
    refusal: TopicRefusal | None = None


class Notified(NamedTuple):
    """The outcome of a `Notify`: the broker has applied it where `refusal` is None."""

    notify_id: int
    refusal: TopicRefusal | None = None


class TimerFired(NamedTuple):
    """The time of a `SetTimer` has come."""

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
    """Make a topic with its settings, replicas and states."""

    topic: TopicImage


class AddPartitions(NamedTuple):
    """Add the partitions of `topic` from `existing` on."""

    topic: TopicImage
    existing: int


class RemovePartitions(NamedTuple):
    """Take an `AddPartitions` back: `topic` is what stays of `grown`."""

    topic: TopicImage
    grown: TopicImage


class AssignTopicId(NamedTuple):
    """Give a topic that has none an id."""

    topic: TopicImage


class PutState(NamedTuple):
    """Write a partition's state, on condition that its znode has this version; -1: there is none, and it is made."""

    topic: str
    partition: int
    state: PartitionImage
    version: int


class MarkDeletion(NamedTuple):
    """Mark a topic for deletion, so that an interrupted deletion is finished."""

    name: str


class UnmarkDeletion(NamedTuple):
    """Take the mark away; the topic stays."""

    name: str


class DeleteTopic(NamedTuple):
    """Remove a topic's znodes, its settings, and last the mark of its deletion, as far as they are there."""

    name: str


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
    """Change znodes as the controller of this epoch; `Written` tells the outcome."""

    write_id: int
    epoch: int
    changes: tuple[MetadataChange, ...]


class Notify(NamedTuple):
    """Have a broker apply a change of the image; `Notified` tells the outcome.

    The controller's own broker does so in the process. Other brokers see the same in the znodes; with LeaderAndIsr,
    UpdateMetadata and StopReplica this becomes a request to each.
    """

    notify_id: int
    broker_id: int
    delta: ImageDelta


class ReadBack(NamedTuple):
    """Read a topic's znodes: what became of a change is not known. `TopicsFound` or `DeletionsMarked` follows."""

    name: str


class SetTimer(NamedTuple):
    """Have `TimerFired(name)` come at this time; a timer of the same name is replaced."""

    name: str
    at_ms: int


class Answer(NamedTuple):
    """The answer to what was asked with this token. None: done."""

    token: int
    result: object


class Report(NamedTuple):
    """A line for the broker's log."""

    message: str
    is_error: bool = False


Effect: TypeAlias = Write | Notify | ReadBack | SetTimer | Answer | Report


class CreatedTopic(NamedTuple):
    """A topic that was made, or with `validate_only` could be made."""

    topic: TopicImage
    log_config: LogConfig


class IsrAccepted(NamedTuple):
    """The ISR that is in force, and the partition epoch (data version of the state znode) that it has."""

    state: PartitionImage
    partition_epoch: int


class IsrRefused(NamedTuple):
    """The proposal is refused with this error of AlterPartition."""

    error_code: int


class Unapplied(NamedTuple):
    """Partitions that a request could not do anything for, and why."""

    reasons: Mapping[PartitionKey, str]
