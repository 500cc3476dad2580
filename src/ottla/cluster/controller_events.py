"""Events and effects of the controller's state machine (`cluster.controller`).

Changes of znodes are named by their meaning; the shell (`broker.control.metadata_writes`) knows paths and JSON. Each
`Write` is a transaction that fails if another controller was elected; a large one is divided into several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.cluster.control_batches import ControlRequest
from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec
from ottla.config.topic import LogConfig

PartitionKey: TypeAlias = tuple[str, int]
"""Topic and partition."""


class LiveBroker(NamedTuple):
    """A registered broker. The epoch is the czxid of its registration: a larger one means that it has restarted.

    `former_epoch` is that of the registration before, if this broker saw it end; else -1.
    """

    image: BrokerImage
    epoch: int
    former_epoch: int = -1


class ReplicaMove(NamedTuple):
    """A reassignment under way (KIP-455): of the partition's replicas, those that are added and those that are removed.

    Its replicas are all of them, the target ones first. Source: `ReplicaAssignment`.
    """

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class FoundPartitionState(NamedTuple):
    """A partition as read from its znodes. `version` is that of the state znode, -1 if there is none yet."""

    replicas: tuple[int, ...]
    leader: int = -1
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    version: int = -1
    #: Whether the leader was elected uncleanly and has not recovered yet (`leader_recovery_state`).
    is_recovering: bool = False
    #: The reassignment under way, as the topic's znode says.
    move: ReplicaMove = ReplicaMove()
    #: The transaction that wrote the state znode last (its mzxid); -1 if it does not matter.
    written_zxid: int = -1


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

    `applied` are the topics that the broker has applied before, `marked` those marked for deletion. `gone` are topics
    of the broker's image that have no znodes any more, and of which it has no logs.
    """

    epoch: int
    brokers: Mapping[int, LiveBroker]
    topics: Sequence[FoundTopic]
    applied: ClusterImage
    marked: Sequence[str] = ()
    gone: Sequence[TopicImage] = ()


class Resigned(NamedTuple):
    """The broker is not the controller any more."""


class BrokersChanged(NamedTuple):
    """The brokers that are registered now."""

    brokers: Mapping[int, LiveBroker]


class TopicsFound(NamedTuple):
    """Others have created topics or added partitions, or a topic was read back after a write of unknown outcome.

    `missing` are names that have no znode.
    """

    topics: Sequence[FoundTopic]
    missing: Sequence[str] = ()


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


class UncleanElectionsChanged(NamedTuple):
    """The brokers' default of `unclean.leader.election.enable` has changed."""


class ReplicasOffline(NamedTuple):
    """A log directory with these replicas of a broker has failed."""

    broker_id: int
    partitions: Sequence[PartitionKey]


class LogDirsFailed(NamedTuple):
    """Log directories of these brokers have failed (`/log_dir_event_notification`): which replicas, they answer."""

    broker_ids: Sequence[int]


# Events: responses of brokers


class LeaderAndIsrAnswered(NamedTuple):
    """A broker has applied a LeaderAndIsr: which replicas are online, and which are in a failed log directory."""

    broker_id: int
    broker_epoch: int
    online: Sequence[PartitionKey]
    offline: Sequence[PartitionKey]


class DeletionAnswered(NamedTuple):
    """A broker has deleted replicas (StopReplica), or failed to delete them."""

    broker_id: int
    broker_epoch: int
    deleted: Sequence[PartitionKey]
    failed: Sequence[PartitionKey] = ()


class StateLost(NamedTuple):
    """Requests to a broker were dropped since too many waited: it needs the whole state."""

    broker_id: int
    broker_epoch: int


# Events: requests. `token` comes back with the answer.


class TopicRequested(NamedTuple):
    """Create a topic. The answer is a `TopicCreated` or a refusal."""

    token: int
    spec: TopicSpec
    chance: Chance
    topic_id: UUID
    validate_only: bool = False


class PartitionsRequested(NamedTuple):
    """Increase a topic's partitions to this number."""

    token: int
    name: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeletionRequested(NamedTuple):
    """Delete a topic with its logs; with `topic_id` only that one, and not a later one of the same name."""

    token: int
    name: str
    topic_id: UUID | None = None


class ElectionRequested(NamedTuple):
    """Elect leaders: the preferred replicas of these partitions where they are alive and in sync.

    With `is_unclean`: any live replica, where the leader is not alive. None stands for all partitions. The answer is an
    `ElectionResult`.
    """

    token: int
    partitions: Sequence[PartitionKey] | None
    is_unclean: bool = False


class ShutdownRequested(NamedTuple):
    """A broker wants to shut down: move its leaders (ControlledShutdown). The answer is a `ShutdownProgress`.

    `broker_epoch` is -1 where the broker does not say it.
    """

    token: int
    broker_id: int
    broker_epoch: int


class ReassignmentRequested(NamedTuple):
    """Reassign partitions to other replicas; None cancels what is under way (KIP-455).

    The answer, once that has begun, is a `ReassignmentResult`. With `needs_live` brokers that are to get a replica must
    be alive; a request in the older znode waits for them.
    """

    token: int
    wanted: Mapping[PartitionKey, tuple[int, ...] | None]
    needs_live: bool = False


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
    #: Whether the leader still recovers after an unclean election (KIP-704).
    is_recovering: bool = False
    #: The registrations under which the leader knows replicas, by broker id (KIP-903); others are not checked.
    broker_epochs: Mapping[int, int] = MappingProxyType({})


class IsrsProposed(NamedTuple):
    """A leader proposes the ISRs of several partitions; the tokens of the proposals are not used.

    The answer is a tuple of results in their order.
    """

    token: int
    proposals: Sequence[IsrProposed]


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


class Continued(NamedTuple):
    """Another slice, which a `Continue` has asked for. It comes before any event that is not an outcome."""

    continuation_id: int


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
    | UncleanElectionsChanged
    | ReplicasOffline
    | LogDirsFailed
    | LeaderAndIsrAnswered
    | DeletionAnswered
    | StateLost
    | TopicRequested
    | PartitionsRequested
    | DeletionRequested
    | ElectionRequested
    | ReassignmentRequested
    | IsrProposed
    | IsrsProposed
    | ShutdownRequested
    | Written
    | Notified
    | TimerFired
    | Continued
)


# Effects: changes of znodes


class CreateTopic(NamedTuple):
    """Create a topic with its settings, replicas and partition states."""

    topic: TopicImage


class AddPartitions(NamedTuple):
    """Add the partitions of `topic` numbered `existing` and above. `moves` are its reassignments under way."""

    topic: TopicImage
    existing: int
    moves: Mapping[int, ReplicaMove] = MappingProxyType({})


class RemovePartitions(NamedTuple):
    """Undo an `AddPartitions`: reduce `grown` to `topic`."""

    topic: TopicImage
    grown: TopicImage
    moves: Mapping[int, ReplicaMove] = MappingProxyType({})


class PutAssignment(NamedTuple):
    """Write which replicas a topic has, and those that are added and removed; its id, too, where it had none.

    Partitions that are `done` are taken out of the tool's request to reassign them (`/admin/reassign_partitions`),
    those that are `replaced` by a later request whatever it wants for them.
    """

    topic: TopicImage
    moves: Mapping[int, ReplicaMove] = MappingProxyType({})
    done: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    replaced: tuple[int, ...] = ()


class PutState(NamedTuple):
    """Write a partition's state if its znode has this version; -1 creates the znode."""

    topic: str
    partition: int
    state: PartitionImage
    version: int
    is_recovering: bool = False


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
    | PutAssignment
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
    """Have the controller's own broker apply a change of the image, in the process; `Notified` reports the outcome.

    `epoch` is the controller's: another controller's roles must not be taken back.
    """

    notify_id: int
    broker_id: int
    delta: ImageDelta
    epoch: int


class SetChannels(NamedTuple):
    """The brokers to which requests can be sent from now on; the channels of others are closed."""

    brokers: Mapping[int, LiveBroker]


class SendToBroker(NamedTuple):
    """Send control requests to a broker, in this order, after those sent before. It needs the broker's channel.

    `brokers` are the live ones; `epoch` is the controller's.
    """

    broker_id: int
    broker_epoch: int
    epoch: int
    brokers: Mapping[int, BrokerImage]
    requests: tuple[ControlRequest, ...]


class ReadAll(NamedTuple):
    """Read all metadata again, since what was read when the broker was elected could not be put in order.

    `Elected` follows.
    """


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


class Continue(NamedTuple):
    """The rest of a long decision: it continues in another slice, with `Continued`."""

    continuation_id: int


Effect: TypeAlias = (
    Write | Notify | SetChannels | SendToBroker | ReadBack | ReadAll | SetTimer | Answer | Report | Continue
)


class TopicCreated(NamedTuple):
    """A topic that was created, or with `validate_only` could be created."""

    topic: TopicImage
    log_config: LogConfig


class IsrAccepted(NamedTuple):
    """The ISR in force and its partition epoch (data version of the state znode)."""

    state: PartitionImage
    partition_epoch: int
    is_recovering: bool = False


class IsrRefused(NamedTuple):
    """The proposal is refused with this AlterPartition error."""

    error_code: int


class ReassignmentResult(NamedTuple):
    """Partitions that are not reassigned, with the reasons (Kafka's errors)."""

    refusals: Mapping[PartitionKey, TopicRefusal]


class ElectionResult(NamedTuple):
    """Partitions for which no leader was elected, with the reasons (Kafka's errors)."""

    refusals: Mapping[PartitionKey, TopicRefusal]


class ShutdownProgress(NamedTuple):
    """The partitions that the broker still leads, since no other replica in sync can."""

    remaining: tuple[PartitionKey, ...]
