"""The same churn on the group design of ZooKeeper and on the coordinator's, played in virtual time and compared."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.assign.registry import BUILT_IN
from ottla.sim.churn_script import ChurnScript, ScriptPlan, make_script
from ottla.sim.comparison import USUAL_ASSIGNORS, Comparison, GrowthRow, compare, growth
from ottla.sim.design import DesignResult


class UnknownAssignor(Exception):
    """No assignor has this name; the message lists the names."""


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A comparison's input: the size of the group, its churn by `seed`, the assignors, and the extras."""

    members: int
    partitions: int
    turns: int
    seed: int
    session_timeout_ms: int
    assignors: tuple[str, ...] = ()
    watch_brokers: bool = False
    growth: bool = False
    #: How many times as long messages of the slowest possible member take.
    slowest: float = 1.0
    #: The chance that a message is lost, and its connection with it.
    loss: float = 0.0


class ComparisonResult(NamedTuple):
    """The churn, the figures of each design, and where asked for what one change costs in larger groups."""

    script: ChurnScript
    results: Sequence[DesignResult]
    growth: Sequence[GrowthRow]


def run(request: ComparisonRequest) -> ComparisonResult:
    """Play the comparison. Raises UnknownAssignor."""
    unknown = [name for name in request.assignors if name not in BUILT_IN]
    if unknown:
        raise UnknownAssignor(f"there is no assignor {unknown[0]}; choose from {', '.join(BUILT_IN)}")
    comparison = Comparison(
        request.assignors or USUAL_ASSIGNORS,
        request.session_timeout_ms,
        watch_brokers=request.watch_brokers,
        slowest=request.slowest,
        loss=request.loss,
    )
    # The warnings of simulated members are in the figures.
    logging.getLogger("ottla.zkconsumer").setLevel(logging.CRITICAL)
    script = make_script(request.seed, _plan(request))
    results = compare(script, comparison, request.seed)
    rows = growth(request.members, request.partitions, comparison, request.seed) if request.growth else ()
    return ComparisonResult(script, results, list(rows))


def _plan(request: ComparisonRequest) -> ScriptPlan:
    """Turns far enough apart for a group that lost a member to come to rest; absences around a session's length."""
    session_ms = request.session_timeout_ms
    usual = ScriptPlan(members=request.members, partitions=request.partitions, turns=request.turns)
    return ScriptPlan(
        usual.members,
        usual.partitions,
        usual.turns,
        interval_ms=(max(usual.interval_ms[0], 5 * session_ms), max(usual.interval_ms[1], 6 * session_ms)),
        begin_ms=max(usual.begin_ms, 10 * session_ms),
        away_ms=(session_ms // 3, 3 * session_ms),
    )
