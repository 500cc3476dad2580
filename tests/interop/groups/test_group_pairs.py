"""Groups beside Apache Kafka's coordinator, step by step: the transcripts of this folder are played to both brokers.

After every step the answers (error, generation, leader, members, assignment), the requests without one, and the group
as DescribeGroups has it must be what the transcript says, of ottla as of Apache Kafka. Where the two are meant to
differ, the transcript says so with the name of a reason in `WANTED`. `OTTLA_RECORD=1` writes the transcripts again from
what the brokers do, to be reviewed as a diff.

All scenarios run at once, each with a group of its own, so that the waiting of one (for a session to expire) is the
others' time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from interop.groups.brokers import GroupBrokers
from interop.groups.player import PLAYERS, Outcomes, play
from interop.groups.transcript import SIDES, Scenario, all_scenarios, merged, recorded, scenarios_of
from interop.wire_json import Definitions

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.timeout(600)]

#: Where ottla answers otherwise on purpose, and why. Nothing else may differ.
WANTED = {
    "superseded": (
        "a request that waits while its member sends it again, or leaves, is answered; Apache Kafka never answers it"
    ),
    "garbage": "metadata that cannot be read is refused; Apache Kafka never answers that group again",
    "orphaned": (
        "a static member that comes back before it gave up what was taken from it begins a rebalance; in Apache Kafka "
        "those partitions are nobody's until something else begins one"
    ),
}
SCENARIOS = all_scenarios(Path(__file__).parent)
RECORD = bool(os.environ.get("OTTLA_RECORD"))


class Stage:
    """Both brokers, and the scenarios that are played to them."""

    def __init__(self, bootstraps: dict[str, str], definitions: Definitions, pool: ThreadPoolExecutor) -> None:
        self.bootstraps = bootstraps
        self.definitions = definitions
        self.pool = pool
        self.plays: dict[str, dict[str, Future[Outcomes]]] = {}

    def begin(self, scenario: Scenario) -> None:
        """Play a scenario to both, beside others."""
        self.plays[scenario.name] = {side: self.pool.submit(self._play, scenario, side) for side in SIDES}

    def outcomes(self, scenario: Scenario) -> dict[str, Outcomes]:
        """What each broker made of it, by the lines of the commands; it ends with the first surprise."""
        return {side: play.result() for side, play in self.plays[scenario.name].items()}

    def _play(self, scenario: Scenario, side: str) -> Outcomes:
        return play(scenario, side, self.bootstraps[side], self.definitions, is_recorded=RECORD)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, group_brokers: GroupBrokers, definitions: Definitions) -> Iterator[Stage]:
    """All chosen scenarios, begun."""
    chosen = {item.callspec.params["scenario"].name for item in request.session.items if _is_scenario(item)}
    with ThreadPoolExecutor(PLAYERS) as pool:
        made = Stage(group_brokers.bootstraps, definitions, pool)
        for scenario in SCENARIOS:
            if scenario.name in chosen:
                made.begin(scenario)
        try:
            yield made
        finally:
            pool.shutdown(cancel_futures=True)


def _is_scenario(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.originalname == "test_both_do_as_the_transcript_says"


@pytest.mark.parametrize(
    "scenario", [pytest.param(one, marks=pytest.mark.spec(*one.spec), id=one.name) for one in SCENARIOS]
)
def test_both_do_as_the_transcript_says(stage: Stage, scenario: Scenario) -> None:
    outcomes = stage.outcomes(scenario)
    if RECORD:
        record(scenario, outcomes)
        return
    for side in reversed(SIDES):
        for step in scenario.steps:
            where = f"{side}, {scenario.path.name}:{step.line + 1}: {step.command}"
            assert sorted(outcomes[side][step.line]) == sorted(step.expected(side)), where


def record(scenario: Scenario, outcomes: dict[str, Outcomes]) -> None:
    """Write what happened into the file, beside what its other scenarios have."""
    written = {step.line: step.outcome for one in scenarios_of(scenario.path) for step in one.steps}
    lines = {step.line: step for one in scenarios_of(scenario.path) if one.name == scenario.name for step in one.steps}
    # Recording changes the numbers of the lines that follow: steps are matched in order.
    for now, planned in zip(lines.values(), scenario.steps, strict=True):
        sides = {side: outcomes[side][planned.line] for side in SIDES}
        written[now.line] = merged(sides["ottla"], sides["kafka"], planned.reasons)
    scenario.path.write_text(recorded(scenario.path, written))


def test_the_brokers_differ_only_where_that_is_wanted() -> None:
    """Every difference has a reason, and every reason is about something."""
    assert {reason for one in SCENARIOS for step in one.steps for reason in step.reasons} == set(WANTED)


@pytest.mark.spec("G2")
def test_there_are_as_many_scenarios_as_promised() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS) >= 50
