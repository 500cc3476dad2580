"""Faults of consumer groups, judged from what coordinators and leaders answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.groups import EMPTY, GroupDescription
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import TopicStatus
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.ops.doctor.topics import deletes_by_time
from ottla.ops.group_lag import GroupLag
from ottla.ops.health.findings import ids
from ottla.ops.rebalances import RebalanceRecord

Topics = Mapping[str, TopicStatus]

STABLE: Final = "Stable"
REBALANCING: Final = frozenset(("PreparingRebalance", "CompletingRebalance"))
NEAR_RETENTION: Final = 0.8
"""The part of retention.ms from which unread records are as good as deleted."""
SLOW_REBALANCE_MS: Final = 30_000
FREQUENT_REBALANCES, WITHIN_MS = 5, 600_000
"""That many rebalances within that time are too many."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group at one moment; `rebalances` are its last ones, oldest first, as far as brokers record them."""

    group: GroupDescription
    lag: GroupLag
    rebalances: Sequence[RebalanceRecord] = ()

    @property
    def name(self) -> str:
        """The group for a row."""
        return f"group {self.group.group_id}"

    @property
    def is_rebalancing(self) -> bool:
        """Whether it rebalances now."""
        return self.group.state in REBALANCING

    @property
    def waits(self) -> bool:
        """Whether it has members and records to read."""
        return bool(self.group.members) and self.lag.lag > 0

    @property
    def is_left(self) -> bool:
        """Whether it has records to read and no members."""
        return self.group.state == EMPTY and self.lag.lag > 0

    @property
    def subscribed(self) -> list[str]:
        """Topics of the subscriptions of a stable group."""
        if self.group.state != STABLE:
            return []
        return sorted({topic for member in self.group.members for topic in member.subscribed_topics})

    def committed_as(self, before: GroupFacts) -> bool:
        """Whether the committed offsets are those of the look before."""
        committed = [{each.partition: each.committed_offset for each in look.lag.partitions} for look in (before, self)]
        return committed[0] == committed[1]


def group_faults(
    now: GroupFacts, before: GroupFacts | None, topics: Topics, former: Topics, at_ms: int
) -> Iterator[DoctorFault]:
    """All faults of a group; `before` is an earlier look, when `former` topics were there; this one is of `at_ms`."""
    if before is not None:
        yield from assignments(now, before, topics, former)
    yield from lag_without_members(now, before)
    yield from offsets(now)
    yield from near_retention(now, topics)
    yield from rebalances(now, before, at_ms)
    yield from progress(now, before)


def missing_topics(facts: GroupFacts, topics: Topics) -> list[str]:
    """Topics that members of a stable group subscribe to and that are not there."""
    return [each for each in facts.subscribed if each not in topics]


def unassigned(facts: GroupFacts, topics: Topics) -> list[TopicPartition]:
    """Partitions that no member of a stable group has."""
    assigned = {each for member in facts.group.members for each in member.partitions}
    there = [one.partition for name in facts.subscribed if name in topics for one in topics[name].partitions]
    return [each for each in there if each not in assigned]


def assignments(now: GroupFacts, before: GroupFacts, topics: Topics, former: Topics) -> Iterator[DoctorFault]:
    """Topics that are not there, and partitions that no member has, at both looks."""
    was_missing, was_left = missing_topics(before, former), unassigned(before, former)
    if missing := [each for each in missing_topics(now, topics) if each in was_missing]:
        yield fault(
            FaultKind.TOPIC_MISSING,
            now.name,
            f"its members subscribe to {ids(missing)}, which does not exist",
            f"Create it with `ottla topic create {missing[0]}`, or correct the name in the consumers.",
        )
    if left := [each for each in unassigned(now, topics) if each in was_left]:
        yield fault(
            FaultKind.UNASSIGNED_PARTITIONS,
            now.name,
            f"no member has {ids(left)}",
            "Restart its members, or have one leave, so that it rebalances; if it stays, their assignor or "
            "subscriptions differ: `ottla group describe` shows who has what.",
        )


def lag_without_members(now: GroupFacts, before: GroupFacts | None) -> Iterator[DoctorFault]:
    """Records that nothing reads: no members, and no commit since the look before."""
    if before is not None and now.is_left and before.is_left and now.committed_as(before):
        yield fault(
            FaultKind.LAG_WITHOUT_MEMBERS,
            now.name,
            f"it has no members and {now.lag.lag:,} records to read, and committed nothing between two looks",
            "Start its consumers. Those that use assign() never appear as members: see whether one runs before you "
            "change the group.",
        )


def offsets(now: GroupFacts) -> Iterator[DoctorFault]:
    """Committed offsets that the log does not have."""
    reset = f"`ottla group reset-offsets {now.group.group_id}` moves it while its members are stopped"
    if missed := [each for each in now.lag.partitions if each.missed]:
        number = sum(each.missed for each in missed)
        yield fault(
            FaultKind.OFFSET_OUT_OF_RANGE,
            now.name,
            f"records that it had not read were deleted ({number:,}): its offsets are before the start of the log in "
            f"{ids([each.partition for each in missed])}",
            f"Its consumers continue as auto.offset.reset says; {reset}. Raise retention.ms of the topic, or consume "
            "faster.",
        )
    if beyond := [each for each in now.lag.partitions if each.is_beyond_end]:
        yield fault(
            FaultKind.OFFSET_BEYOND_END,
            now.name,
            f"its offsets are beyond the end of the log in {ids([each.partition for each in beyond])}",
            f"The topic was made again, or lost records; {reset}.",
        )


def near_retention(now: GroupFacts, topics: Topics) -> Iterator[DoctorFault]:
    """Unread records that are nearly as old as their topic keeps them."""
    of_group = {each.partition.topic for each in now.lag.partitions}
    kept = {name: deletes_by_time(topics[name]) for name in of_group & topics.keys()}
    near = [
        each.partition
        for each in now.lag.partitions
        if (ms := kept.get(each.partition.topic)) is not None and each.lag and (each.lag_ms or 0) > NEAR_RETENTION * ms
    ]
    if near:
        topic = near[0].topic
        yield fault(
            FaultKind.LAG_NEAR_RETENTION,
            now.name,
            f"what it has not read in {ids(near)} is older than {NEAR_RETENTION:.0%} of retention.ms={kept[topic]}",
            f"Keep records longer with `ottla topic alter {topic} --config retention.ms=…`, and add consumers.",
        )


def rebalances(now: GroupFacts, before: GroupFacts | None, at_ms: int) -> Iterator[DoctorFault]:
    """Rebalances that do not end, are slow or frequent."""
    why = f"`ottla group why {now.group.group_id}` names the members and causes"
    if now.is_rebalancing and before is not None and before.is_rebalancing:
        yield fault(
            FaultKind.STUCK_REBALANCE,
            now.name,
            f"it is in {now.group.state} at two looks, so that its members read nothing",
            "See which member does not poll: it is awaited for max.poll.interval.ms; restart it, or lower this.",
        )
    if not now.rebalances:
        return
    last = int(now.rebalances[-1].value["duration_ms"])
    if last > SLOW_REBALANCE_MS:
        yield fault(
            FaultKind.SLOW_REBALANCE,
            now.name,
            f"its last rebalance took {last / 1000:,.0f} s",
            f"{why}; a member that polls rarely is awaited: lower max.poll.records or max.poll.interval.ms.",
        )
    lately = [each for each in now.rebalances if each.started_at_ms > at_ms - WITHIN_MS]
    if len(lately) >= FREQUENT_REBALANCES:
        yield fault(
            FaultKind.FREQUENT_REBALANCES,
            now.name,
            f"it rebalanced at least {len(lately)} times within {WITHIN_MS // 60_000} minutes",
            f"{why}; give members group.instance.id if they restart, or a longer session.timeout.ms if they pause.",
        )


def progress(now: GroupFacts, before: GroupFacts | None) -> Iterator[DoctorFault]:
    """A group that has members and lag, and has committed nothing since the look before."""
    if before is None or not (now.waits and before.waits) or now.is_rebalancing:
        return
    if now.committed_as(before):
        seconds = (now.lag.ended_at_ms - before.lag.ended_at_ms) / 1000
        yield fault(
            FaultKind.NO_PROGRESS,
            now.name,
            f"it has members and {now.lag.lag:,} records to read, and committed nothing within {seconds:,.0f} s",
            "See the logs of its members: a record may fail again and again, or they never commit; a longer --interval "
            "tells slow ones from stuck ones.",
        )
