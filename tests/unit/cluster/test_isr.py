"""When a leader proposes another ISR, and what becomes of the proposal: Apache Kafka's rules (`Partition.scala`)."""

from __future__ import annotations

import pytest

from ottla.cluster.isr import ABANDONED_ERRORS, NEVER_MS, OUT_OF_DATE, InSyncReplicas, IsrProposal
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R2")

LAG_MS = 30_000


def elected(isr: tuple[int, ...] = (1, 2, 3), end: int = 100, now_ms: float = 0.0) -> InSyncReplicas:
    """Broker 1 leads in epoch 5, partition epoch 7; its log ends at `end`."""
    replicas = InSyncReplicas(1)
    replicas.elected(5, 7, (1, 2, 3), isr, end, now_ms)
    replicas.check_invariants()
    return replicas


def alive(_broker_id: int) -> bool:
    return True


def test_at_election_those_in_sync_have_the_whole_allowed_lag() -> None:
    replicas = elected((1, 2), now_ms=1_000)
    assert replicas.out_of_sync(100, 1_000 + LAG_MS, LAG_MS) == frozenset()
    assert replicas.out_of_sync(100, 1_001 + LAG_MS, LAG_MS) == {2}
    assert replicas.followers[3].last_caught_up_ms == NEVER_MS


def test_a_silent_follower_that_lacks_nothing_stays() -> None:
    replicas = elected((1, 2))
    replicas.followers[2].fetched(100, 0, 100, 5)
    assert replicas.shrink(100, 100 * LAG_MS, LAG_MS) is None
    assert replicas.shrink(101, 100 * LAG_MS, LAG_MS) == IsrProposal(5, 7, (1,))


def test_a_follower_that_always_reaches_the_end_of_its_last_fetch_is_in_sync() -> None:
    """It never has all that there is, since the leader is written to all the time."""
    replicas = elected((1, 2), 0)
    follower = replicas.followers[2]
    for step in range(1, 20):
        follower.fetched(10 * (step - 1), 0, 10 * step, step * LAG_MS / 2)
    assert follower.last_caught_up_ms == 18 * LAG_MS / 2
    assert replicas.out_of_sync(195, 19 * LAG_MS / 2, LAG_MS) == frozenset()


def test_a_follower_that_falls_behind_more_and_more_is_not_in_sync() -> None:
    replicas = elected((1, 2), 0)
    follower = replicas.followers[2]
    for step in range(1, 20):
        follower.fetched(step, 0, 10 * step, step * LAG_MS / 2)
    assert replicas.out_of_sync(200, 10 * LAG_MS, LAG_MS) == {2}


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    replicas = elected((1,), end=100)
    follower = replicas.followers[3]
    assert replicas.expansion(3, 0, alive) is None, "it has fetched nothing"
    follower.fetched(99, 0, 100, 0)
    assert replicas.expansion(3, 50, alive) is None, "records below the start of the epoch may be committed"
    follower.fetched(100, 0, 120, 0)
    assert replicas.expansion(3, 110, alive) is None
    assert replicas.expansion(3, 100, lambda broker_id: broker_id != 3) is None, "it is dead"
    assert replicas.expansion(3, 100, alive) == IsrProposal(5, 7, (1, 3))
    assert (replicas.committed, replicas.maximal) == ({1}, {1, 3})
    replicas.check_invariants()


def test_a_stranger_and_a_member_do_not_join() -> None:
    replicas = elected((1, 2), 0)
    replicas.followers[2].fetched(100, 0, 100, 0)
    assert replicas.expansion(9, 0, alive) is None
    assert replicas.expansion(2, 0, alive) is None


def test_one_proposal_is_under_way_at_a_time() -> None:
    replicas = elected((1, 2), 0)
    shrink = replicas.shrink(10, LAG_MS + 1, LAG_MS)
    assert shrink == IsrProposal(5, 7, (1,))
    assert replicas.maximal == {1, 2}, "what is removed counts until the controller has agreed"
    replicas.check_invariants()
    replicas.followers[3].fetched(10, 0, 10, LAG_MS + 2)
    assert replicas.expansion(3, 10, alive) is None
    assert replicas.shrink(10, 9 * LAG_MS, LAG_MS) is None
    assert replicas.accepted(shrink, 5, 8, (1,))
    assert replicas.expansion(3, 10, alive) == IsrProposal(5, 8, (1, 3))


def test_the_answer_says_what_is_committed() -> None:
    replicas = elected((1, 2), 0)
    shrink = replicas.shrink(10, LAG_MS + 1, LAG_MS)
    assert shrink is not None
    assert not replicas.accepted(shrink, 6, 8, (1,)), "another leader epoch: another broker's, or not known here yet"
    assert not replicas.accepted(shrink, 5, 6, (1,)), "older than what is known"
    assert replicas.pending is shrink
    assert replicas.accepted(shrink, 5, 7, (1, 2)), "nothing had to be changed"
    assert (replicas.committed, replicas.partition_epoch, replicas.pending) == ({1, 2}, 7, None)
    assert not replicas.accepted(shrink, 5, 8, (1,))


@pytest.mark.parametrize("error", sorted(ABANDONED_ERRORS))
def test_a_proposal_is_given_up_where_it_is_known_not_to_be_applied(error: ErrorCode) -> None:
    replicas = elected((1,), 0)
    replicas.followers[3].fetched(0, 0, 0, 0)
    proposal = replicas.expansion(3, 0, alive)
    assert proposal is not None
    assert not replicas.refused(proposal, error)
    assert (replicas.committed, replicas.maximal, replicas.pending) == ({1}, {1}, None)


@pytest.mark.parametrize("error", sorted(OUT_OF_DATE))
def test_an_out_of_date_leader_proposes_nothing_until_the_next_epoch(error: ErrorCode) -> None:
    replicas = elected((1,), 0)
    replicas.followers[3].fetched(0, 0, 0, 0)
    proposal = replicas.expansion(3, 0, alive)
    assert proposal is not None
    assert not replicas.refused(proposal, error)
    assert replicas.maximal == {1, 3}, "the controller may have committed it before"
    assert replicas.expansion(2, 0, alive) is None
    replicas.elected(6, 9, (1, 2, 3), (1, 3), 0, 0)
    assert not replicas.refused(proposal, error), "an answer to the epoch before"
    assert not replicas.accepted(proposal, 5, 8, (1,))
    replicas.followers[2].fetched(0, 0, 0, 0)
    assert replicas.expansion(2, 0, alive) == IsrProposal(6, 9, (1, 3, 2))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_where_the_outcome_is_not_known_the_proposal_is_sent_again(error: ErrorCode) -> None:
    replicas = elected((1,), 0)
    replicas.followers[3].fetched(0, 0, 0, 0)
    proposal = replicas.expansion(3, 0, alive)
    assert proposal is not None
    assert replicas.refused(proposal, error)
    assert (replicas.pending, replicas.maximal) == (proposal, {1, 3})
    replicas.check_invariants()


def test_the_same_leader_elected_again_keeps_what_its_followers_have() -> None:
    replicas = elected((1, 2, 3), 0)
    replicas.followers[2].fetched(90, 4, 100, 10)
    replicas.elected(6, 8, (1, 2, 4), (1, 2), 100, 20)
    assert sorted(replicas.followers) == [2, 4]
    follower = replicas.followers[2]
    assert (follower.end_offset, follower.log_start_offset, follower.last_caught_up_ms) == (90, 4, 20)
    assert (replicas.start_offset, replicas.committed, replicas.pending) == (100, {1, 2}, None)
    replicas.elected(7, 9, (1, 2, 4), (1, 4), 100, 30)
    assert follower.last_caught_up_ms == NEVER_MS, "it left the ISR"
