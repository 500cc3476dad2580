"""The coordinator is killed in each phase of a rebalance, under groups of each kind of client.

A fault rule at its broker stops the group in the phase: see `tests/e2e/test_coordinators_moved.py` for what each
request is answered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop.cluster.watched_group import KINDS, SETTINGS, Member, WatchedGroup
from ottla.testing import Cluster
from ottla.testing.faults.declared import FaultRule, Faults

pytestmark = [
    # A client of kafka-python that was closed may leave a socket to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.slow,
]

#: Longer than a test.
HELD_MS = 600_000


def before_it_reacts(faults: Faults, members: list[Member]) -> FaultRule:
    """Nothing is done about the newcomer's join."""
    known = {member.name for member in members}
    return faults.drop("JoinGroup", when=lambda request: not is_of(request, known))


def some_were_told(faults: Faults, members: list[Member]) -> FaultRule:
    """Members are told of the rebalance and join again; nothing is done about their joins."""
    return faults.delay("JoinGroup", HELD_MS, when=lambda request: bool(request.member_id))


def some_had_joined(faults: Faults, members: list[Member]) -> FaultRule:
    """All but one have joined."""
    return faults.delay("JoinGroup", HELD_MS, client_id=members[0].name)


def joins_were_answered(faults: Faults, members: list[Member]) -> FaultRule:
    """All have the new generation, and nobody hands in or gets an assignment."""
    return faults.drop("SyncGroup")


def it_was_written(faults: Faults, members: list[Member]) -> FaultRule:
    """The new generation is written, and nobody has an answer."""
    return faults.cut("SyncGroup", 0)


def some_answers_were_sent(faults: Faults, members: list[Member]) -> FaultRule:
    """All but one have their new assignments."""
    return faults.cut("SyncGroup", 0, client_id=members[0].name)


Phase = Callable[[Faults, list[Member]], FaultRule]
PHASES: list[Phase] = [
    before_it_reacts,
    some_were_told,
    some_had_joined,
    joins_were_answered,
    it_was_written,
    some_answers_were_sent,
]


def is_of(request: object, names: set[str]) -> bool:
    """Whether a JoinGroup is of a member: their ids begin with their client ids."""
    return any(str(getattr(request, "member_id", "")).startswith(name) for name in names)


@pytest.mark.spec("G10", "G11")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", PHASES)
def test_the_group_settles(kind: type[Member], phase: Phase) -> None:
    with Cluster(3, settings=SETTINGS) as cluster:
        group = WatchedGroup(cluster, [kind] * 3)
        try:
            group.settle()
            coordinator = group.coordinator()
            rule = phase(cluster.faults(coordinator), group.members[:])
            group.add(kind)
            rule.wait_until_fired()
            cluster.kill(coordinator)
            took_s = group.settle()
            group.check_commits()
            seen = group.seen()
            assert seen is not None
            print(f"{phase.__name__}, {kind.__name__}: settled after {took_s:.2f} s, generation {seen.generation_id}")
        finally:
            group.close()
