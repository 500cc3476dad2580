"""Which requests a fault rule applies to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing import TestBrokerError
from ottla.testing.faults.rules import Matching, byte_count, conditions, milliseconds
from ottla.wire.apis import ApiKey

pytestmark = pytest.mark.spec("U1")


@pytest.mark.parametrize(
    ("given", "fires_at"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"times": 2}, [1, 2]),
        ({"nth": 3}, [3]),
        ({"nth": 3, "times": 2}, [3, 4]),
        ({"nth": 3, "times": None}, [3, 4, 5, 6]),
    ],
)
def test_nth_and_times(given: Matching, fires_at: list[int]) -> None:
    wanted = conditions(ApiKey.PRODUCE, given)
    fired: list[int] = []
    for seen in range(1, 7):
        if wanted.is_due(seen, len(fired)):
            fired.append(seen)
    assert fired == fires_at


def test_all_conditions_must_hold() -> None:
    given: Matching = {"topic": "t", "group": "g", "client_id": "c", "when": lambda request: request == "yes"}
    wanted = conditions(ApiKey.OFFSET_COMMIT, given)
    assert wanted.matches(("s", "t"), ("g",), "c", "yes")
    assert not wanted.matches(("s",), ("g",), "c", "yes")
    assert not wanted.matches(("t",), ("h",), "c", "yes")
    assert not wanted.matches(("t",), ("g",), "d", "yes")
    assert not wanted.matches(("t",), ("g",), "c", "no")
    assert wanted.matches((), ("g",), "c", "yes", all_topics=True)


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        (ApiKey.PRODUCE, {"nht": 3}, "^a rule takes no nht=; did you mean nth=\\?$"),
        (ApiKey.PRODUCE, {"nth": 0}, "^nth=0: it counts requests from 1 on$"),
        (ApiKey.PRODUCE, {"nth": None}, "^nth=None: it counts requests from 1 on$"),
        (ApiKey.PRODUCE, {"nth": True}, "^nth=True: "),
        (ApiKey.PRODUCE, {"times": 0}, "^times=0: it counts requests from 1 on$"),
        (ApiKey.PRODUCE, {"topic": b"t"}, "^topic=b't': it must be text$"),
        (ApiKey.PRODUCE, {"when": True}, "^when=True: it must be a function of the request"),
        (
            ApiKey.PRODUCE,
            {"group": "g"},
            "^Produce names no groups: leave group= out; it is for AddOffsetsToTxn, DeleteGroups, .*Sync",
        ),
        (
            ApiKey.HEARTBEAT,
            {"topic": "t"},
            "^Heartbeat names no topics: leave topic= out; it is for AlterPartitionReassignments, ",
        ),
    ],
)
def test_misuse_is_named(key: ApiKey, given: Any, said: str) -> None:
    with pytest.raises(TestBrokerError, match=said):
        conditions(key, given)


def test_durations_and_sizes() -> None:
    assert milliseconds(1.9) == 1
    assert byte_count(0) == 0
    for ms in (-1, True, "5", float("nan"), 2**31):
        with pytest.raises(TestBrokerError, match=r"it is a number of milliseconds from 0 to 2147483647$"):
            milliseconds(ms)  # type: ignore[arg-type]
    for after_bytes in (-1, 1.5, True):
        with pytest.raises(TestBrokerError, match=r"it is a number of bytes from 0 on$"):
            byte_count(after_bytes)  # type: ignore[arg-type]
