"""Evidence records in words."""

from __future__ import annotations

import json

import pytest

from ottla.demo import rebalances
from ottla.demo.rebalances import parse_rebalance

RECORD = {
    "version": 1,
    "group": "g",
    "generation": 3,
    "outcome": "stable",
    "started_at_ms": 1_000,
    "duration_ms": 250,
    "causes": [{"cause": "member_joined", "at_ms": 1, "member_id": "ben-1", "client_id": "ben", "detail": None}],
    "members": [
        {"member_id": "anna-1", "client_id": "anna", "pause_ms": 248},
        {"member_id": "ben-1", "client_id": "ben", "pause_ms": None},
    ],
    "removed": [],
    "moved_count": 1,
    "kept_count": 2,
}


def _parse(**changes: object) -> rebalances.ObservedRebalance:
    return parse_rebalance(json.dumps(RECORD | changes).encode())


def test_a_record_in_words() -> None:
    assert _parse().line == (
        "group g, generation 3: ben joined (2 members, 1 partition moved, 2 kept, longest pause 248 ms)"
    )


def test_a_member_that_is_gone_keeps_its_name() -> None:
    gone = {"member_id": "cleo-1", "client_id": "cleo", "cause": "session_expired"}
    told = _parse(causes=[{"cause": "session_expired", "member_id": "cleo-1"}], removed=[gone])
    assert told.why == "cleo was not heard of for its session timeout"


def test_equal_causes_are_reported_once() -> None:
    cause = {"cause": "member_left", "member_id": "anna-1"}
    assert (
        _parse(causes=[cause, cause, {"cause": "topic_created", "member_id": ""}]).why
        == "anna left; a topic was created"
    )


def test_an_unknown_cause_is_reported_as_it_is() -> None:
    assert _parse(causes=[{"cause": "moon_full", "member_id": "x"}]).why == "moon full (x)"
    assert _parse(causes=[]).why == "no cause recorded"


def test_anything_else_is_no_record() -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_rebalance(b"{}")
    with pytest.raises(ValueError):
        parse_rebalance(b"x")
