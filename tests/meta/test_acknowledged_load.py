"""The judge of loads on clusters notices what it is there for."""

from __future__ import annotations

import pytest

from support.acknowledged_load import AcknowledgedLoad, Record
from support.load_producers import UNKNOWN_OFFSET

WELL = [(0, ("java", 0)), (1, ("ottla", 0)), (2, ("java", 1)), (3, ("ottla", 1))]


def load_of(monkeypatch: pytest.MonkeyPatch, read: list[tuple[int, Record]]) -> AcknowledgedLoad:
    """A load that was acknowledged what `WELL` says, and of which this is read."""
    load = AcknowledgedLoad("127.0.0.1:9", "t", 1, ("java", "ottla"))
    by_name = {producer.name: producer for producer in load.producers}
    for offset, (name, number) in WELL:
        by_name[name].note(0, offset if offset != 2 else UNKNOWN_OFFSET, number)
    monkeypatch.setattr(load, "_read", lambda: {0: (read[0][0], read)})
    return load


def test_what_is_there_once_and_in_order_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    load_of(monkeypatch, WELL).check()
    assert load_of(monkeypatch, WELL).count == 4


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (WELL[:3], "acknowledged and not there"),
        ([WELL[0], WELL[1], WELL[3]], "acknowledged and not there"),
        ([*WELL, (4, ("ottla", 1))], "not in order, each once"),
        ([(0, ("java", 1)), WELL[1], (2, ("java", 0)), WELL[3]], "not in order, each once"),
        ([WELL[0], (1, ("java", 1)), (2, ("ottla", 0)), WELL[3]], "acknowledged and not there"),
    ],
    ids=["lost", "lost-of-unknown-offset", "twice", "reordered", "at-another-offset"],
)
def test_what_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch, read: list[tuple[int, Record]], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        load_of(monkeypatch, read).check()


def test_a_record_that_failed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = load_of(monkeypatch, WELL)
    load.producers[0].failed.append("0 #2: timed out")
    with pytest.raises(AssertionError, match="timed out"):
        load.check()
