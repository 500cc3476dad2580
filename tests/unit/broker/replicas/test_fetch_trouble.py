"""What a fetcher logs of trouble: a line for each kind of refusal in a response, and the same not again and again."""

from __future__ import annotations

import pytest

from ottla.broker.replicas.fetching.fetcher import FetchTrouble
from ottla.broker.replicas.partition import REPORT_AGAIN_MS
from ottla.env.clock import VirtualClock
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R1", "R2")

UNKNOWN, OFFLINE = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def trouble(clock: VirtualClock) -> FetchTrouble:
    return FetchTrouble(1, clock)


def refuse(trouble: FetchTrouble, error: ErrorCode, indexes: range, topic: str = "t") -> None:
    """A response of the leader that refuses these partitions."""
    for index in indexes:
        trouble.refused((topic, index), error)
    trouble.log_refused()


def test_a_response_that_refuses_thousands_gives_one_line(
    trouble: FetchTrouble, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(trouble, UNKNOWN, range(5_000))
    assert caplog.messages == ["t-0, t-1, t-2 and 4997 more of broker 1: UNKNOWN_LEADER_EPOCH"]


def test_each_error_has_a_line_of_its_own(trouble: FetchTrouble, caplog: pytest.LogCaptureFixture) -> None:
    trouble.refused(("a", 0), UNKNOWN)
    trouble.refused(("b", 3), OFFLINE)
    trouble.refused(("a", 1), UNKNOWN)
    trouble.log_refused()
    assert caplog.messages == [
        "a-0, a-1 of broker 1: UNKNOWN_LEADER_EPOCH",
        "b-3 of broker 1: KAFKA_STORAGE_ERROR",
    ]


def test_the_same_partitions_are_logged_again_after_a_minute_only(
    trouble: FetchTrouble, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(trouble, UNKNOWN, range(3))
    clock.advance(REPORT_AGAIN_MS - 1)
    refuse(trouble, UNKNOWN, range(4))
    clock.advance(1)
    refuse(trouble, UNKNOWN, range(4))
    assert caplog.messages == [
        "t-0, t-1, t-2 of broker 1: UNKNOWN_LEADER_EPOCH",
        "t-3 of broker 1: UNKNOWN_LEADER_EPOCH",
        "t-0, t-1, t-2 of broker 1: UNKNOWN_LEADER_EPOCH",
    ]


def test_what_is_followed_no_more_is_forgotten(trouble: FetchTrouble, caplog: pytest.LogCaptureFixture) -> None:
    refuse(trouble, UNKNOWN, range(1))
    trouble.forget(("t", 0))
    trouble.forget(("t", 1))
    refuse(trouble, UNKNOWN, range(1))
    assert len(caplog.messages) == 2


def test_a_lost_connection_and_a_replica_that_cannot_follow_are_logged_apart(
    trouble: FetchTrouble, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        trouble.cannot_fetch("connection refused")
        trouble.cannot_follow(("t", 0), "no space left on device")
        clock.advance(1)
    assert caplog.messages == [
        "cannot fetch from broker 1: connection refused",
        "t-0 cannot follow broker 1: no space left on device",
    ]
