"""What goes into a group machine and what comes out: plain data, the wire's versions already dealt with.

An event carries a `token` where somebody waits for an answer; the machine never looks at it, and gives it back in
exactly one `Reply`. Random ids (`new_id`) and wall-clock times come in with the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.evidence import Evidence
    from ottla.groups.offsets import OffsetAndMetadata
    from ottla.groups.records import LogRecord
    from ottla.wire.broker_requests import BrokerRequest

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
"""The member id of somebody who has none yet."""

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
    """From version 4 on a dynamic member is first told its id (KIP-394)."""
    can_skip_assignment: bool = False
    """From version 9 on a static leader that came back may be told to leave the assignment as it is (KIP-814)."""


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
    """One member of a LeaveGroup; an empty member id with an instance id is an administrator's removal (KIP-345)."""

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
    """OffsetCommit; `generation_id` is -1 and the member id empty where the group only keeps offsets."""

    token: object
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: Sequence[tuple[str, int, OffsetAndMetadata]]


@dataclass(slots=True)
class DeleteGroup:
    """One group of a DeleteGroups."""

    token: object
    group_id: str


@dataclass(slots=True)
class DeleteOffsets:
    """OffsetDelete: forget what is committed for these partitions (KIP-496)."""

    token: object
    group_id: str
    partitions: Sequence[tuple[str, int]]


@dataclass(slots=True)
class ExpireOffsets:
    """The expiry run: offsets past their retention go, and so does a group that is left with nothing."""

    group_id: str
    retention_ms: int


@dataclass(slots=True)
class TopicsDeleted:
    """Topics are gone, and the offsets committed for them go with them."""

    group_id: str
    topics: frozenset[str]


@dataclass(slots=True)
class PartitionsChanged:
    """The number of partitions of some topics changed (0: no such topic), which makes consumers join again."""

    group_id: str
    counts: dict[str, tuple[int, int]]
    """By topic: before and now."""


@dataclass(slots=True)
class AppendFailed:
    """The batches of the step with this id are not in the log."""

    group_id: str
    step_id: int
    error: ErrorCode


GroupRequest = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | DeleteGroup | DeleteOffsets
"""The events that somebody waits for the answer of."""

GroupEvent = GroupRequest | ExpireOffsets | TopicsDeleted | PartitionsChanged | AppendFailed


@dataclass(slots=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(slots=True)
class JoinResult:
    """Answer to JoinGroup; `members` is filled for the leader."""

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
    """Answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class LeaveResult:
    """Answer to LeaveGroup: the error of the whole, else one for each member in the order asked."""

    error: ErrorCode
    members: Sequence[tuple[LeavingMember, ErrorCode]] = ()


@dataclass(slots=True)
class CommitResult:
    """Answer to OffsetCommit: an error for each offset in the order given."""

    errors: Sequence[ErrorCode]


@dataclass(slots=True)
class DeleteOffsetsResult:
    """Answer to OffsetDelete: the error of the whole, else one for each partition in the order asked."""

    error: ErrorCode
    errors: Sequence[ErrorCode] = ()


@dataclass(slots=True)
class ErrorResult:
    """Answer that is but an error code (heartbeat, delete)."""

    error: ErrorCode


Result = JoinResult | SyncResult | LeaveResult | CommitResult | DeleteOffsetsResult | ErrorResult


@dataclass(slots=True)
class Reply:
    """The answer for whoever waits at `token`; sent when the batches of its step are committed."""

    token: object
    result: Result


@dataclass(slots=True)
class Batch:
    """Records to be appended together, to a partition of the offsets topic."""

    partition: int
    records: Sequence[LogRecord]
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(slots=True)
class Step:
    """What one event led to: batches to append, then answers to give, evidence to keep.

    `id` is unique within the group's machine; it names the step in `AppendFailed`.
    """

    id: int
    group_id: str
    batches: list[Batch] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    notes: list[Evidence] = field(default_factory=list)
    requests: Sequence[BrokerRequest] = ()
    """To other brokers; groups ask none yet."""
