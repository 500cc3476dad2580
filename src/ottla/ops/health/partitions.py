"""Findings about partitions: leaders, replicas in sync, moves that are stuck, racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import PartitionStatus
from ottla.ops.health.facts import HealthFacts, lagging
from ottla.ops.health.findings import ClusterFinding, HealthKind, ids, named
from ottla.ops.planning.layout import Layout
from ottla.ops.planning.model import PlannedBroker, PlannedPartition

OFFSETS_TOPIC = "__consumer_offsets"
IMBALANCE = 0.1
"""The part of the partitions that prefer a broker which others may lead (leader.imbalance.per.broker.percentage)."""


def partition_findings(now: HealthFacts, before: HealthFacts | None) -> Iterator[ClusterFinding]:
    """All findings about partitions."""
    yield from _offline(now)
    yield from _in_sync(now)
    yield from _lagging(now, before)
    yield from _reassignments(now, before)
    yield from _leaders(now)
    yield from _racks(now)
    yield from _spare(now)


def _finding(kind: HealthKind, these: Sequence[PartitionStatus], what: str, cure: str) -> ClusterFinding:
    """`what` follows "3 partitions"."""
    partitions = tuple(each.partition for each in these)
    number = f"{len(these):,} {'partition' if len(these) == 1 else 'partitions'}"
    return ClusterFinding(kind, f"{number} {what}: {ids(partitions)}", cure, partitions)


def _missing(these: Iterable[PartitionStatus], now: HealthFacts) -> tuple[int, ...]:
    """Brokers that are not there and have replicas of these partitions."""
    absent = frozenset(now.status.absent)
    return tuple(sorted({replica.broker for each in these for replica in each.replicas if replica.broker in absent}))


def _offline(now: HealthFacts) -> Iterator[ClusterFinding]:
    offline = [each for each in now.status.partitions if each.is_offline]
    for kind, these, what in (
        (
            HealthKind.OFFSETS_TOPIC_OFFLINE,
            [each for each in offline if each.partition.topic == OFFSETS_TOPIC],
            f"of {OFFSETS_TOPIC} without a leader, whose groups can neither commit nor rebalance",
        ),
        (
            HealthKind.OFFLINE_PARTITIONS,
            [each for each in offline if each.partition.topic != OFFSETS_TOPIC],
            "without a leader, neither written nor read",
        ),
    ):
        if these:
            in_sync = sorted({broker for each in these for broker in each.isr})
            live = set(now.status.registered)
            electable = [
                each for each in these if any(one.broker in live and not one.is_in_sync for one in each.replicas)
            ]
            last = (
                "; only if that is lost for good, `ottla leader-election --election-type unclean "
                f"{electable[0].partition}` loses what the other replicas lack"
                if electable
                else "; no other replica has any of them"
            )
            yield _finding(
                kind,
                these,
                what,
                f"Start {named('broker', in_sync, verb=False)} again with its disk, which has the records of replicas "
                f"in sync{last}.",
            )


def _in_sync(now: HealthFacts) -> Iterator[ClusterFinding]:
    alive = [each for each in now.status.partitions if not each.is_offline]
    below = [each for each in alive if each.is_refusing_acks_all]
    at = [each for each in alive if each.is_under_replicated and each.is_at_min_isr]
    others = [
        each for each in alive if each.is_under_replicated and not (each.is_refusing_acks_all or each.is_at_min_isr)
    ]
    if below:
        yield _finding(
            HealthKind.UNDER_MIN_ISR,
            below,
            "below min.insync.replicas, which refuse acks=all",
            f"{_bring_back(below, now)}; to be written with fewer replicas meanwhile, `ottla topic alter "
            f"{below[0].partition.topic} --config min.insync.replicas=1`.",
        )
    if at:
        yield _finding(
            HealthKind.AT_MIN_ISR,
            at,
            "at min.insync.replicas, which refuse acks=all if one more replica falls behind",
            f"{_bring_back(at, now)}, before anything else is restarted.",
        )
    if others:
        yield _finding(
            HealthKind.UNDER_REPLICATED, others, "with replicas that are not in sync", f"{_bring_back(others, now)}."
        )


def _bring_back(these: Sequence[PartitionStatus], now: HealthFacts) -> str:
    absent = _missing(these, now)
    if absent:
        return f"Start {named('broker', absent, verb=False)} again"
    behind = sorted({replica.broker for each in these for replica in each.replicas if not replica.is_in_sync})
    return f"Look at disk, network and log of {named('broker', behind, verb=False)}, whose replicas lag"


# Replicas that lag


def _lagging(now: HealthFacts, before: HealthFacts | None) -> Iterator[ClusterFinding]:
    behind: dict[int, list[PartitionStatus]] = {}
    for each in now.status.partitions:
        for broker in lagging(each):
            behind.setdefault(broker, []).append(each)
    former = {} if before is None else {each.partition: each for each in before.status.partitions}
    for broker, these in sorted(behind.items()):
        lags = [lag for each in these if (lag := _lag(each, broker)) is not None]
        ages = [now.ages_ms[each.partition] for each in these if each.partition in now.ages_ms]
        far = f" by up to {max(lags):,} records" if lags else ""
        old = f", the oldest {max(ages) / 1000:,.0f} s old" if ages else ""
        trend = _trend(these, broker, former)
        if trend == "catching up":
            cure = f"Wait: broker {broker} catches up; `ottla cluster health --watch` says when it is done."
        else:
            cure = (
                f"Look at disk, network and load of broker {broker} and at its log, and whether a replication throttle "
                "holds it back; restart it if its fetchers have stopped."
            )
        yield ClusterFinding(
            HealthKind.LAGGING_REPLICAS,
            f"{len(these):,} {'replica' if len(these) == 1 else 'replicas'} of broker {broker} "
            f"{'lags' if len(these) == 1 else 'lag'}{far}{old}{f', {trend}' if trend else ''}",
            cure,
            tuple(each.partition for each in these),
            (broker,),
        )


def _lag(each: PartitionStatus, broker: int) -> int | None:
    return next((replica.lag for replica in each.replicas if replica.broker == broker), None)


def _trend(these: Sequence[PartitionStatus], broker: int, former: dict[TopicPartition, PartitionStatus]) -> str:
    """Whether a broker's replicas come nearer to their leaders between two looks; nothing where that is not known."""
    now, then = 0, 0
    for each in these:
        known = former.get(each.partition)
        lags = _lag(each, broker), None if known is None else _lag(known, broker)
        if lags[0] is not None and lags[1] is not None:
            now, then = now + lags[0], then + lags[1]
    if not then:
        return ""
    return "catching up" if now < then else "not catching up"


# Reassignments


def _reassignments(now: HealthFacts, before: HealthFacts | None) -> Iterator[ClusterFinding]:
    moving = [each for each in now.status.partitions if each.adding or each.removing]
    absent = frozenset(now.status.absent)
    waiting = [each for each in moving if absent & frozenset(each.adding)]
    still = [] if before is None else _without_progress(moving, before)
    wrong = {each.partition for each in (*waiting, *still)}
    stuck = [each for each in moving if each.partition in wrong]
    if not stuck:
        return
    dead = tuple(sorted({broker for each in waiting for broker in each.adding if broker in absent}))
    why = f"that wait for {named('broker', dead, verb=False)}" if dead else "that have not copied anything meanwhile"
    cure = (
        f"Start {named('broker', dead, verb=False)} again, or take the moves back"
        if dead
        else "See whether the throttle is too low for what is produced (`ottla reassign execute FILE --additional "
        "--throttle …` raises it) and whether the new replicas' brokers work, or take the moves back"
    )
    yield _finding(
        HealthKind.STUCK_REASSIGNMENT, stuck, f"in moves {why}", f"{cure} with `ottla reassign cancel FILE`."
    )


def _without_progress(moving: Sequence[PartitionStatus], before: HealthFacts) -> list[PartitionStatus]:
    """Moves whose new replicas lag and have no more than at the look before."""
    former = {each.partition: each for each in before.status.partitions}
    found = []
    for each in moving:
        then = former.get(each.partition)
        if then is None or then.adding != each.adding:
            continue
        ends = {replica.broker: replica.log_end_offset for replica in then.replicas}
        copying = [replica for replica in each.replicas if replica.broker in each.adding and not replica.is_in_sync]
        if copying and all(replica.lag and replica.log_end_offset == ends[replica.broker] for replica in copying):
            found.append(each)
    return found


# Leaders, racks, spare replicas


def _leaders(now: HealthFacts) -> Iterator[ClusterFinding]:
    """As the controller's automatic balancing: brokers that lead too few of the partitions that prefer them."""
    alive = set(now.status.registered)
    preferred: Counter[int] = Counter()
    elsewhere: dict[int, list[PartitionStatus]] = {}
    for each in now.status.partitions:
        if not each.replicas or each.adding or each.removing:
            continue
        first = each.replicas[0]
        preferred[first.broker] += 1
        if each.leader != first.broker and first.broker in alive and first.is_in_sync and not each.is_offline:
            elsewhere.setdefault(first.broker, []).append(each)
    these = [
        each
        for broker, several in sorted(elsewhere.items())
        if len(several) > IMBALANCE * preferred[broker]
        for each in several
    ]
    if these:
        yield _finding(
            HealthKind.LEADERS_NOT_PREFERRED,
            these,
            "not led by their preferred replicas, though these are in sync",
            "`ottla leader-election --all-topic-partitions` gives them back; brokers with "
            "auto.leader.rebalance.enable=true do it by themselves within some minutes.",
        )


def _racks(now: HealthFacts) -> Iterator[ClusterFinding]:
    brokers = {each.node.node_id: PlannedBroker(each.node.node_id, each.node.rack) for each in now.status.brokers}
    if any(each.rack is None for each in brokers.values()):
        return
    known = [each for each in now.status.partitions if all(replica.broker in brokers for replica in each.replicas)]
    planned = [
        PlannedPartition(each.partition.topic, each.partition.partition, tuple(one.broker for one in each.replicas))
        for each in known
    ]
    layout = Layout(brokers, planned, brokers)
    these = [
        each
        for at, each in enumerate(known)
        if layout.pairs(at) > layout.fewest_pairs(len(each.replicas)) and not each.adding
    ]
    if these:
        yield _finding(
            HealthKind.CROWDED_RACKS,
            these,
            "with more replicas in one rack than need be",
            "`ottla reassign plan --racks --output moves.json` spreads them over the racks.",
        )


def _spare(now: HealthFacts) -> Iterator[ClusterFinding]:
    """Partitions that need all of their replicas to be written."""
    these = [
        each
        for each in now.status.partitions
        if 1 < (each.min_insync_replicas or 0) >= len(each.replicas) - len(each.adding)
    ]
    if these:
        yield _finding(
            HealthKind.NO_SPARE_REPLICA,
            these,
            "with no more replicas than min.insync.replicas: the restart of one broker refuses acks=all",
            "`ottla reassign plan --replication-factor "
            f"{1 + max(each.min_insync_replicas or 0 for each in these)} --topic {these[0].partition.topic} --output "
            "moves.json` adds one.",
        )
