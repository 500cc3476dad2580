"""The same churn on both designs: the same story each time, and costs that grow as they must."""

from __future__ import annotations

import pytest

from ottla.rebalance.designs.churn_script import Action, ChurnScript, ScriptPlan, Turn, make_script
from ottla.rebalance.designs.comparison import Comparison, GrowthRow, compare, growth, run
from ottla.rebalance.designs.results import Decisions, DesignResult
from ottla.sim.group_stage import Weather

pytestmark = pytest.mark.spec("Z8")

BOTH = Comparison(("range",))


def at(*turns: Turn, members: int = 4, partitions: int = 8) -> ChurnScript:
    """A script of just these turns."""
    names = tuple(f"m{number}" for number in range(1, members + 1))
    return ChurnScript(names, partitions, turns, 60_000, 120_000)


def test_a_seed_makes_one_script() -> None:
    plan = ScriptPlan(turns=200)
    assert make_script(5, plan) == make_script(5, plan)
    assert make_script(5, plan) != make_script(6, plan)


def test_scripts_can_be_played() -> None:
    """Who leaves was there, nobody starts twice, and somebody always stays."""
    for seed in range(20):
        plan = ScriptPlan(members=3, turns=100)
        script = make_script(seed, plan)
        living = set(script.members)
        for turn in script.turns:
            if turn.action is Action.START:
                assert turn.member not in living
                living.add(turn.member)
            elif turn.member:
                assert turn.member in living
            if turn.action in (Action.LEAVE, Action.DIE):
                living.remove(turn.member)
            assert 1 <= len(living) <= 2 * plan.members
        assert script.turns[-1].at_ms < script.end_ms


@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_the_same_each_time_and_ends_at_rest(seed: int) -> None:
    script = make_script(seed, ScriptPlan(members=5, partitions=12, turns=12))
    first, second = compare(script, BOTH, seed), compare(script, BOTH, seed)
    assert first == second
    for result in first:
        assert len(result.settled) == len(script.turns)
        assert result.settled[-1].is_whole, result.design


def test_only_zookeeper_has_znodes_and_only_the_coordinator_requests() -> None:
    zookeeper, coordinator = compare(at(Turn(60_000, Action.LEAVE, "m1")), BOTH, 1)
    assert min(zookeeper.znode_reads, zookeeper.znode_writes, zookeeper.watch_events) > 0
    assert not zookeeper.requests
    assert coordinator.requests_of_rebalances
    assert not coordinator.znode_reads
    for result in (zookeeper, coordinator):
        assert result.rebalances == 3, "one for each member that stays"
        assert result.unread_s > 0
        assert result.doubled_s == 0


def test_a_death_is_noticed_when_the_session_ends() -> None:
    for result in compare(at(Turn(60_000, Action.DIE, "m2")), BOTH, 1):
        assert 4_000 <= result.settled[0].after_ms <= 9_000, result.design
        assert result.longest_unread_s * 1000 >= 4_000, result.design


@pytest.mark.parametrize("action", [Action.CUT, Action.FREEZE])
def test_split_brain_who_is_away_longer_than_its_session_reads_with_its_successor(action: Action) -> None:
    for result in compare(at(Turn(60_000, action, "m2", for_ms=20_000)), BOTH, 1):
        assert result.doubled_s > (10 if action is Action.CUT else 0), result.design
        assert result.settled[0].is_whole, result.design


def test_who_is_away_shorter_than_its_session_makes_no_rebalance() -> None:
    for result in compare(at(Turn(60_000, Action.FREEZE, "m2", for_ms=2_000)), BOTH, 1):
        assert result.rebalances == 0, result.design
        assert result.unread_s == pytest.approx(4.0), "two partitions for two seconds"


def test_brokers_that_come_and_go_matter_only_where_they_are_watched() -> None:
    script = at(Turn(60_000, Action.BROKER, for_ms=20_000))
    zookeeper, watched, coordinator = compare(script, Comparison(("range",), watch_brokers=True), 1)
    assert zookeeper.rebalances == coordinator.rebalances == 0
    assert watched.rebalances == 2 * 4
    assert watched.unread_s > 0


def test_new_partitions_are_found_and_read() -> None:
    for result in compare(at(Turn(60_000, Action.GROW, by=3)), BOTH, 1):
        assert result.settled[0].is_whole, result.design
        assert {reading.partition for reading in result.readings} == set(range(11))


@pytest.fixture(scope="module")
def rows() -> dict[tuple[int, int], GrowthRow]:
    return {(row.members, row.partitions): row for row in growth(8, 32, BOTH, 3)}


@pytest.mark.slow
def test_reads_grow_with_the_square_of_the_members(rows: dict[tuple[int, int], GrowthRow]) -> None:
    """The herd: every member reads the registration of every member, after every change."""
    for members in (8, 16, 32):
        reads = rows[members, 32].znode_reads
        # Six changes leave a group with up to three members more or fewer; each reads up to 10 nodes besides.
        assert (members - 3) ** 2 <= reads <= (members + 3) * (members + 3 + 10) + 32, members


@pytest.mark.slow
def test_writes_grow_with_the_partitions_and_not_with_the_members(rows: dict[tuple[int, int], GrowthRow]) -> None:
    """Each is committed, released and claimed, whoever has it."""
    for size, row in rows.items():
        assert 2 * size[1] <= row.znode_writes <= 3 * size[1] + 10, size


@pytest.mark.slow
def test_watch_events_and_requests_grow_with_the_members(rows: dict[tuple[int, int], GrowthRow]) -> None:
    for (members, _), row in rows.items():
        assert members - 3 <= row.watch_events <= members + 3
        assert 2 * (members - 3) <= row.requests <= 4 * (members + 3)


def test_figures_of_a_design_can_be_compared() -> None:
    result = DesignResult("x")
    result.requests.update({"JoinGroup": 2, "SyncGroup": 2, "Heartbeat": 50, "OffsetCommit": 7})
    assert result.requests_of_rebalances == 4


@pytest.mark.slow
def test_members_of_different_speed_meet_each_others_claims_and_try_again() -> None:
    script = make_script(6, ScriptPlan(members=8, partitions=32, turns=12))
    alike = compare(script, BOTH, 6)
    zookeeper, coordinator = compare(script, Comparison(("range",), slowest=10.0), 6)
    assert [result.conflicts for result in alike] == [0, 0]
    assert zookeeper.conflicts > 0, "a slow member has not released yet what a quick one claims"
    assert zookeeper.retries > 0
    assert coordinator.conflicts == coordinator.abandoned == 0, "the coordinator assigns; nobody claims"
    assert zookeeper.unread_s > 2 * coordinator.unread_s
    assert all(result.settled[-1].is_whole for result in (zookeeper, coordinator))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_tells_the_designs_apart_when_members_differ_in_speed(seed: int) -> None:
    script = make_script(seed, ScriptPlan(partitions=64, turns=12))
    zookeeper, coordinator = compare(script, Comparison(("range",), slowest=10.0, loss=0.001), seed)
    assert zookeeper.differing_decisions > 0, "members decide at the same time on views that differ"
    assert zookeeper.decisions > 4 * coordinator.decisions, "all decide, or one for all"
    assert coordinator.differing_decisions == 0
    assert zookeeper.stale_s > 0, "members read on with a session that is over"
    assert coordinator.stale_s > 0, "members read on with a generation that is over"
    assert zookeeper.stale_offsets_stored > zookeeper.stale_offsets_refused == 0, "ZooKeeper takes what anybody writes"
    assert coordinator.stale_offsets_stored == 0
    assert coordinator.refused > 0, "the coordinator refuses them"
    assert zookeeper.uncertain > coordinator.uncertain


@pytest.mark.slow
def test_the_run_of_the_document_shows_an_abandoned_rebalance() -> None:
    comparison = Comparison(("range",), slowest=10.0, loss=0.001)
    zookeeper, coordinator = run(ScriptPlan(8, 96, 20), comparison, 1).results
    assert (zookeeper.abandoned, coordinator.abandoned) == (1, 0)
    assert coordinator.stale_offsets_refused > 0


def test_a_decision_differs_from_another_that_stands_at_the_same_time() -> None:
    decisions = Decisions()
    decisions.decided("m1", "two members")
    decisions.decided("m2", "two members")
    assert (decisions.made, decisions.differing) == (2, 0)
    decisions.decided("m3", "three members")
    decisions.decided("m1", "three members")
    assert (decisions.made, decisions.differing) == (4, 4), "both of m1, that of m2, and that of m3"
    decisions.ended("m2")
    decisions.decided("m1", "three members")
    assert (decisions.made, decisions.differing) == (5, 4)


@pytest.mark.slow
def test_a_generation_that_is_over_commits_nothing_and_a_session_that_is_over_does() -> None:
    zookeeper, coordinator = compare(at(Turn(60_000, Action.FREEZE, "m2", for_ms=20_000)), BOTH, 1)
    assert zookeeper.stale_offsets_stored == 2, "the partitions of m2, which another member has"
    assert coordinator.stale_offsets_stored == 0
    assert coordinator.refused + coordinator.stale_offsets_refused > 0


def test_who_leaves_leaves_no_change_of_unknown_outcome() -> None:
    for result in compare(at(Turn(60_000, Action.LEAVE, "m1")), BOTH, 1):
        assert result.uncertain == 0, result.design
        assert result.tries == result.rebalances, result.design


def test_a_join_that_only_asks_for_an_id_is_no_try() -> None:
    _, coordinator = compare(at(Turn(60_000, Action.START, "m9")), BOTH, 1)
    assert coordinator.requests["JoinGroup"] > coordinator.tries == coordinator.rebalances


@pytest.mark.slow
def test_lost_messages_leave_changes_of_unknown_outcome_and_groups_recover() -> None:
    script = make_script(3, ScriptPlan(members=6, partitions=24, turns=12))
    for result in compare(script, Comparison(("range",), loss=0.005, slowest=4.0), 3):
        assert result.uncertain > 0, result.design
        assert result.retries > 0, result.design
        assert result.settled[-1].is_whole, result.design


def test_a_slow_member_is_as_slow_in_every_design() -> None:
    weather = Weather(slowest=10.0)
    factors = [weather.slowness(f"m{number}") for number in range(1, 40)]
    assert factors == [weather.slowness(f"m{number}") for number in range(1, 40)]
    assert 1.0 <= min(factors) < 2.0
    assert 6.0 < max(factors) <= 10.0
    assert Weather().slowness("m1") == 1.0
