from __future__ import annotations

import pytest

from ottla.client.admin.outcomes import Outcomes
from ottla.client.errors import BrokerError, ClientTimeoutError, ConnectionLostError, PartlyFailedError
from ottla.wire.errors import ErrorCode

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
REFUSED = ErrorCode.POLICY_VIOLATION


def work_off(with_cluster, items, attempts, **options):
    """Play attempts: each a dict from item to an error code (0: success) or an exception to raise."""
    asked = []

    async def work(cluster):
        outcomes = Outcomes("asking", items)

        async def attempt(pending):
            asked.append(pending)
            played = attempts[min(len(asked), len(attempts)) - 1]
            if isinstance(played, Exception):
                raise played
            for item, code in played.items():
                if code:
                    outcomes.fail(item, BrokerError(code, item))
                else:
                    outcomes.succeed(item, item.upper())
            outcomes.check_answered(pending)

        return await outcomes.work_off(cluster, attempt, options.get("timeout_ms"))

    return asked, lambda: with_cluster("127.0.0.1:1", work)


def test_only_what_is_pending_is_asked_again(with_cluster):
    asked, run = work_off(with_cluster, "abc", [{"a": 0, "b": MOVED, "c": 0}, {"b": MOVED}, {"b": 0}])
    assert run() == {"a": "A", "b": "B", "c": "C"}
    assert asked == [["a", "b", "c"], ["b"], ["b"]]


def test_nothing_asked_for_is_nothing_asked(with_cluster):
    asked, run = work_off(with_cluster, "", [])
    assert (run(), asked) == ({}, [])


def test_errors_and_values_are_reported_by_item(with_cluster):
    _, run = work_off(with_cluster, "abc", [{"a": REFUSED, "b": 0, "c": REFUSED}])
    with pytest.raises(
        PartlyFailedError, match=r"asking failed for 2 of 3:\n- a: .*POLICY_VIOLATION\)\n- c: "
    ) as caught:
        run()
    assert caught.value.values == {"b": "B"}
    assert [error.code for error in caught.value.errors.values()] == [REFUSED, REFUSED]
    assert not caught.value.retriable


def test_a_single_items_error_is_raised_itself(with_cluster):
    _, run = work_off(with_cluster, "a", [{"a": REFUSED}])
    with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
        run()


def test_what_is_refused_for_too_long_fails_by_timeout_with_the_others_reported(with_cluster):
    _, run = work_off(with_cluster, "ab", [{"a": 0, "b": MOVED}, {"b": MOVED}], timeout_ms=30)
    with pytest.raises(PartlyFailedError) as caught:
        run()
    assert caught.value.values == {"a": "A"}
    assert isinstance(caught.value.errors["b"], ClientTimeoutError)


def test_items_that_an_answer_leaves_out_fail(with_cluster):
    _, run = work_off(with_cluster, "ab", [{"a": 0}])
    with pytest.raises(PartlyFailedError, match="the broker's answer leaves b out"):
        run()


def test_an_error_of_the_whole_is_raised_itself(with_cluster):
    _, run = work_off(with_cluster, "ab", [BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")])
    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        run()


@pytest.mark.parametrize("lost", [ConnectionLostError("gone", retriable=True), {"a": ErrorCode.REQUEST_TIMED_OUT}])
def test_what_may_have_been_carried_out_is_known(with_cluster, lost):
    async def work(cluster):
        outcomes = Outcomes("asking", "a")
        seen = []

        async def attempt(pending):
            seen.append(set(outcomes.uncertain))
            if len(seen) > 1:
                outcomes.succeed("a", None)
            elif isinstance(lost, Exception):
                raise lost
            else:
                outcomes.fail("a", BrokerError(lost["a"], "a"))

        await outcomes.work_off(cluster, attempt)
        return seen

    assert with_cluster("127.0.0.1:1", work) == [set(), {"a"}]
