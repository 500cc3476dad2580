"""The same churn played on the design with ZooKeeper and on the one with a coordinator, and how their costs scale."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.assign.registry import BUILT_IN
from ottla.rebalance.designs.churn_script import Action, ChurnScript, ScriptPlan, make_script
from ottla.rebalance.designs.coordinator import CoordinatorDesign
from ottla.rebalance.designs.results import DesignResult
from ottla.rebalance.designs.zookeeper import ZooKeeperDesign, ZooKeeperTimes
from ottla.sim.group_consumer import MemberTimes
from ottla.sim.group_stage import Weather

#: As in Kafka's own consumers: three heartbeats per session timeout.
HEARTBEATS_PER_SESSION = 3
#: Members that join or leave in one measurement of scaling.
GROWTH_TURNS = 6
GROWTH_WEIGHTS = {Action.START: 1, Action.LEAVE: 1}
GROWTH_FACTORS = (1, 2, 4)

USUAL_ASSIGNORS = ("range", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Parameters common to both designs. `assignors` are the coordinator's; ZooKeeper uses range over threads."""

    assignors: tuple[str, ...] = USUAL_ASSIGNORS
    session_timeout_ms: int = 6_000
    delay_ms: tuple[int, int] = (1, 40)
    watch_brokers: bool = False
    #: Latency factor of the slowest possible member's messages (`Weather.slowest`); 1: all are alike.
    slowest: float = 1.0
    #: The probability that a message is lost, and its connection with it (`Weather.loss`).
    loss: float = 0.0


def compare(script: ChurnScript, comparison: Comparison, seed: int) -> list[DesignResult]:
    """Play the script on every design: ZooKeeper first, then the coordinator with each assignor."""
    weather = Weather(comparison.delay_ms, comparison.loss, comparison.slowest)
    zookeeper = [("ZooKeeper", False)]
    if comparison.watch_brokers:
        zookeeper.append(("ZooKeeper, brokers watched", True))
    results = []
    for name, watched in zookeeper:
        times = ZooKeeperTimes(comparison.session_timeout_ms, always_watch_brokers=watched)
        results.append(ZooKeeperDesign(name, "range", times, weather, seed).run(script))
    times_of_members = MemberTimes(
        session_timeout_ms=comparison.session_timeout_ms,
        heartbeat_interval_ms=max(1, comparison.session_timeout_ms // HEARTBEATS_PER_SESSION),
    )
    for assignor in comparison.assignors:
        design = CoordinatorDesign(f"coordinator, {assignor}", BUILT_IN[assignor], times_of_members, weather, seed)
        results.append(design.run(script))
    return results


class GrowthRow(NamedTuple):
    """Average cost of one member that joins or leaves, in a group with this many members and partitions."""

    members: int
    partitions: int
    znode_reads: float
    znode_writes: float
    watch_events: float
    #: Requests to the coordinator, without heartbeats.
    requests: float


def growth(members: int, partitions: int, comparison: Comparison, seed: int) -> Iterator[GrowthRow]:
    """The cost of one change as members increase, then as partitions increase; ZooKeeper against the first assignor.

    All members are equally fast and no message is lost, so that the figures show the designs' own cost.
    """
    sizes = [(members * factor, partitions) for factor in GROWTH_FACTORS]
    sizes += [(members, partitions * factor) for factor in GROWTH_FACTORS[1:]]
    for many, wide in sizes:
        plan = ScriptPlan(members=many, partitions=wide, turns=GROWTH_TURNS)
        script = make_script(seed, plan, GROWTH_WEIGHTS)
        alone = Comparison(comparison.assignors[:1], comparison.session_timeout_ms, comparison.delay_ms)
        zookeeper, coordinator = compare(script, alone, seed)
        yield GrowthRow(
            many,
            wide,
            zookeeper.znode_reads / GROWTH_TURNS,
            zookeeper.znode_writes / GROWTH_TURNS,
            zookeeper.watch_events / GROWTH_TURNS,
            coordinator.requests_of_rebalances / GROWTH_TURNS,
        )


class UnknownAssignor(Exception):
    """No assignor has this name; the message lists the names."""


class ComparisonResult(NamedTuple):
    """The churn, the figures of each design, and where asked for what one change costs in larger groups."""

    script: ChurnScript
    results: Sequence[DesignResult]
    growth: Sequence[GrowthRow]


def run(plan: ScriptPlan, comparison: Comparison, seed: int, *, with_growth: bool = False) -> ComparisonResult:
    """Play the comparison. Raises UnknownAssignor.

    Events are far enough apart for a group that lost a member to settle; absences are around a session's length.
    """
    unknown = [name for name in comparison.assignors if name not in BUILT_IN]
    if unknown:
        raise UnknownAssignor(f"there is no assignor {unknown[0]}; choose from {', '.join(BUILT_IN)}")
    # The warnings of simulated members are in the figures.
    logging.getLogger("ottla.zkconsumer").setLevel(logging.CRITICAL)
    session_ms = comparison.session_timeout_ms
    spread = replace(
        plan,
        interval_ms=(max(plan.interval_ms[0], 5 * session_ms), max(plan.interval_ms[1], 6 * session_ms)),
        begin_ms=max(plan.begin_ms, 10 * session_ms),
        away_ms=(session_ms // 3, 3 * session_ms),
    )
    script = make_script(seed, spread)
    results = compare(script, comparison, seed)
    rows = growth(plan.members, plan.partitions, comparison, seed) if with_growth else ()
    return ComparisonResult(script, results, list(rows))
