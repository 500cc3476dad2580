from __future__ import annotations

import pytest

from ottla.storage.checkpoints import CheckpointError
from ottla.storage.leader_epochs import LeaderEpochs, decode_leader_epochs


def test_epochs_grow_and_contradictions_go() -> None:
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.earliest) == (-1, -1)
    assert epochs.assign(2, 0)
    assert not epochs.assign(2, 10)
    assert epochs.assign(3, 10)
    assert epochs.assign(5, 20)
    assert epochs.assign(6, 10)
    assert epochs.entries == [(2, 0), (6, 10)]
    assert epochs.assign(6, 4)
    assert epochs.assign(1, 9)
    assert epochs.entries == [(1, 9)]
    assert (epochs.latest, epochs.earliest) == (1, 1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 20)), (2, (1, 20)), (3, (3, 30)), (4, (3, 30)), (5, (5, 99)), (6, (-1, -1))],
)
def test_ends(asked: int, expected: tuple[int, int]) -> None:
    end = LeaderEpochs([(1, 5), (3, 20), (5, 30)]).end_of(asked, 99)
    assert (end.leader_epoch, end.end_offset) == expected


def test_nothing_known_nothing_reported() -> None:
    end = LeaderEpochs().end_of(0, 10)
    assert (end.leader_epoch, end.end_offset) == (-1, -1)
    assert LeaderEpochs().epoch_at(3) == -1


def test_epoch_at() -> None:
    epochs = LeaderEpochs([(1, 5), (3, 20)])
    assert [epochs.epoch_at(offset) for offset in (4, 5, 19, 20, 99)] == [-1, 1, 1, 3, 3]


def test_truncation_at_both_ends() -> None:
    epochs = LeaderEpochs([(1, 5), (3, 20), (5, 30)])
    epochs.truncate_end(31)
    epochs.truncate_start(5)
    assert not epochs.dirty
    epochs.truncate_end(30)
    assert epochs.entries == [(1, 5), (3, 20)]
    epochs.truncate_start(10)
    assert epochs.entries == [(1, 10), (3, 20)]
    epochs.truncate_start(20)
    assert epochs.entries == [(3, 20)]
    epochs.truncate_start(25)
    assert epochs.entries == [(3, 25)]
    assert epochs.dirty
    epochs.truncate_end(3)
    assert epochs.entries == []
    epochs.truncate_start(50)
    assert epochs.entries == []


def test_the_file() -> None:
    assert LeaderEpochs([(0, 0), (7, 12)]).encode() == b"0\n2\n0 0\n7 12\n"
    assert decode_leader_epochs(b"0\n2\n0 0\n7 12\n", "f").entries == [(0, 0), (7, 12)]
    assert decode_leader_epochs(b"", "f").entries == []
    assert LeaderEpochs().encode() == b"0\n0\n"
    for bad in (
        b"0\n1\n1\n",
        b"0\n1\na b\n",
        b"0\n2\n3 0\n2 9\n",
        b"0\n2\n1 9\n2 3\n",
        b"0\n3\n1 0\n",
        b"1\n0\n",
        b"x",
    ):
        with pytest.raises(CheckpointError, match="f: "):
            decode_leader_epochs(bad, "f")
