"""A whole examination: what is asked of a cluster, and all faults that are seen in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.partitions import PartitionAdmin
from ottla.client.errors import ClientError
from ottla.client.groups import DEAD, GroupDescription, Groups
from ottla.client.model import MAX_TIMESTAMP, TopicPartition
from ottla.ops.cluster_status import TopicStatus
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.ops.doctor.groups import FREQUENT_REBALANCES, GroupFacts, group_faults, missing_topics, unassigned
from ottla.ops.doctor.topics import TOPIC_SETTINGS, dated_by_brokers, deletes_by_time, topic_faults
from ottla.ops.group_lag import measure_lag, readable_lag
from ottla.ops.health.facts import HealthFacts, Scrape, lagging, read_health_facts
from ottla.ops.health.findings import ClusterFinding, HealthLevel, ids, named
from ottla.ops.health.judging import judge
from ottla.ops.health.partitions import OFFSETS_TOPIC
from ottla.ops.rebalances import RebalanceLog
from ottla.peer.cluster import Cluster

GROUPS_AT_A_TIME: Final = 16
MOST_TIMESTAMPS: Final = 2000
"""Partitions whose largest timestamp is asked for."""


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """A cluster at one moment; `unanswered` says by group why its coordinator did not answer."""

    health: HealthFacts
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    unanswered: Mapping[str, str] = field(default_factory=dict)
    newest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    at_ms: int = 0
    missing: Sequence[str] = ()
    """Groups that were named and are not there."""

    @property
    def topics(self) -> dict[str, TopicStatus]:
        """The topics by name."""
        return {each.name: each for each in self.health.status.topics}

    @property
    def needs_another_look(self) -> bool:
        """Whether one look cannot say that something makes progress."""
        topics = self.topics
        return any(
            each.is_rebalancing
            or each.waits
            or each.is_left
            or missing_topics(each, topics)
            or unassigned(each, topics)
            for each in self.groups.values()
        ) or any(each.adding or each.removing or lagging(each) for each in self.health.status.partitions)


async def read_doctor_facts(
    cluster: Cluster, scrape: Scrape | None, groups: Sequence[str] | None = None
) -> DoctorFacts:
    """Ask all brokers, about these groups or all of them. Raises ClientError where the cluster does not answer."""
    health = await read_health_facts(cluster, scrape, TOPIC_SETTINGS)
    if groups is None:
        described, unanswered = await _all(cluster)
    elif any(each.name == OFFSETS_TOPIC for each in health.status.topics):
        described, unanswered = await _described(cluster, groups)
    else:  # to look for a coordinator would create the topic; or it may not be seen
        listed, unanswered = await _all(cluster)
        described = [each for each in listed if each.group_id in groups]
    there = {each.group_id for each in described if each.state != DEAD}
    missing = [each for each in groups or () if not unanswered.keys() & {each, "all"} and each not in there]
    log = RebalanceLog(cluster)
    is_recorded = bool(described) and await log.is_there()
    turns = asyncio.Semaphore(GROUPS_AT_A_TIME)
    found: dict[str, GroupFacts] = {}

    async def ask(group: GroupDescription) -> None:
        assigned = [each for member in group.members for each in member.partitions]
        try:
            async with turns:
                lag = await readable_lag(cluster, await measure_lag(cluster, group.group_id, assigned))
                last = await log.last(group.group_id, FREQUENT_REBALANCES) if is_recorded else ()
            found[group.group_id] = GroupFacts(group, lag, last)
        except ClientError as error:
            unanswered[group.group_id] = str(error)

    await asyncio.gather(*map(ask, described))
    return DoctorFacts(
        health,
        {each.group_id: found[each.group_id] for each in described if each.group_id in found},
        unanswered,
        await _newest(cluster, health),
        cluster.clock.now_ms(),
        missing,
    )


async def _all(cluster: Cluster) -> tuple[list[GroupDescription], dict[str, str]]:
    """All groups, or why they could not be listed."""
    try:
        return await Groups(cluster).list_all(), {}
    except ClientError as error:
        return [], {"all": str(error)}


async def _described(cluster: Cluster, groups: Sequence[str]) -> tuple[list[GroupDescription], dict[str, str]]:
    """Groups, and why the coordinators of others did not answer."""
    unanswered = {}
    found = []
    for name, each in zip(
        groups, await asyncio.gather(*map(Groups(cluster).find, groups), return_exceptions=True), strict=True
    ):
        if isinstance(each, ClientError):
            unanswered[name] = str(each)
        elif isinstance(each, BaseException):
            raise each
        else:
            found.append(each)
    return found, unanswered


async def _newest(cluster: Cluster, health: HealthFacts) -> dict[TopicPartition, int]:
    """Largest timestamps of partitions that brokers delete by time or date; nothing where they cannot say them."""
    wanted = [
        each.partition
        for topic in health.status.topics
        if deletes_by_time(topic) is not None or dated_by_brokers(topic)
        for each in topic.partitions
        if not each.is_offline
    ]
    if not wanted:
        return {}
    try:
        found = await PartitionAdmin(cluster).list_offsets(dict.fromkeys(wanted[:MOST_TIMESTAMPS], MAX_TIMESTAMP))
    except ClientError:
        return {}
    return {partition: each.timestamp for partition, each in found.items()}


def cluster_faults(now: DoctorFacts, before: DoctorFacts | None = None) -> list[DoctorFault]:
    """All faults of health, topics and groups: a function of the facts alone."""
    findings = judge(now.health, None if before is None else before.health)
    found = [_of_finding(each) for each in findings if each.kind.level > HealthLevel.NOTICE]
    found += topic_faults(now.health, now.newest_ms, now.at_ms)
    groups, topics = ({}, {}) if before is None else (before.groups, before.topics)
    there = now.topics
    for name, each in now.groups.items():
        found += group_faults(each, groups.get(name), there, topics, now.at_ms)
    for name, problem in now.unanswered.items():
        found.append(
            fault(
                FaultKind.GROUP_UNANSWERED,
                f"group {name}",
                problem,
                "See whether __consumer_offsets has leaders (`ottla topic describe __consumer_offsets`), and restart "
                "the broker that coordinates it if it hangs.",
            )
        )
    return found


def _of_finding(each: ClusterFinding) -> DoctorFault:
    places = (
        ids(each.partitions) if each.partitions else named("broker", each.brokers, verb=False) if each.brokers else ""
    )
    return DoctorFault(each.kind.slug, places or "cluster", each.what, each.cure)
