"""`ottla rebalance compare`: what was wanted, played, written and drawn."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.assign.registry import BUILT_IN
from ottla.cli.rebalance.compare_output import growth_to_json, to_json, write_growth, write_text
from ottla.cli.rebalance.picture import TooLarge
from ottla.cli.rebalance.timeline import draw_timeline
from ottla.sim.churn_script import ChurnScript, ScriptPlan, make_script
from ottla.sim.comparison import USUAL_ASSIGNORS, Comparison, compare, growth
from ottla.sim.design import DesignResult


class NotCompared(Exception):
    """The comparison cannot be made, or drawn; the message says why, and what to do."""


class Wanted(NamedTuple):
    """The options of the command."""

    members: int
    partitions: int
    turns: int
    seed: int
    session_timeout_ms: int
    assignors: tuple[str, ...]
    watch_brokers: bool
    growth: bool
    story: bool
    picture: Path | None


def run(wanted: Wanted, *, as_json: bool) -> Iterator[str]:
    """Lines of text, or JSON objects. Raises NotCompared."""
    unknown = [name for name in wanted.assignors if name not in BUILT_IN]
    if unknown:
        raise NotCompared(f"--assignor {unknown[0]}: there is no such assignor; choose from {', '.join(BUILT_IN)}")
    comparison = Comparison(
        wanted.assignors or USUAL_ASSIGNORS, wanted.session_timeout_ms, watch_brokers=wanted.watch_brokers
    )
    # What simulated members complain of is in the figures.
    logging.getLogger("ottla.zkconsumer").setLevel(logging.CRITICAL)
    script = make_script(wanted.seed, _plan(wanted))
    results = compare(script, comparison, wanted.seed)
    if as_json:
        yield from (json.dumps(to_json(result)) for result in results)
    else:
        yield from write_text(script, results, story=wanted.story)
    if wanted.growth:
        rows = list(growth(wanted.members, wanted.partitions, comparison, wanted.seed))
        if as_json:
            yield from (json.dumps(growth_to_json(row)) for row in rows)
        else:
            yield ""
            yield from write_growth(rows)
    if wanted.picture is not None:
        _draw(script, results, wanted.picture)


def _plan(wanted: Wanted) -> ScriptPlan:
    """Turns far enough apart for a group that lost a member to come to rest; absences around a session's length."""
    session_ms = wanted.session_timeout_ms
    usual = ScriptPlan(members=wanted.members, partitions=wanted.partitions, turns=wanted.turns)
    return ScriptPlan(
        usual.members,
        usual.partitions,
        usual.turns,
        interval_ms=(max(usual.interval_ms[0], 5 * session_ms), max(usual.interval_ms[1], 6 * session_ms)),
        begin_ms=max(usual.begin_ms, 10 * session_ms),
        away_ms=(session_ms // 3, 3 * session_ms),
    )


def _draw(script: ChurnScript, results: list[DesignResult], path: Path) -> None:
    try:
        path.write_text(draw_timeline(script, results), encoding="utf-8")
    except TooLarge as problem:
        raise NotCompared(f"--picture: {problem}; play fewer turns, or fewer partitions") from problem
    except OSError as error:
        raise NotCompared(f"--picture: {path} cannot be written: {error.strerror}") from error
