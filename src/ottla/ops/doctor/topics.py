"""Faults of topics and of settings that do not fit each other, judged from what brokers answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ottla.client.model import TopicPartition
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.ops.cluster_status import MIN_ISR, TopicStatus
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.ops.health.facts import HealthFacts
from ottla.ops.health.findings import ids, named
from ottla.ops.health.partitions import OFFSETS_TOPIC
from ottla.records.batch import LOG_OVERHEAD

RETENTION, CLEANUP, LARGEST, UNCLEAN, DATED_BY = (
    *("retention.ms", "cleanup.policy", "max.message.bytes"),
    *("unclean.leader.election.enable", "message.timestamp.type"),
)
TOPIC_SETTINGS: Final = (MIN_ISR, RETENTION, CLEANUP, LARGEST, UNCLEAN, DATED_BY)
"""The settings of topics that are judged here."""
OFFSETS_FACTOR: Final = "offsets.topic.replication.factor"
USUAL_FACTOR: Final = 3
FUTURE_MS: Final = 3_600_000
"""How far a record may be ahead of this machine's clock."""
CLOCK_MS: Final = 60_000
"""How far a broker's clock may be ahead of it."""


def topic_faults(facts: HealthFacts, newest_ms: Mapping[TopicPartition, int], now_ms: int) -> Iterator[DoctorFault]:
    """All faults of topics; `newest_ms` are the largest timestamps of partitions."""
    yield from single_replicas(facts)
    yield from min_isr_above_factor(facts)
    yield from offsets_topic(facts)
    yield from limits(facts)
    yield from unclean_elections(facts)
    yield from future_timestamps(facts, newest_ms, now_ms)
    yield from clocks_ahead(facts, newest_ms, now_ms)


def setting(topic: TopicStatus, name: str) -> str:
    """A topic's setting in force, empty where it is not known."""
    return (topic.configs[name].value if name in topic.configs else None) or ""


def deletes_by_time(topic: TopicStatus) -> int | None:
    """Milliseconds after which records of the topic are deleted, None where they are not."""
    value = setting(topic, RETENTION)
    return int(value) if "delete" in setting(topic, CLEANUP) and value.isdecimal() else None


def dated_by_brokers(topic: TopicStatus) -> bool:
    """Whether the leader of a partition dates its records, and not their producers."""
    return topic.name == OFFSETS_TOPIC or setting(topic, DATED_BY) == "LogAppendTime"


def single_replicas(facts: HealthFacts) -> Iterator[DoctorFault]:
    """Topics with one replica on a cluster of several brokers."""
    if len(facts.status.brokers) < 2:
        return
    others = {OFFSETS_TOPIC, EVIDENCE_TOPIC}
    these = _topics(facts, lambda each: each.replication_factor == 1 and each.name not in others)
    if these:
        yield fault(
            FaultKind.SINGLE_REPLICA,
            ids(these),
            "one replica: while its broker is down it can be neither written nor read, and its disk has the only copy",
            f"`ottla reassign plan --replication-factor {min(USUAL_FACTOR, len(facts.status.brokers))} "
            f"--topic {these[0]} --output moves.json` plans more.",
        )


def min_isr_above_factor(facts: HealthFacts) -> Iterator[DoctorFault]:
    """Topics that have no replica to spare for acks=all: each of them counts, and no more are asked for."""
    for topic in facts.status.topics:
        factor, value = topic.replication_factor, setting(topic, MIN_ISR)
        if value.isdecimal() and factor and int(value) > factor:
            yield fault(
                FaultKind.MIN_ISR_ABOVE_FACTOR,
                topic.name,
                f"min.insync.replicas is {value}, and it has {factor:,} replicas: acks=all needs all of them in sync",
                f"`ottla topic alter {topic.name} --config min.insync.replicas={max(1, factor - 1)}`, or give it more "
                "replicas with `ottla reassign plan`.",
            )


def offsets_topic(facts: HealthFacts) -> Iterator[DoctorFault]:
    """__consumer_offsets that cannot be created, or that one broker's death may take away."""
    brokers = len(facts.status.brokers)
    found = next((each for each in facts.status.topics if each.name == OFFSETS_TOPIC), None)
    if found is not None:
        if found.replication_factor < min(USUAL_FACTOR, brokers):
            yield fault(
                FaultKind.OFFSETS_TOPIC_THIN,
                OFFSETS_TOPIC,
                f"replication factor {found.replication_factor} on {brokers:,} brokers: when one dies, groups stop",
                f"`ottla reassign plan --replication-factor {min(USUAL_FACTOR, brokers)} --topic {OFFSETS_TOPIC} "
                "--output moves.json` plans more.",
            )
        return
    for known in facts.settings.values():
        entry = known.get(OFFSETS_FACTOR)
        values = [known[name].value for name in ("zookeeper.connect", "process.roles") if name in known]
        # A broker of ottla that is alone asks for one replica by itself.
        if entry is None or not entry.value or (entry.is_default and not any(values)):
            continue
        if int(entry.value) > brokers:
            yield fault(
                FaultKind.OFFSETS_TOPIC_MISSING,
                OFFSETS_TOPIC,
                f"it is not there, and needs {entry.value} brokers of which there are {brokers:,}: no group can start",
                f"Start more brokers, or set {OFFSETS_FACTOR}={brokers} in server.properties and restart.",
            )
            return


def limits(facts: HealthFacts) -> Iterator[DoctorFault]:
    """Records that a topic allows and another limit does not."""
    for kind, name, overhead, what in (
        (FaultKind.ABOVE_REQUEST_LIMIT, "socket.request.max.bytes", 0, "brokers hang up on producers of such records"),
        (
            FaultKind.ABOVE_FETCH_LIMIT,
            "replica.fetch.max.bytes",
            LOG_OVERHEAD,
            "followers fetch such a record alone, one in each request, and may fall behind",
        ),
    ):
        allowed = [int(value) for known in facts.settings.values() if name in known and (value := known[name].value)]
        if not allowed or (kind is FaultKind.ABOVE_FETCH_LIMIT and len(facts.status.brokers) < 2):
            continue
        least = min(allowed)

        def is_above(topic: TopicStatus, most: int = least + overhead) -> bool:
            value = setting(topic, LARGEST)
            return value.isdecimal() and int(value) > most

        if these := _topics(facts, is_above):
            yield fault(
                kind,
                ids(these),
                f"max.message.bytes is more than {name}={least}: {what}",
                f"Raise {name} of all brokers, or `ottla topic alter {these[0]} --config {LARGEST}={least}`.",
            )


def unclean_elections(facts: HealthFacts) -> Iterator[DoctorFault]:
    """Topics for which a replica that is not in sync may become the leader."""
    if these := _topics(facts, lambda each: setting(each, UNCLEAN) == "true" and each.replication_factor > 1):
        yield fault(
            FaultKind.UNCLEAN_ELECTION_ENABLED,
            ids(these),
            "unclean.leader.election.enable=true: records that were acknowledged may be lost when brokers die",
            f"`ottla topic alter {these[0]} --config {UNCLEAN}=false`; if brokers set it, in their server.properties.",
        )


def future_timestamps(
    facts: HealthFacts, newest_ms: Mapping[TopicPartition, int], now_ms: int
) -> Iterator[DoctorFault]:
    """Records that are so far ahead that retention does not delete them in time."""
    for topic in facts.status.topics:
        if (retention_ms := deletes_by_time(topic)) is None or dated_by_brokers(topic):
            continue
        ahead_ms = {each: newest_ms.get(each, 0) - now_ms for each in (one.partition for one in topic.partitions)}
        these = [each for each, ms in ahead_ms.items() if ms > FUTURE_MS]
        if these:
            hours = max(ahead_ms.values()) / 3_600_000
            yield fault(
                FaultKind.FUTURE_TIMESTAMPS,
                ids(these),
                f"records are up to {hours:,.0f} hours ahead of this machine's clock: their segments stay that much "
                f"longer than retention.ms={retention_ms}",
                "Compare the clocks of its producers and of this machine, and whether they write microseconds; "
                f"`ottla topic alter {topic.name} --config message.timestamp.after.max.ms={FUTURE_MS}` refuses more.",
            )


def clocks_ahead(facts: HealthFacts, newest_ms: Mapping[TopicPartition, int], now_ms: int) -> Iterator[DoctorFault]:
    """Brokers that dated a record later than it is on this machine."""
    ahead_ms: dict[int, int] = {}
    for each in (one for topic in facts.status.topics if dated_by_brokers(topic) for one in topic.partitions):
        ms = newest_ms.get(each.partition, 0) - now_ms
        if ms > CLOCK_MS:
            ahead_ms[each.leader] = max(ms, ahead_ms.get(each.leader, 0))
    if ahead_ms:
        yield fault(
            FaultKind.CLOCK_AHEAD,
            named("broker", sorted(ahead_ms), verb=False),
            f"records that brokers dated are up to {max(ahead_ms.values()) / 60_000:,.0f} minutes ahead of this "
            "machine's clock: retention, lag in seconds and offsets by time are wrong by that much",
            "Compare the clocks of these brokers, of those that led their partitions before, and of this machine with "
            "a time server (`chronyc tracking`, `timedatectl`).",
        )


def _topics(facts: HealthFacts, wanted: Callable[[TopicStatus], bool]) -> list[str]:
    return [each.name for each in facts.status.topics if wanted(each)]
