"""The walk over damaged logs: every byte is accounted for, and what is sound is found again."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from ottla.env.file_reader import ReadableFile
from ottla.inspection import walk
from ottla.inspection.walk import DamagedRange, LogBatch, LogWalker
from ottla.records.compression import Compression
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, encode_batch

pytestmark = pytest.mark.spec("L9")


def batches(count: int = 6, size: int = 20) -> list[bytes]:
    """Whole batches of two records each, with offsets from 0 on."""
    made = []
    for number in range(count):
        content = [Record(0, 1_700_000_000_000 + n, b"key", b"v" * size) for n in range(2)]
        made.append(encode_batch(content, base_offset=2 * number, leader_epoch=3))
    return made


def walked(path: Path, data: bytes) -> list[LogBatch | DamagedRange]:
    path.write_bytes(data)
    with ReadableFile(str(path)) as file:
        found = list(LogWalker(file))
    ends = [0, *itertools.accumulate(each.length for each in found)]
    assert [each.position for each in found] == ends[:-1], "no byte is left out, none is told of twice"
    assert ends[-1] == len(data)
    return found


def offsets(found: list[LogBatch | DamagedRange]) -> list[int]:
    return [each.base_offset for each in found if isinstance(each, LogBatch)]


def damage(found: list[LogBatch | DamagedRange]) -> list[DamagedRange]:
    return [each for each in found if isinstance(each, DamagedRange)]


def test_a_intact_log(tmp_path: Path) -> None:
    found = walked(tmp_path / "log", b"".join(batches()))
    assert offsets(found) == [0, 2, 4, 6, 8, 10]
    assert damage(found) == []


def test_old_formats_are_walked_beside_the_new(tmp_path: Path) -> None:
    old = encode_messages([Record(n, -1, b"k", b"v") for n in range(3)], 0)
    newer = encode_messages([Record(n, 5, None, b"v") for n in range(3, 6)], 1, compression=Compression.GZIP)
    found = walked(tmp_path / "log", old + newer + encode_batch([Record(0, 5, None, b"v")], base_offset=6))
    assert [(each.magic, each.last_offset) for each in found if isinstance(each, LogBatch)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 5),
        (2, 6),
    ]


@pytest.mark.parametrize("bit", [0, 7])
def test_each_flipped_byte_of_a_batch_costs_that_batch_at_most(tmp_path: Path, bit: int) -> None:
    parts = batches(3)
    data = b"".join(parts)
    for at in range(len(parts[1])):
        damaged = bytearray(data)
        damaged[len(parts[0]) + at] ^= 1 << bit
        found = walked(tmp_path / "log", bytes(damaged))
        if at < 8 or 12 <= at < 16:
            # Base offset and leader epoch lie outside the checksum: whoever knows the neighbours sees it.
            assert len(found) == 3
            continue
        assert offsets(found)[0] == 0
        assert offsets(found)[-1] == 4
        (range_,) = damage(found)
        assert (range_.position, range_.length) == (len(parts[0]), len(parts[1])), at
        if 8 <= at < 12 or at == 16:
            for position, right in range_.patches:
                damaged[position : position + len(right)] = right
            assert bytes(damaged) == data, at
        else:
            assert not range_.patches


def test_the_end_of_a_file_cut_anywhere(tmp_path: Path) -> None:
    parts = batches(3)
    data = b"".join(parts)
    for end in range(len(parts[0]) + len(parts[1]) + 1, len(data)):
        found = walked(tmp_path / "log", data[:end])
        assert offsets(found) == [0, 2]
        assert damage(found)[0].cut_off


def test_zeros_behind_the_log(tmp_path: Path) -> None:
    found = walked(tmp_path / "log", b"".join(batches(2)) + bytes(5_000_000))
    (tail,) = damage(found)
    assert tail.zeros
    assert tail.length == 5_000_000


def test_two_damaged_batches_side_by_side(tmp_path: Path) -> None:
    parts = [bytearray(each) for each in batches(5)]
    parts[1][70] ^= 1
    parts[2][70] ^= 1
    found = walked(tmp_path / "log", b"".join(parts))
    assert offsets(found) == [0, 6, 8]
    assert [(each.position, each.length) for each in damage(found)] == [
        (len(parts[0]), len(parts[1])),
        (len(parts[0]) + len(parts[1]), len(parts[2])),
    ]


@pytest.mark.parametrize("window", [200, 1024 * 1024])
def test_noise_of_any_length_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(walk, "WINDOW_BYTES", window)
    chance = random.Random(5)
    for _ in range(60):
        parts = batches(4, size=chance.randrange(200))
        noise = chance.randbytes(chance.randrange(1, 600))
        found = walked(tmp_path / "log", parts[0] + parts[1] + noise + parts[2] + parts[3])
        assert offsets(found) == [0, 2, 4, 6]
        assert len(damage(found)) == 1


def test_checksums_of_large_batches_are_computed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(walk, "WINDOW_BYTES", 300)
    parts = [bytearray(each) for each in batches(3, size=2000)]
    assert offsets(walked(tmp_path / "log", b"".join(parts))) == [0, 2, 4]
    parts[1][3000] ^= 4
    found = walked(tmp_path / "log", b"".join(parts))
    assert offsets(found) == [0, 4]
    assert damage(found)[0].length == len(parts[1])


def test_wild_lengths_cost_neither_memory_nor_time(tmp_path: Path) -> None:
    """A file full of heads that claim nearly all of it: the search stops when it has read the file several times."""
    head = bytearray(batches(1)[0][:61])
    size = 4_000_000
    head[8:12] = (size // 2).to_bytes(4, "big")
    path = tmp_path / "log"
    path.write_bytes(bytes(head) * (size // len(head)))
    with ReadableFile(str(path)) as file:
        walker = LogWalker(file)
        found = list(walker)
    assert not offsets(found)
    assert sum(each.length for each in found) == path.stat().st_size
    assert walker._search_left > -size


def test_random_bytes(tmp_path: Path) -> None:
    chance = random.Random(11)
    for size in (1, 11, 12, 25, 26, 60, 61, 1000, 3_000_000):
        found = walked(tmp_path / "log", chance.randbytes(size))
        assert offsets(found) == []
