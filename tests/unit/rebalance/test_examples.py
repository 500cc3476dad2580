"""The worked examples of assignors and of the coordinator."""

from __future__ import annotations

import pytest

from ottla.rebalance.examples import EXAMPLES, play
from ottla.rebalance.placement import Placement, PlacementRefused, place


def calls(lines: list[str]) -> list[tuple[int, int, int]]:
    """JoinGroups sent, revokes and assigns of each consumer, as an example sums them up."""
    found = []
    for line in lines:
        if "JoinGroup sent" in line:
            joins, revokes, assigns = (int(word.rstrip("×,")) for word in line.split() if word.endswith(("×", "×,")))
            found.append((joins, revokes, assigns))
    return found


def states(lines: list[str]) -> list[str]:
    """The states that the group went through."""
    return [line.split(" → ")[1] for line in lines if line.lstrip().startswith("state: ")]


PREPARING, COMPLETING, STABLE = "PreparingRebalance", "CompletingRebalance", "Stable"


@pytest.mark.spec("G4")
def test_one_rebalance() -> None:
    lines = list(play("G4"))
    assert states(lines) == [PREPARING, COMPLETING, PREPARING, COMPLETING, STABLE]
    assert calls(lines) == [(2, 1, 1), (1, 1, 1), (1, 1, 1)]


@pytest.mark.spec("G5")
def test_two_rebalances() -> None:
    lines = list(play("G5"))
    assert states(lines) == [PREPARING, COMPLETING, STABLE] * 2
    assert calls(lines) == [(2, 2, 2), (1, 1, 1), (1, 1, 1)]


@pytest.mark.spec("G6")
def test_three_rebalances() -> None:
    lines = list(play("G6"))
    assert states(lines)[:9] == [PREPARING, COMPLETING, STABLE] * 3
    assert states(lines)[9:] == [PREPARING, "Empty"]
    assert calls(lines) == [(3, 3, 3), (2, 2, 2), (1, 1, 1)]


@pytest.mark.spec("G7")
def test_lost_answers() -> None:
    assert states(list(play("G7"))) == [PREPARING, COMPLETING, PREPARING, COMPLETING, STABLE, PREPARING]


@pytest.mark.spec("A5")
def test_votes() -> None:
    lines = list(play("A5"))
    assert any("generation 3, range" in line for line in lines)
    assert any("generation 4, cooperative-sticky" in line for line in lines)
    assert lines[-1] == "  stranger ← INCONSISTENT_GROUP_PROTOCOL"


@pytest.mark.parametrize(
    ("name", "owned"),
    [
        pytest.param("A1", ["c0  t 0-1", "c1  t 2", "c2  t 3"], marks=pytest.mark.spec("A1")),
        pytest.param("A2", ["C0  A 0-2 B 1", "C1  B 0,2 C 0-2"], marks=pytest.mark.spec("A2")),
        pytest.param("A3", ["sticky: 5 of 8 stay where they were", "roundrobin: 3 of 8"], marks=pytest.mark.spec("A3")),
        pytest.param("A3-unequal", ["sticky: 5 of 6 stay", "roundrobin: 3 of 6 stay"], marks=pytest.mark.spec("A3")),
        pytest.param("A4", ["2 partitions were consumed throughout, 1 stopped"], marks=pytest.mark.spec("A4")),
        pytest.param("A7", ["C1-0  t 0-1", "C2-1  t 4"], marks=pytest.mark.spec("A7")),
    ],
)
def test_examples_of_assignors(name: str, owned: list[str]) -> None:
    lines = list(play(name))
    for expected in owned:
        assert any(expected in line for line in lines), lines


@pytest.mark.spec("C6", "A1")
def test_the_walk() -> None:
    rows = [list(row.values())[2:] for row in EXAMPLES["walk"].rows()]
    assert rows == [
        [[0, 1, 2], None, None, None, [0], [1]],
        [[0, 1], [2], None, None, [1, 0], [2, 1]],
        [[0], [1], [2], None, [2, 1, 0], [3, 2, 1]],
        [[0], [1], [2], [], [3, 2, 1, 0], [4, 3, 2, 1]],
        [None, [0], [1], [2], [4, 3, 2, 1], [4, 4, 3, 2]],
        [None, None, [0, 1], [2], [4, 4, 3, 2], [4, 4, 4, 3]],
        [None, None, None, [0, 1, 2], [4, 4, 4, 3], [4, 4, 4, 4]],
    ]


@pytest.mark.spec("R4")
def test_placement() -> None:
    placed = ["".join(map(str, row["replicas"])) for row in EXAMPLES["placement"].rows()]  # type: ignore[arg-type]
    assert placed == ["450", "501", "012", "123", "234", "345", "401", "512", "023", "134"]
    racks = [row["racks"] for row in place(Placement(racks=tuple("aabbcc")))]
    assert all(sorted(each) == ["a", "b", "c"] for each in racks)
    with pytest.raises(PlacementRefused, match="Not all brokers have rack information"):
        list(place(Placement(racks=("a", "", "c"))))
