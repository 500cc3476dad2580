"""The state of a group: its data and queries. Its behaviour is in `ottla.groups.classic.machine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.assign.consumer_protocol import PROTOCOL_TYPE, Malformed, decode_assignment, decode_subscription
from ottla.deadlines import Deadlines
from ottla.groups.classic.membership import GroupMembers, GroupMemberState
from ottla.groups.classic.states import RULES, CommitRule, GroupState
from ottla.groups.events import (
    UNKNOWN_MEMBER,
    JoinedMember,
    JoinResult,
    OffsetCommit,
    Protocols,
    Reply,
    Step,
    SyncResult,
)
from ottla.groups.evidence import Cause, CauseEntry, RebalanceRecorder, owned_partitions
from ottla.groups.offsets import StoredOffsets, TopicPartition
from ottla.groups.records import GroupMetadataMember, GroupMetadataValue, GroupRecord, StoredOffset
from ottla.wire.errors import ErrorCode

STORY_LIMIT = 64

#: Names of the group's own deadlines; all others are member ids, which never begin with a space.
JOIN = " join"
SYNC = " sync"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The settings of a group (`group.…`, `offset.metadata.max.bytes`); times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096


class Group:
    """One group of the classic protocol. `partition` is its partition of the offsets topic."""

    __slots__ = (
        "_initial_remaining_ms",
        "_loaded_at_ms",
        "_new_member_added",
        "_partition_changes",
        "_recorder",
        "_story",
        "deadlines",
        "entered",
        "generation_id",
        "group_id",
        "is_registered",
        "limits",
        "members",
        "offsets",
        "partition",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "rules",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, partition: int, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.partition = partition
        self.limits = limits
        self.state = GroupState.EMPTY
        self.rules = RULES[self.state]
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        #: When the state was entered; None if the log does not say (old records).
        self.state_timestamp_ms: int | None = None
        self.members = GroupMembers()
        self.offsets = StoredOffsets(group_id)
        #: Whether it stays until it is deleted or expires, even if nothing would be lost with it.
        self.is_registered = False
        self.deadlines: Deadlines[str] = Deadlines()
        #: Members of the generation that have not sent SyncGroup yet.
        self.pending_sync: set[str] = set()
        #: Subscribed topics of the generation's consumers; None if unknown.
        self.subscribed_topics: frozenset[str] | None = None
        #: While the first members join: how much longer the initial delay may be extended.
        self._initial_remaining_ms: int | None = None
        self._new_member_added = False
        #: States entered since the shell last took them, the latest last.
        self.entered: deque[GroupState] = deque(maxlen=STORY_LIMIT)
        self._story: deque[tuple[int, str]] = deque(maxlen=STORY_LIMIT)
        self._recorder: RebalanceRecorder | None = None
        self._partition_changes: dict[str, Cause] = {}
        self._loaded_at_ms: int | None = None

    def story(self) -> str:
        """The latest events, the newest last."""
        lines = [f"group {self.group_id!r}: {self.state.value}, generation {self.generation_id}"]
        lines += [f"  {at_ms} {text}" for at_ms, text in self._story]
        return "\n".join(lines)

    @property
    def committed(self) -> Mapping[TopicPartition, StoredOffset]:
        """Its committed offsets."""
        return self.offsets.committed

    @property
    def is_blank(self) -> bool:
        """Whether the group could be dropped without any loss that a client would notice."""
        return (
            self.state is GroupState.EMPTY
            and not self.is_registered
            and self.generation_id == 0
            and not self.members.pending
            and not self.offsets
        )

    def _has_room_for(self, member_id: str) -> bool:
        """Check `group.max.size`. During a join the first to join count, since the group may be too large."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or self.members.joining < self.limits.max_size
        return member is not None or len(self.members) < self.limits.max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self.members.supports(protocols)

    def _join_result(self, member: GroupMemberState) -> JoinResult:
        is_leader = self.members.leader == member.member_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.members.leader or "",
            members=self._joined_members(self.members) if is_leader else (),
        )

    def _joined_members(self, members: Iterable[GroupMemberState]) -> list[JoinedMember]:
        name = self.protocol_name
        return [JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in members]

    def _sync_result(self, member: GroupMemberState) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _answer_parked(self, members: Iterable[GroupMemberState], error: ErrorCode, step: Step) -> None:
        """Answer the parked requests of these members with an error."""
        for member in members:
            token = self.members.take_join(member)
            if token is not None:
                member_id = UNKNOWN_MEMBER if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
                step.replies.append(Reply(token, JoinResult(error, member_id)))
            if member.sync_token is not None:
                step.replies.append(Reply(member.sync_token, SyncResult(error)))
                member.sync_token = None

    def _remove_member(self, member: GroupMemberState, step: Step) -> None:
        self._answer_parked([member], ErrorCode.UNKNOWN_MEMBER_ID, step)
        self.deadlines.cancel(member.member_id)
        self.members.remove(member.member_id)

    def _drop_pending(self, member_id: str) -> None:
        if member_id in self.members.pending:
            self.members.pending.discard(member_id)
            self.deadlines.cancel(member_id)

    def _renew_session(self, member: GroupMemberState, now_ms: int) -> None:
        self.deadlines.set(member.member_id, now_ms + member.session_timeout_ms)

    def _commit_refusal(self, event: OffsetCommit, now_ms: int) -> ErrorCode | None:
        """Why a commit is refused, if it is; renews the session of a member that may commit.

        A transactional one renews none, and may come while the group rebalances: its producer is fenced otherwise. One
        that names no member (it is older than KIP-447) is accepted in every state.
        """
        member_id, instance, generation_id = event.member_id, event.group_instance_id, event.generation_id
        empty = self.state is GroupState.EMPTY
        if generation_id < 0 and (empty or (member_id == UNKNOWN_MEMBER and instance is None)):
            # An admin tool, or a consumer without group management; neither may commit to a group with members.
            return None if empty or event.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._identity_error(member_id, instance)
        if error is not None:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if event.is_transactional:
            return None
        rule = self.rules.commit
        if rule is CommitRule.REBALANCE_IN_PROGRESS:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members.get(member_id)
        if rule is CommitRule.ACCEPT_AND_RENEW and member is not None:
            self._renew_session(member, now_ms)
        return None

    def _expired_offsets(self, retention_ms: int, now_ms: int) -> list[TopicPartition]:
        """Expired offsets (KIP-211): by the time since the group is empty or, without subscribers, since the commit."""
        if self.protocol_type is not None and self.state is GroupState.EMPTY:
            return self.offsets.expired(now_ms, retention_ms, self.state_timestamp_ms)
        if self.protocol_type is None:
            return self.offsets.expired(now_ms, retention_ms)
        if self.protocol_type == PROTOCOL_TYPE and self.subscribed_topics is not None:
            return self.offsets.expired(now_ms, retention_ms, subscribed=self.subscribed_topics)
        return []

    def _generation_record(
        self, members: Iterable[GroupMemberState], leader: str | None, assignments: dict[str, bytes]
    ) -> GroupRecord:
        name = self.protocol_name
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=name,
            leader=leader,
            current_state_timestamp=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                GroupMetadataMember(
                    member_id=m.member_id,
                    group_instance_id=m.group_instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata(name),
                    assignment=assignments[m.member_id],
                )
                for m in members
            ],
        )
        return GroupRecord(self.group_id, value)

    def _empty_record(self, now_ms: int) -> GroupRecord:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        )
        return GroupRecord(self.group_id, value)

    def _restore(self, value: GroupMetadataValue) -> None:
        """Loading: replace the group's state by that of this record."""
        self.members = GroupMembers()
        for written in value.members:
            rebalance_ms = written.rebalance_timeout if written.rebalance_timeout >= 0 else written.session_timeout
            self.members.add(
                GroupMemberState(
                    written.member_id,
                    written.group_instance_id,
                    written.client_id,
                    written.client_host,
                    rebalance_ms,
                    written.session_timeout,
                    ((value.protocol or "", written.subscription),),
                    written.assignment,
                )
            )
        if value.leader is not None and value.leader in self.members:
            self.members.leader = value.leader
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol if value.members else None
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.rules = RULES[self.state]
        self.state_timestamp_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.subscribed_topics = self._subscribed_topics()

    def _enter(self, state: GroupState, now_ms: int) -> None:
        assert state in self.rules.exits, f"no way from {self.state.value} to {state.value}\n{self.story()}"
        self._note(now_ms, f"{self.state.value} -> {state.value}, generation {self.generation_id}")
        self.state = state
        self.rules = RULES[state]
        self.entered.append(state)
        self.state_timestamp_ms = now_ms

    def _note(self, now_ms: int, text: str) -> None:
        self._story.append((now_ms, text))

    def _static_member(self, group_instance_id: str) -> GroupMemberState | None:
        member_id = self.members.static_member_id(group_instance_id)
        return None if member_id is None else self.members.get(member_id)

    def _is_to_give_up(self, member: GroupMemberState) -> bool:
        """Whether the assignment takes partitions from a cooperative member that has not rejoined without them yet.

        Until it does, the assignor assigns them to no other member (KIP-429).
        """
        if self.protocol_type != PROTOCOL_TYPE:
            return False
        subscription = decode_subscription(member.metadata(self.protocol_name))
        assignment = decode_assignment(member.assignment)
        if isinstance(subscription, Malformed) or isinstance(assignment, Malformed):
            return False
        assigned, owned = assignment.partitions, subscription.owned_partitions
        return any(index not in assigned.get(topic, ()) for topic, indexes in owned.items() for index in indexes)

    def _identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
        """Check that this is a member, with its current id."""
        if group_instance_id is not None:
            current = self.members.static_member_id(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members:
            subscription = decode_subscription(member.metadata(self.protocol_name))
            if isinstance(subscription, Malformed):
                return None
            topics.update(subscription.topics)
        return frozenset(topics)

    def _open_recorder(self, step: Step, now_ms: int) -> None:
        self._close_recorder(step, now_ms)
        protocol_type = self.protocol_type or ""
        self._recorder = RebalanceRecorder(
            self.group_id,
            protocol_type,
            self.generation_id,
            now_ms,
            {m.identity: owned_partitions(protocol_type, m.assignment) for m in self.members},
        )
        if self._loaded_at_ms is not None:
            longest = max((member.session_timeout_ms for member in self.members), default=0)
            if now_ms - self._loaded_at_ms <= longest:
                self._recorder.add_cause(CauseEntry(Cause.COORDINATOR_MOVED, self._loaded_at_ms))
            self._loaded_at_ms = None

    def _close_recorder(self, step: Step, now_ms: int) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            generation = self.generation_id
            if self.state is GroupState.PREPARING_REBALANCE:
                generation += 1
            step.notes.append(recorder.close(generation, self.protocol_name, self.members.leader, self.members, now_ms))
