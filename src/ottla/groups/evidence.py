"""Evidence of rebalances: the causes and duration of each, and its effect on each member.

Each rebalance leaves one record in the internal topic `__ottla_rebalances` (key: the group id, value: the JSON below,
timestamp: when the record was closed). It is closed once every member has its SyncGroup response, or when the next
rebalance begins, whichever comes first. All times are milliseconds since the Unix epoch.

    version               1; fields may be added without a new version, none change their meaning
    group                 the group id
    protocol_type         "consumer", "connect", ...
    generation            the generation that the rebalance led to, or was to lead to
    previous_generation   the one before
    outcome               "stable"; "empty" (the last member went); "superseded" (another began before the
                          assignment was there); "failed" (the assignment could not be written)
    assignor              the protocol that was chosen, null where it did not come to that
    started_at_ms         the first cause
    joined_at_ms          the join was complete, null where it did not come to that
    stable_at_ms          the leader's assignment was written, null likewise
    duration_ms           from the first cause to the last event
    causes                [{cause, at_ms, member_id, group_instance_id, client_id, client_host, detail}]: in order;
                          cause is one of `Cause`, detail is the client's reason (its first 255 characters) or
                          null; at most 100
    cause_count           how many there were
    leader                member id of the leader, null where there is none
    members               [{member_id, group_instance_id, client_id, client_host, told_at_ms, joined_at_ms,
                          synced_at_ms, answered_at_ms, pause_ms, cooperative, partitions_before, partitions_after,
                          partitions_kept, partitions_gained, partitions_given_up}]: those in the group at the end,
                          at most 1000.
                          told_at_ms: first answered REBALANCE_IN_PROGRESS; joined_at_ms, synced_at_ms: its requests
                          came; answered_at_ms: SyncGroup was answered; null where it did not come to that.
                          pause_ms: from told_at_ms (or joined, if that was earlier) to answered; for a cooperative
                          member 0 unless it gave partitions up
    member_count          how many there were
    removed               [{member_id, group_instance_id, client_id, client_host, cause}]: those that went, at
                          most 100
    moved                 [{topic, partition, from, to}]: partitions that changed their owner, by member id; from or
                          to is null for a partition that had or has none; at most 1000
    moved_count           how many changed from one owner to another
    kept_count            how many stayed where they were
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla.assign.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Malformed,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from ottla.groups.view import MemberView

EVIDENCE_TOPIC = "__ottla_rebalances"
EVIDENCE_VERSION = 1

CAUSE_LIMIT = 100
MEMBER_LIMIT = 1000
MOVED_LIMIT = 1000
DETAIL_LIMIT = 255
"""The limit of a client's reason (KIP-800)."""

COOPERATIVE_PROTOCOL = "cooperative-sticky"
_TIMES = ("told_at_ms", "joined_at_ms", "synced_at_ms", "answered_at_ms")


class Cause(Enum):
    """Why a rebalance began or was restarted."""

    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    SESSION_EXPIRED = "session_expired"
    REBALANCE_TIMEOUT = "rebalance_timeout"
    """A member did not join again in time and was removed."""
    SYNC_TIMEOUT = "sync_timeout"
    """A member joined but did not fetch its assignment in time and was removed."""
    SUBSCRIPTION_CHANGED = "subscription_changed"
    """A member subscribed to other topics."""
    PARTITIONS_GIVEN_UP = "partitions_given_up"
    """A cooperative member revoked partitions and rejoined, so that they can be reassigned."""
    METADATA_CHANGED = "metadata_changed"
    """A member's metadata changed in some other way."""
    PARTITIONS_ADDED = "partitions_added"
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    LEADER_REJOINED = "leader_rejoined"
    """The leader asked for a rebalance for its own reasons."""
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    ASSIGNMENT_NOT_WRITTEN = "assignment_not_written"
    COORDINATOR_MOVED = "coordinator_moved"
    """The group was just loaded by its new coordinator."""
    REBALANCE_REQUESTED = "rebalance_requested"
    """A client outside the group asked for a rebalance (a test does); the detail is the reason."""
    GROUP_TOO_LARGE = "group_too_large"
    """The group was loaded with more members than `group.max.size` allows."""


@dataclass(slots=True)
class CauseEntry:
    """One cause, and the member that led to it (empty ids if there is none)."""

    cause: Cause
    at_ms: int
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A closed rebalance: `value` is the record, as described above."""

    group_id: str
    closed_at_ms: int
    value: dict[str, Any]

    def encode(self) -> bytes:
        """The record's value."""
        return json.dumps(self.value, separators=(",", ":"), ensure_ascii=False).encode()

    @property
    def summary(self) -> str:
        """One line for the log."""
        causes = self.value["causes"]
        first = causes[0] if causes else {"cause": "unknown", "member_id": ""}
        more = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
        return (
            f"group {self.group_id}: generation {self.value['generation']} {self.value['outcome']} after "
            f"{self.value['duration_ms']} ms; {first['cause']} {first['member_id']}{more}; "
            f"{self.value['member_count']} members, {self.value['moved_count']} partitions moved"
        )


@dataclass(slots=True)
class RebalanceRecorder:
    """Collects the evidence of one rebalance while it runs."""

    group_id: str
    protocol_type: str
    previous_generation: int
    started_at_ms: int
    before: dict[str, dict[tuple[str, int], None]]
    """Each member's partitions (by identity) when it began."""
    causes: list[CauseEntry] = field(default_factory=list)
    cause_count: int = 0
    removed: list[CauseEntry] = field(default_factory=list)
    times: dict[str, dict[str, int]] = field(default_factory=dict)
    """By member id: the first time of each of `_TIMES`."""
    joined_at_ms: int | None = None
    stable_at_ms: int | None = None
    outcome: str = "superseded"

    def add_cause(self, entry: CauseEntry) -> None:
        """Add the first or a further cause."""
        self.cause_count += 1
        if len(self.causes) < CAUSE_LIMIT:
            self.causes.append(entry)

    def remove(self, entry: CauseEntry) -> None:
        """Record the removal of a member."""
        if len(self.removed) < CAUSE_LIMIT:
            self.removed.append(entry)
        self.times.pop(entry.member_id, None)

    def member_notified(self, member_id: str, now_ms: int) -> None:
        """Record that a member was first answered REBALANCE_IN_PROGRESS."""
        self._first(member_id, "told_at_ms", now_ms)

    def joined(self, member_id: str, now_ms: int) -> None:
        """Record a member's JoinGroup; a repeated one does not count."""
        self._first(member_id, "joined_at_ms", now_ms)

    def synced(self, member_id: str, now_ms: int) -> None:
        """Record a member's SyncGroup."""
        self._first(member_id, "synced_at_ms", now_ms)

    def answered(self, member_id: str, now_ms: int) -> None:
        """Record that a member has its assignment."""
        self._first(member_id, "answered_at_ms", now_ms)

    def close(
        self,
        generation: int,
        protocol_name: str | None,
        leader: str | None,
        members: Iterable[MemberView],
        now_ms: int,
    ) -> Evidence:
        """The record, with the group's present members."""
        present = list(members)
        settled = self.stable_at_ms is not None
        after = {m.identity: owned_partitions(self.protocol_type, m.assignment) for m in present} if settled else {}
        names = {m.identity: m.member_id for m in present}
        names.update({entry.group_instance_id or entry.member_id: entry.member_id for entry in self.removed})
        moved = list(_moves(self.before, after, names)) if settled else []
        unmoved = sum(len(partitions.keys() & after.get(who, {}).keys()) for who, partitions in self.before.items())
        value: dict[str, Any] = {
            "version": EVIDENCE_VERSION,
            "group": self.group_id,
            "protocol_type": self.protocol_type,
            "generation": generation,
            "previous_generation": self.previous_generation,
            "outcome": self.outcome,
            "assignor": protocol_name,
            "started_at_ms": self.started_at_ms,
            "joined_at_ms": self.joined_at_ms,
            "stable_at_ms": self.stable_at_ms,
            "duration_ms": now_ms - self.started_at_ms,
            "causes": [_cause_json(entry, "at_ms", "detail") for entry in self.causes],
            "cause_count": self.cause_count,
            "leader": leader,
            "members": [self._member_json(m, protocol_name, after) for m in present[:MEMBER_LIMIT]],
            "member_count": len(present),
            "removed": [_cause_json(entry) for entry in self.removed],
            "moved": moved[:MOVED_LIMIT],
            "moved_count": sum(move["from"] is not None and move["to"] is not None for move in moved),
            "kept_count": unmoved,
        }
        return Evidence(self.group_id, now_ms, value)

    def _first(self, member_id: str, name: str, now_ms: int) -> None:
        self.times.setdefault(member_id, {}).setdefault(name, now_ms)

    def _member_json(
        self, member: MemberView, protocol_name: str | None, after: dict[str, dict[tuple[str, int], None]]
    ) -> dict[str, Any]:
        times = self.times.get(member.member_id, {})
        had = self.before.get(member.identity, {})
        has = after.get(member.identity, {})
        given_up = len(had.keys() - has.keys()) if after else 0
        cooperative = self._is_cooperative(member, protocol_name)
        return {
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            **{name: times.get(name) for name in _TIMES},
            "pause_ms": _pause_ms(times, cooperative and not given_up),
            "cooperative": cooperative,
            "partitions_before": len(had),
            "partitions_after": len(has) if after else None,
            "partitions_kept": len(had.keys() & has.keys()) if after else None,
            "partitions_gained": len(has.keys() - had.keys()) if after else None,
            "partitions_given_up": given_up if after else None,
        }

    def _is_cooperative(self, member: MemberView, protocol_name: str | None) -> bool:
        """Whether a member is cooperative: it keeps the partitions that it reports. Eager members own nothing when they
        join.
        """
        if protocol_name == COOPERATIVE_PROTOCOL:
            return True
        if protocol_name is None or self.protocol_type != PROTOCOL_TYPE:
            return False
        subscription = decode_subscription(dict(member.protocols).get(protocol_name, b""))
        return isinstance(subscription, Subscription) and bool(subscription.owned_partitions)


def owned_partitions(protocol_type: str, assignment: bytes) -> dict[tuple[str, int], None]:
    """The partitions in a member's assignment, in order; none if it cannot be parsed."""
    if protocol_type != PROTOCOL_TYPE:
        return {}
    read = decode_assignment(assignment)
    if not isinstance(read, Assignment):
        return {}
    return {(topic, index): None for topic, indexes in read.partitions.items() for index in indexes}


def rejoin_cause(protocol_type: str, before: bytes, after: bytes) -> Cause:
    """Why a member's changed metadata leads to a rebalance."""
    if protocol_type != PROTOCOL_TYPE:
        return Cause.METADATA_CHANGED
    old, new = decode_subscription(before), decode_subscription(after)
    if isinstance(old, Malformed) or isinstance(new, Malformed):
        return Cause.METADATA_CHANGED
    if set(old.topics) != set(new.topics):
        return Cause.SUBSCRIPTION_CHANGED
    was, now = _pairs(old.owned_partitions), _pairs(new.owned_partitions)
    return Cause.PARTITIONS_GIVEN_UP if was > now else Cause.METADATA_CHANGED


def partition_count_cause(before: int, now: int) -> Cause:
    """The cause for a changed number of partitions; 0 means that the topic does not exist."""
    if before == 0:
        return Cause.TOPIC_CREATED
    return Cause.TOPIC_DELETED if now == 0 else Cause.PARTITIONS_ADDED


def _pairs(partitions: dict[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def _pause_ms(times: dict[str, int], nothing_given_up: bool) -> int | None:
    begin = min((times[name] for name in ("told_at_ms", "joined_at_ms") if name in times), default=None)
    if begin is None or "answered_at_ms" not in times:
        return None
    return 0 if nothing_given_up else times["answered_at_ms"] - begin


def _moves(
    before: dict[str, dict[tuple[str, int], None]],
    after: dict[str, dict[tuple[str, int], None]],
    names: dict[str, str],
) -> Iterator[dict[str, Any]]:
    old = {partition: who for who, partitions in before.items() for partition in partitions}
    new = {partition: who for who, partitions in after.items() for partition in partitions}
    for topic, index in sorted(old.keys() | new.keys()):
        was, now = old.get((topic, index)), new.get((topic, index))
        if was != now:
            yield {
                "topic": topic,
                "partition": index,
                "from": None if was is None else names.get(was, was),
                "to": None if now is None else names.get(now, now),
            }


def _cause_json(entry: CauseEntry, *extra: str) -> dict[str, Any]:
    value: dict[str, Any] = {"cause": entry.cause.value}
    if "at_ms" in extra:
        value["at_ms"] = entry.at_ms
    value["member_id"] = entry.member_id
    value["group_instance_id"] = entry.group_instance_id
    value["client_id"] = entry.client_id
    value["client_host"] = entry.client_host
    if "detail" in extra:
        value["detail"] = None if entry.detail is None else entry.detail[:DETAIL_LIMIT]
    return value
