"""Events and effects of the group state machine: plain data, independent of the request versions.

An event has a `token` if a client waits for the response; the state machine never looks at it, and returns it in
exactly one `Reply`. Random ids (`new_id`) and wall-clock times are part of the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.evidence import Evidence
    from ottla.groups.records import LogRecord, StoredOffset
    from ottla.wire.broker_requests import BrokerRequest

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
"""The member id of a client that has none yet."""

Protocols = tuple[tuple[str, bytes], ...]
"""The protocols (assignors) that a member supports, best first, with its metadata for each."""


@dataclass(slots=True)
class JoinGroup:
    """JoinGroup. `rebalance_timeout_ms` is the session timeout for version 0; `new_id` is random, used if needed."""

    token: object
    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_id: str
    reason: str | None = None
    requires_member_id: bool = False
    """From version 4 on a dynamic member first gets its id (KIP-394)."""
    can_skip_assignment: bool = False
    """From version 9 on a rejoining static leader can be asked to skip the assignment (KIP-814)."""


@dataclass(slots=True)
class SyncGroup:
    """SyncGroup; `assignments` is the leader's. Protocol type and name are None before version 5."""

    token: object
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Heartbeat:
    """Heartbeat."""

    token: object
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(slots=True)
class LeavingMember:
    """One member of a LeaveGroup; an empty member id with an instance id is a removal by an administrator (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class LeaveGroup:
    """LeaveGroup."""

    token: object
    group_id: str
    members: Sequence[LeavingMember]


@dataclass(slots=True)
class OffsetCommit:
    """OffsetCommit; `generation_id` is -1 and the member id empty if the group is used for offsets only.

    With a producer id it is TxnOffsetCommit: the offsets are pending until the producer's transaction ends.
    """

    token: object
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: Sequence[tuple[str, int, StoredOffset]]
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def is_transactional(self) -> bool:
        """Whether the offsets are part of a transaction."""
        return self.producer_id >= 0


@dataclass(slots=True)
class DeleteGroup:
    """One group of a DeleteGroups."""

    token: object
    group_id: str


@dataclass(slots=True)
class DeleteOffsets:
    """OffsetDelete: delete the committed offsets of these partitions (KIP-496)."""

    token: object
    group_id: str
    partitions: Sequence[tuple[str, int]]


@dataclass(slots=True)
class ExpireOffsets:
    """The expiry run: delete expired offsets, and the group if it has nothing left."""

    group_id: str
    retention_ms: int


@dataclass(slots=True)
class TopicsDeleted:
    """Topics were deleted, and the offsets committed for them are deleted too."""

    group_id: str
    topics: frozenset[str]


@dataclass(slots=True)
class PartitionsChanged:
    """The number of partitions of some topics changed (0: no such topic), so that consumers will rejoin."""

    group_id: str
    counts: dict[str, tuple[int, int]]
    """By topic: old and new number."""


@dataclass(slots=True)
class RequestRebalance:
    """Ask all members to rejoin, for no reason of the group's own; nothing happens in a group without members."""

    group_id: str
    reason: str | None = None


@dataclass(slots=True)
class ExpireMember:
    """End the session of a member now, whatever it waits for; an unknown member is ignored."""

    group_id: str
    member_id: str


@dataclass(slots=True)
class AppendFailed:
    """The append of the step with this id failed."""

    group_id: str
    step_id: int
    error: ErrorCode


GroupRequest = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | DeleteGroup | DeleteOffsets
"""The events that have a response."""

GroupEvent = (
    GroupRequest | ExpireOffsets | TopicsDeleted | PartitionsChanged | RequestRebalance | ExpireMember | AppendFailed
)


@dataclass(slots=True)
class JoinedMember:
    """A member in the leader's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinResult:
    """Response to JoinGroup; `members` is set for the leader."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


@dataclass(slots=True)
class SyncResult:
    """Response to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class LeaveResult:
    """Response to LeaveGroup: a top-level error, else one for each member in request order."""

    error: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


@dataclass(slots=True)
class CommitResult:
    """Response to OffsetCommit: an error for each offset in request order."""

    errors: Sequence[ErrorCode]


@dataclass(slots=True)
class DeleteOffsetsResult:
    """Response to OffsetDelete: a top-level error, else one for each partition in request order."""

    error: ErrorCode
    errors: Sequence[ErrorCode] = ()


@dataclass(slots=True)
class ErrorResult:
    """Response with an error code only (heartbeat, delete)."""

    error: ErrorCode


Result = JoinResult | SyncResult | LeaveResult | CommitResult | DeleteOffsetsResult | ErrorResult


@dataclass(slots=True)
class Reply:
    """The response to the request with this `token`; sent when the batches of its step are committed."""

    token: object
    result: Result


@dataclass(slots=True)
class Batch:
    """Records to append together to a partition of the offsets topic."""

    partition: int
    records: Sequence[LogRecord]
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class Step:
    """Effects of one event: batches to append, then responses to send, and evidence to record.

    `id` is unique within the group's state machine; it names the step in `AppendFailed`.
    """

    id: int
    group_id: str
    batches: list[Batch] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    notes: list[Evidence] = field(default_factory=list)
    requests: Sequence[BrokerRequest] = ()
    """Requests to other brokers; groups send none yet."""
