"""Responses with several file ranges: read together, sent in one call, and what is left of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.env.disk import DiskFile, FileSlice, RealDisk
from ottla.net.buffers import BufferPool
from ottla.net.connection import MadePart, Part
from ottla.net.gathering import GATHERED_RESPONSE_BYTES, gather, unsent
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.wired_connection import ShortResponses, Wired

pytestmark = pytest.mark.spec("R2")

CONTENT = bytes(range(251)) * 40


class Released:
    """Ranges of a file, and which of them were released."""

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self.positions: list[int] = []

    def range(self, position: int, length: int) -> FileSlice:
        return FileSlice(self.file, position, length, lambda: self.positions.append(position))

    def response(self) -> list[Part]:
        return [b"head", self.range(0, 300), b"-", self.range(1000, 2000), b"tail"]


WHOLE = b"head" + CONTENT[:300] + b"-" + CONTENT[1000:3000] + b"tail"


@pytest.fixture(params=["real", "memory"])
def ranges(request: pytest.FixtureRequest, tmp_path: Path) -> Released:
    disk = RealDisk() if request.param == "real" else MemoryDisk()
    disk.mkdirs(str(tmp_path))
    file = disk.open(str(tmp_path / "segment"), create=True)
    file.append([CONTENT])
    return Released(file)


@pytest.fixture(params=["plain", "tls"])
def wired(request: pytest.FixtureRequest) -> Iterator[Wired]:
    pair = Wired.of(request.param)
    pair.connection.gathers_ranges = True
    yield pair
    pair.close()


def read(parts: Sequence[Part]) -> bytes:
    pieces: list[bytes] = []
    for part in parts:
        assert not isinstance(part, MadePart)
        pieces.append(part.read() if isinstance(part, FileSlice) else bytes(part))
    return b"".join(pieces)


def test_a_response_is_read_as_one(ranges: Released) -> None:
    pool = BufferPool()
    gathered = gather(ranges.response(), pool)
    assert gathered is not None
    buffer, length = gathered
    assert bytes(buffer[:length]) == WHOLE
    assert not ranges.positions, "what is not sent yet is not released"
    pool.give_back(buffer, lent=True)
    assert pool.lent == 0
    again = gather(ranges.response(), pool)
    assert again is not None
    assert again[0] is buffer, "the buffer is used again"


def test_what_is_sent_as_before(ranges: Released) -> None:
    pool = BufferPool()
    assert gather([b"head", ranges.range(0, 300)], pool) is None, "one range: sendfile takes no longer"
    assert gather([b"head", b"tail"], pool) is None
    assert gather([*ranges.response(), MadePart(1, lambda: b"", lambda: None)], pool) is None
    assert gather([*ranges.response(), bytes(GATHERED_RESPONSE_BYTES)], pool) is None
    assert gather([*ranges.response(), ranges.range(len(CONTENT) - 1, 2)], pool) is None, "the file is too short"
    assert pool.lent == 0
    assert not ranges.positions


def test_a_range_that_is_not_in_the_page_cache_or_cannot_be_read(tmp_path: Path) -> None:
    disk = FaultyDisk(RealDisk())
    file = disk.open(str(tmp_path / "segment"), create=True)
    file.append([CONTENT])
    ranges, pool = Released(file), BufferPool()
    disk.fail("read")
    assert gather(ranges.response(), pool) is None
    disk.heal()
    assert gather(ranges.response(), pool) is not None


def test_what_is_left_begins_at_any_byte(ranges: Released) -> None:
    for sent in range(0, len(WHOLE) + 1, 7):
        parts = ranges.response()
        left = unsent(parts, sent)
        assert read(left) == WHOLE[sent:]
        released, ranges.positions = ranges.positions, []
        expected = [at for at, end in ((0, 304), (1000, 2305)) if sent >= end]
        assert released == expected, "released once, where it is sent whole"


def test_what_is_left_can_be_divided_again(ranges: Released) -> None:
    parts: Sequence[Part] = ranges.response()
    for before, after in pairwise(range(0, len(WHOLE) + 100, 100)):
        parts = unsent(parts, after - before)
        assert read(parts) == WHOLE[after:]
    assert ranges.positions == [0, 1000]


def test_a_response_with_several_ranges_is_sent_in_one_call(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"abc" * 10_000])
    released: list[int] = []

    def answer(frame: bytes) -> list[object]:
        first = FileSlice(file, 0, 15_000, lambda: released.append(1))
        return [frame, first, b"+", FileSlice(file, 15_000, 15_000, lambda: released.append(2))]

    short = ShortResponses(wired)
    wired.service.answer = answer
    wired.send(b"fetch")
    assert wired.received() == b"fetch" + b"abc" * 5_000 + b"+" + b"abc" * 5_000
    assert short.calls == 1
    assert released == [1, 2]
    assert wired.connection.bytes_out == 30_006
    assert wired.connection.is_idle


def test_a_response_with_several_ranges_that_the_socket_does_not_take_at_once(wired: Wired, tmp_path: Path) -> None:
    wired.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    content = bytes(range(250)) * 800
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([content])
    released: list[int] = []

    def answer(frame: bytes) -> list[object]:
        first = FileSlice(file, 0, 100_000, lambda: released.append(1))
        return [frame, first, FileSlice(file, 100_000, 100_000, lambda: released.append(2))]

    wired.service.answer = answer
    wired.send(b"one", b"two")
    assert wired.received() == b"one" + content + b"two" + content
    assert released == [1, 2, 1, 2]
    assert wired.connection.is_idle


def test_a_client_that_is_gone_gets_no_response_with_several_ranges(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"abc" * 10_000])
    released: list[int] = []

    def answer(frame: bytes) -> list[object]:
        wired.client.close()
        first = FileSlice(file, 0, 15_000, lambda: released.append(1))
        return [frame, first, FileSlice(file, 15_000, 15_000, lambda: released.append(2))]

    wired.service.answer = answer
    wired.send(b"fetch")
    wired.loop.settle()
    assert released == [1, 2]
    assert wired.connection.closed
