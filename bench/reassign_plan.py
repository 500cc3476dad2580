"""Plans of reassignments on 1,000 random clusters, with the measures of Cruise Control's goals.

    ./run bench reassign_plan            # about two minutes
    ./run bench reassign_plan --write    # and put the tables into RESULTS.md

Clusters and goals come by seed from `tests/support/plan_judge.py`, which also says what must hold, and derives the
least bytes that any plan as even has to copy (`least_bytes`). For 400 small clusters every placement is tried instead
(`fewest_bytes`). At last a cluster of 100,000 replicas on 100 brokers, for the time.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from report import table, write_section

from ottla.ops.planning.model import PlanGoal, PlannedBroker, PlannedPartition, PlanRefusal, ReassignmentPlan
from ottla.ops.planning.planner import plan
from support.plan_judge import KINDS, Evenness, PlanCase, broken, evenness, fewest_bytes, least_bytes, random_case

CLUSTERS = 1_000
SMALL = 400
LARGE_BROKERS = 100
LARGE_TOPICS = 334
LARGE_PARTITIONS = 100
RACKS = 3
INTRODUCTION = f"""\
`./run bench reassign_plan --write`: {CLUSTERS:,} random clusters of 4 to 30 brokers with 5 to 60 partitions a broker;
sizes, racks, dead brokers and uneven placement by seed; tolerance 10%. Hard goals: the replication factor kept or as
asked, each replica on another live broker, racks spread no worse and as far as asked, capacities, emptied brokers
empty. "Copied" is the bytes that were copied, divided by the least that any plan as even has to copy: a lower bound
(`least_bytes` in `tests/support/plan_judge.py`), so that 1.00 is optimal. The other columns are the largest distance of
a broker from its even share, medians before → after; a goal that does not ask for evenness does not get it. A partition
that is larger than a broker's share, or racks of unequal size, leave more than the tolerance."""


class Outcome(NamedTuple):
    """What came of one cluster: `ratio` is of the bytes copied and the least, 1 where nothing had to be."""

    kind: str
    hard: int
    ratio: float
    before: Evenness
    after: Evenness
    left: int
    seconds: float


def played(case: PlanCase) -> tuple[Outcome, ReassignmentPlan]:
    """Plan for a cluster, and judge it."""
    began = time.process_time()
    made = plan(case.brokers, case.partitions, case.goal)
    seconds = time.process_time() - began
    assert not isinstance(made, PlanRefusal), made
    least = least_bytes(case, made).evenness
    ratio = made.moved_bytes / least if least else 1.0 if not made.moved_bytes else float("inf")
    evens = evenness(case, made.before), evenness(case, made.after)
    return Outcome(case.what, len(broken(case, made)), ratio, *evens, len(made.left), seconds), made


def quantile(values: Iterable[float], part: float) -> float:
    """The value below which this part of them is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def percent(value: float) -> str:
    """A part of one as people read it."""
    return f"{value * 100:,.0f}%"


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """A row for each kind of goal."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        by_kind[each.kind].append(each)
    found = []
    for kind in KINDS:
        these = by_kind[kind]
        ratios = [each.ratio for each in these]
        cells = [kind, str(len(these)), str(sum(each.hard for each in these))]
        cells += [f"{value:.2f}" for value in (statistics.median(ratios), quantile(ratios, 0.9), max(ratios))]
        for column in range(3):
            before = statistics.median(each.before[column] for each in these)
            after = statistics.median(each.after[column] for each in these)
            cells.append(f"{percent(before)} → {percent(after)}")
        found.append(cells)
    return found


def small_clusters() -> tuple[int, int, float, float]:
    """How many of how many plans copy as few bytes as any; how much more the others copy in the mean, and at most."""
    ratios = []
    for seed in range(SMALL):
        case = random_case(seed, is_small=True)
        made = plan(case.brokers, case.partitions, case.goal)
        if isinstance(made, PlanRefusal):
            continue
        fewest = fewest_bytes(case, made)
        ratios.append(made.moved_bytes / fewest if fewest else 1.0)
    worse = [each for each in ratios if each > 1]
    return len(ratios) - len(worse), len(ratios), statistics.mean(ratios), max(ratios)


def large_cluster() -> tuple[list[PlannedBroker], list[PlannedPartition]]:
    """100,200 replicas of 334 topics on 100 brokers in three racks, sizes over five orders of magnitude."""
    chance = random.Random(1)
    brokers = [PlannedBroker(each, f"rack{each % RACKS}") for each in range(LARGE_BROKERS)]
    popularity = [chance.uniform(0.3, 1) for _ in brokers]
    members = [[each.id for each in brokers if each.id % RACKS == rack] for rack in range(RACKS)]
    found = []
    for topic in range(LARGE_TOPICS):
        typical = 10 ** chance.uniform(4, 9)
        for partition in range(LARGE_PARTITIONS):
            racks = chance.sample(range(RACKS), RACKS)
            chosen = (chance.choices(members[rack], [popularity[each] for each in members[rack]])[0] for rack in racks)
            replicas = tuple(chosen)
            size = int(typical * chance.lognormvariate(0, 1))
            found.append(PlannedPartition(f"topic{topic}", partition, replicas, size, replicas[0]))
    return brokers, found


def large_rows() -> list[list[str]]:
    """Time and evenness of the large cluster, for each goal."""
    brokers, partitions = large_cluster()
    new = [PlannedBroker(LARGE_BROKERS + each, f"rack{each % RACKS}") for each in range(9)]
    goals = (
        ("even", brokers, PlanGoal(even=True)),
        ("add 9 brokers", [*brokers, *new], PlanGoal(add=tuple(each.id for each in new))),
        ("empty 5 brokers", brokers, PlanGoal(empty=(0, 1, 2, 3, 4))),
        ("a fourth replica", brokers, PlanGoal(replication_factor=4)),
    )
    found = []
    for what, known, goal in goals:
        outcome, made = played(PlanCase(what, tuple(known), tuple(partitions), goal))
        evens = [percent(each) for each in outcome.after]
        moved = f"{made.moved_bytes / 1e12:.2f}"
        found.append([what, f"{outcome.seconds:.1f}", f"{len(made.moves):,}", moved, f"{outcome.ratio:.2f}", *evens])
    return found


def report() -> str:
    """The section of RESULTS.md."""
    began = time.process_time()
    outcomes = [played(random_case(seed))[0] for seed in range(CLUSTERS)]
    optimal, tried, mean, most = small_clusters()
    head = ["Goal", "clusters", "hard goals broken", "copied: median", "p90", "most", "bytes", "replicas", "leaders"]
    large_head = ["100,200 replicas", "s of CPU", "moves", "TB copied", "of the least", "bytes", "replicas", "leaders"]
    lines = [
        INTRODUCTION,
        table(head, rows(outcomes)),
        f"Small clusters, where every placement was tried: {optimal} of {tried} plans copy no byte more than the best "
        f"one; {mean:.3f} times as many in the mean, {most:.2f} at most.",
        table([*large_head, "leader load"], large_rows()),
        f"The whole took {time.process_time() - began:.0f} s of CPU.",
    ]
    return "\n\n".join(lines)


def main() -> None:
    """Play all clusters, and print the tables."""
    text = report()
    sys.stdout.write(text + "\n")
    if "--write" in sys.argv[1:]:
        write_section("bench/reassign_plan.py", text)


if __name__ == "__main__":
    main()
