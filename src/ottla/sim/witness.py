"""Invariants of a group, checked by its log and its responses, independently of the group state machine."""

from __future__ import annotations

from ottla.assign.consumer_protocol import Malformed, decode_assignment
from ottla.groups.events import (
    CommitResult,
    ErrorResult,
    GroupRequest,
    Heartbeat,
    JoinResult,
    LeaveResult,
    OffsetCommit,
    Result,
    SyncGroup,
    SyncResult,
)
from ottla.groups.records import GroupMetadataValue, GroupRecord, LogRecord
from ottla.wire.errors import ErrorCode

_SIGNS_OF_LIFE = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


class Wrong(AssertionError):
    """An invariant was violated; the message says which, with the group's latest events."""


class Witness:
    """Checks every record and every response of one group; raises Wrong. Times in milliseconds.

    A member counts as silent once its session timeout has passed since its session was last renewed: by a response to
    it, the beginning of a generation, a written assignment, or a coordinator that loaded the log.
    """

    def __init__(self) -> None:
        #: Members that joined the current generation, by their ids.
        self.joined: frozenset[str] = frozenset()
        self._generation = 0
        self._logged_generation = 0
        self._members: dict[str, int] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._heard_ms: dict[str, int] = {}
        self._all_heard_ms = 0

    def logged(self, record: LogRecord, now_ms: int) -> None:
        """Check a record that was appended."""
        if not isinstance(record, GroupRecord):
            return
        if record.value is None:
            self._logged_generation, self._members, self._owners = 0, {}, {}
        else:
            self._generation_logged(record.value, now_ms)

    def _generation_logged(self, value: GroupMetadataValue, now_ms: int) -> None:
        if value.generation < self._logged_generation:
            raise Wrong(f"generation {value.generation} is written after {self._logged_generation}")
        owners: dict[tuple[str, int], str] = {}
        for member in value.members:
            assignment = decode_assignment(member.assignment)
            if isinstance(assignment, Malformed):
                raise Wrong(f"the assignment of {member.member_id}: {assignment.message}")
            for partition in ((topic, one) for topic, indexes in assignment.partitions.items() for one in indexes):
                other = owners.setdefault(partition, member.member_id)
                if other != member.member_id:
                    raise Wrong(f"generation {value.generation} gives {partition} to {other} and {member.member_id}")
        self._owners = owners
        self._members = {member.member_id: member.session_timeout for member in value.members}
        self._generation = self._logged_generation = value.generation
        self._all_are_heard(now_ms)

    def loaded(self, now_ms: int) -> None:
        """A coordinator has read the log; generations that were not in it are void."""
        self._generation = self._logged_generation
        self._all_are_heard(now_ms)

    def answered(self, request: GroupRequest, result: Result, now_ms: int) -> None:
        """Check the response to a request."""
        if isinstance(result, JoinResult) and result.error is ErrorCode.NONE:
            self._join_answered(result, now_ms)
        elif isinstance(request, OffsetCommit) and isinstance(result, CommitResult):
            self._commit_answered(request, result, now_ms)
        elif isinstance(result, LeaveResult):
            for leaving, error in result.members:
                if error is ErrorCode.NONE:
                    self._members.pop(leaving.member_id, None)
        elif isinstance(result, SyncResult | ErrorResult) and result.error in _SIGNS_OF_LIFE:
            assert isinstance(request, SyncGroup | Heartbeat)
            if isinstance(request, Heartbeat):
                self._check_silence(request.member_id, "the heartbeat", now_ms)
            self._heard_ms[request.member_id] = now_ms

    def _join_answered(self, result: JoinResult, now_ms: int) -> None:
        if result.generation_id < self._generation:
            raise Wrong(f"generation {result.generation_id} begins after {self._generation}")
        if result.generation_id > self._generation:
            self._generation = result.generation_id
            self.joined = frozenset()
            self._all_are_heard(now_ms)
        self.joined |= {result.member_id}
        self._heard_ms[result.member_id] = now_ms

    def _commit_answered(self, request: OffsetCommit, result: CommitResult, now_ms: int) -> None:
        member_id = request.member_id
        taken = [
            (topic, partition)
            for (topic, partition, _), error in zip(request.offsets, result.errors, strict=True)
            if error is ErrorCode.NONE
        ]
        if not taken:
            return
        if member_id not in self._members:
            raise Wrong(f"the commit of {member_id}, which is not a member, was taken")
        if request.generation_id != self._generation:
            raise Wrong(f"a commit of generation {request.generation_id} was taken in {self._generation}")
        for partition in taken:
            if self._owners.get(partition, member_id) != member_id:
                raise Wrong(f"the commit of {member_id} for {partition}, {self._owners[partition]}'s, was taken")
        self._check_silence(member_id, "the commit", now_ms)
        self._heard_ms[member_id] = now_ms

    def _check_silence(self, member_id: str, what: str, now_ms: int) -> None:
        heard_ms = max(self._heard_ms.get(member_id, 0), self._all_heard_ms)
        if member_id in self._members and now_ms > heard_ms + self._members[member_id]:
            raise Wrong(f"{what} of {member_id} was taken at {now_ms}, last heard of at {heard_ms}")

    def _all_are_heard(self, now_ms: int) -> None:
        self._all_heard_ms = now_ms
        self._heard_ms.clear()
