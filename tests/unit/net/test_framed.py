"""The connection over a byte stream, over a real socket pair, driven by a loop that the test turns by hand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.env.disk import DiskFile, FileSlice, RealDisk
from ottla.env.network import TcpSocket
from ottla.net import framed as connection_module
from ottla.net import responses
from ottla.net.buffers import LARGE_FRAME, BufferPool
from ottla.net.connection import (
    ANONYMOUS,
    REQUESTS_PER_SLICE,
    Connection,
    MadePart,
    Principal,
    QueuedBytes,
)
from ottla.net.framed import WAITING_BYTES_LIMIT, FramedConnection
from ottla.net.streams import PlainStream
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from support.wired_connection import HandLoop, RecordingService, ShortResponses, Wired


@pytest.fixture(params=["plain", "tls"])
def wired(request: pytest.FixtureRequest) -> Iterator[Wired]:
    pair = Wired.of(request.param)
    yield pair
    pair.close()


def test_requests_are_answered_in_order(wired: Wired) -> None:
    wired.send(b"one", b"two", b"", b"three")
    assert wired.received() == b"onetwothree"
    assert wired.service.frames == [b"one", b"two", b"", b"three"]
    assert wired.connection.is_idle


def test_responses_of_one_turn_are_sent_together(wired: Wired) -> None:
    short = ShortResponses(wired)
    wired.send(b"one", b"two", b"", b"three")
    assert wired.received() == b"onetwothree"
    assert short.calls == 1
    wired.send(b"four")
    assert wired.received() == b"four"
    assert short.calls == 2
    assert wired.connection.is_idle


def test_responses_sent_together_keep_their_order(wired: Wired) -> None:
    long = b"l" * (connection_module.HELD_RESPONSE_BYTES + 1)
    ShortResponses(wired)
    wired.send(b"one", b"big", b"two", b"three", long, b"four", b"big")
    assert wired.received() == b"onebig+partstwothree" + long + b"fourbig+parts"
    assert wired.connection.bytes_out == len(b"onebig+partstwothree" + long + b"fourbig+parts")


def test_a_response_does_not_wait_for_a_request_that_stays_in_work(wired: Wired) -> None:
    ShortResponses(wired)
    wired.send(b"one", b"later", b"two")
    assert wired.received() == b"one"
    wired.connection.send_bytes(b"answer")
    assert wired.received() == b"answertwo"


def test_a_refused_frame_takes_no_earlier_response_along(wired: Wired) -> None:
    ShortResponses(wired)
    wired.client.sendall(b"\0\0\0\3one\0\0\0\3two\xff\xff\xff\xff")
    assert wired.received() == b"onetwo"
    assert wired.service.closed == 1


def test_the_last_response_is_sent_with_those_before_it(wired: Wired) -> None:
    short = ShortResponses(wired)

    def answer(frame: bytes) -> None:
        wired.connection.send_bytes(frame)
        if frame == b"last":
            wired.connection.close_when_sent()

    wired.service.answer = answer
    wired.send(b"one", b"last", b"no more")
    assert wired.received() == b"onelast"
    assert wired.service.closed == 1
    assert wired.service.frames == [b"one", b"last"]
    assert short.calls == 1


@pytest.mark.parametrize("last", [b"r", b"later"])
def test_a_client_that_does_not_read_gets_the_responses_sent_together_in_order(wired: Wired, last: bytes) -> None:
    wired.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ShortResponses(wired, times=2000)
    payloads = [bytes([number]) for number in range(40)]
    wired.send(*payloads, last)
    wired.loop.turn()
    assert wired.connection.unsent_parts == 1
    assert not wired.connection.is_idle
    if last == b"later":
        wired.connection.send_bytes(last * 2000)
    assert wired.received() == b"".join(payload * 2000 for payload in [*payloads, last])
    assert wired.connection.is_idle
    wired.send(b"again")
    assert wired.received() == b"again" * 2000


@pytest.mark.parametrize("length", [100, responses.READ_RESPONSE_BYTES + 1])
def test_a_short_range_of_a_file_is_sent_with_its_head_in_one_call(wired: Wired, tmp_path: Path, length: int) -> None:
    short = ShortResponses(wired)
    content = bytes(range(256)) * 20
    released: list[int] = []
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append([content])
    part = FileSlice(file, 7, length, lambda: released.append(1), active=True)
    wired.service.answer = lambda frame: [b"head", part, b"tail"]
    wired.send(b"fetch")
    assert wired.received() == b"head" + content[7 : 7 + length] + b"tail"
    assert released == [1]
    assert (short.calls == 1) == (length == 100)
    file.close()


def test_a_short_range_that_cannot_be_read_closes_the_connection_once(wired: Wired) -> None:
    released: list[int] = []
    disk = FaultyDisk(MemoryDisk())
    file = disk.open("f", create=True)
    file.append([b"0123456789"])
    disk.fail("read")
    wired.service.answer = lambda frame: [b"head", FileSlice(file, 0, 5, lambda: released.append(1))]
    wired.send(b"fetch")
    wired.received()
    assert wired.service.closed == 1
    assert released == [1]


def test_one_request_is_in_work_at_a_time(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"first", b"second")
    wired.loop.settle()
    assert wired.service.frames == [b"first"]
    wired.connection.send([b"answer"])
    wired.loop.settle()
    assert wired.service.frames == [b"first", b"second"]


def test_reading_stops_while_a_request_is_in_work_and_much_waits(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"first")
    wired.loop.settle()
    big = bytes(WAITING_BYTES_LIMIT // 4)
    for _ in range(8):
        try:
            wired.send(big)
        except BlockingIOError:
            break
    wired.loop.settle()
    assert not wired.loop.readers, "the client's further bytes stay in the kernel"
    wired.service.answer = lambda frame: [b"ok"]
    wired.connection.send([b"ok"])
    assert wired.received().startswith(b"okok")


def test_a_client_that_does_not_read_holds_up_only_itself(wired: Wired) -> None:
    huge = bytes(8 << 20)
    wired.service.answer = lambda frame: [huge]
    wired.send(b"a", b"b")
    wired.loop.settle()
    assert wired.service.frames == [b"a"], "the second request waits until the first answer is taken"
    assert wired.connection.unsent_parts == 1
    assert len(wired.received()) == 2 * len(huge)
    assert wired.service.frames == [b"a", b"b"]


@pytest.mark.parametrize("size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_frame_of_a_size_beyond_the_limit_closes(wired: Wired, size: int) -> None:
    wired.client.sendall(size.to_bytes(4, "big", signed=True) + b"x" * 10)
    wired.loop.settle()
    assert wired.service.refused == [size]
    assert wired.service.closed == 1
    assert not wired.loop.readers


def test_a_flood_of_requests_is_worked_off_in_turns(wired: Wired) -> None:
    count = 3 * REQUESTS_PER_SLICE
    wired.send(*[b"r"] * count)
    wired.loop.turn()
    assert len(wired.service.frames) == REQUESTS_PER_SLICE
    assert len(wired.received()) == count


@pytest.mark.spec("R7")
@pytest.mark.parametrize("floods", [2, 16, 40])
def test_one_request_waits_for_few_of_a_flood_over_many_connections(wired: Wired, floods: int) -> None:
    flooding = [Wired(beside=wired) for _ in range(floods)]
    frames = wired.service.frames
    for _ in range(5):
        for each in flooding:
            each.send(*[b"flood"] * (2 * REQUESTS_PER_SLICE))
        wired.loop.turn()
        wired.send(b"mine")
        before = len(frames)
        while b"mine" not in frames[before:]:
            assert wired.loop.turn()
        assert frames.index(b"mine", before) - before <= 2 * max(32, floods)
    for each in flooding:
        assert len(each.received()) == 5 * 2 * REQUESTS_PER_SLICE * len(b"flood"), "and all are answered"
        each.client.close()
        each.connection.close()


def test_large_answers_are_worked_off_in_turns(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_BYTES_PER_SLICE", 4_000)
    wired.service.answer = lambda frame: [frame * 1_000]
    wired.send(*[b"r"] * 10)
    wired.loop.turn()
    assert len(wired.service.frames) == 4
    assert len(wired.received()) == 10_000


def test_the_client_going_away_closes_once_and_drops_the_answer(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"first")
    wired.loop.settle()
    wired.client.close()
    wired.loop.settle()
    assert wired.service.closed == 1
    released = []
    file = MemoryDisk().open("f", create=True)
    wired.connection.send([b"head", FileSlice(file, 0, 5, lambda: released.append(1))])
    assert released == [1]
    wired.connection.close()
    assert wired.service.closed == 1


def test_acks_0_goes_on_without_an_answer(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"first", b"second")
    wired.loop.settle()
    wired.connection.complete()
    wired.loop.settle()
    assert wired.service.frames == [b"first", b"second"]


def test_file_ranges_go_out_between_bytes_and_are_released(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    content = bytes(range(256)) * 20_000
    file.append([content])
    released: list[str] = []

    def parts(frame: bytes) -> list[object]:
        return [
            b"head",
            FileSlice(file, 256, 1_000_000, lambda: released.append("first"), active=True),
            b"middle",
            FileSlice(file, 0, 3, lambda: released.append("second"), active=True),
            b"tail",
        ]

    wired.service.answer = parts
    wired.send(b"fetch")
    got = wired.received()
    for _, _, done in wired.service.read_ahead_calls:
        done()
    got += wired.received()
    assert got == b"head" + content[256 : 256 + 1_000_000] + b"middle" + content[:3] + b"tail"
    assert released == ["first", "second"]
    file.close()


def test_a_file_that_is_too_short_closes_the_connection(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"abc"])
    released: list[int] = []
    wired.service.answer = lambda frame: [b"head", FileSlice(file, 0, 10, lambda: released.append(1), active=True)]
    wired.send(b"fetch")
    wired.loop.settle()
    for _, _, done in wired.service.read_ahead_calls:
        done()
        wired.loop.settle()
    assert wired.service.closed == 1
    assert released == [1]
    file.close()


class ColdFile:
    """A file whose pages are never in memory until they were read ahead."""

    def __init__(self, file: DiskFile) -> None:
        self._file = file
        self.warm = False

    def is_warm(self, position: int, length: int) -> bool:
        return self.warm

    def fileno(self) -> int | None:
        return self._file.fileno()


def test_a_cold_range_waits_for_the_disk_without_holding_the_loop(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"x" * 1000])
    cold = ColdFile(file)
    wired.service.answer = lambda frame: [b"head", FileSlice(cold, 0, 1000)]  # type: ignore[arg-type]
    wired.send(b"fetch")
    assert wired.received() == b"head"
    [(position, length, done)] = wired.service.read_ahead_calls
    assert (position, length) == (0, 1000)
    cold.warm = True
    done()
    assert wired.received() == b"x" * 1000
    assert wired.connection.is_idle
    file.close()


class Pieces:
    """Makes pieces of one byte each, and counts how often it is released."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.released = 0

    def make(self) -> bytes:
        if self.left == 0:
            raise OSError("nothing is left")
        self.left -= 1
        return b"%d" % self.left

    def release(self) -> None:
        self.released += 1


def test_parts_are_made_one_after_the_other_while_they_are_sent(wired: Wired) -> None:
    first, second = Pieces(2), Pieces(1)
    wired.service.answer = lambda frame: [
        b"head",
        MadePart(2, first.make, first.release),
        b"between",
        MadePart(1, second.make, second.release),
        b"end",
    ]
    wired.send(b"fetch", b"next")
    assert wired.received() == b"head"
    assert len(wired.service.making) == 1
    wired.service.make_next()
    assert wired.received() == b"1"
    assert first.released == 0
    wired.service.make_next()
    assert wired.received() == b"0between"
    assert (first.released, second.released) == (1, 0)
    assert wired.service.frames == [b"fetch"]
    wired.service.answer = lambda frame: [b"answer"]
    wired.service.make_next()
    assert wired.received() == b"0endanswer"
    assert (first.released, second.released, wired.connection.is_idle) == (1, 1, True)


def test_a_part_that_cannot_be_made_ends_the_connection(wired: Wired) -> None:
    pieces = Pieces(0)
    wired.service.answer = lambda frame: [b"head", MadePart(3, pieces.make, pieces.release)]
    wired.send(b"fetch")
    wired.loop.settle()
    wired.service.make_next()
    assert (wired.connection.closed, pieces.released) == (True, 1)


def test_a_part_is_released_only_when_the_thread_is_done_with_it(wired: Wired) -> None:
    pieces, never = Pieces(3), Pieces(1)
    wired.service.answer = lambda frame: [
        MadePart(3, pieces.make, pieces.release),
        MadePart(1, never.make, never.release),
    ]
    wired.send(b"fetch")
    wired.loop.settle()
    wired.connection.close()
    assert (pieces.released, never.released) == (0, 1)
    wired.service.make_next()
    assert (pieces.released, wired.service.closed) == (1, 1)


def test_pieces_made_at_once_do_not_pile_up_calls(wired: Wired) -> None:
    pieces = Pieces(5000)
    wired.service.answer = lambda frame: [MadePart(5000, lambda: pieces.make()[:1], pieces.release)]
    wired.service.make = lambda work, done: done(work(), None)  # type: ignore[method-assign]
    wired.send(b"fetch")
    assert len(wired.received()) == 5000
    assert pieces.released == 1


def test_what_was_cold_goes_out_in_small_turns(wired: Wired, tmp_path: Path) -> None:
    length = 5 * responses.COLD_BYTES_PER_SLICE
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"x" * length])
    cold = ColdFile(file)
    wired.service.answer = lambda frame: [FileSlice(cold, 0, length)]  # type: ignore[arg-type]
    wired.send(b"fetch")
    wired.loop.settle()
    [(_, asked, done)] = wired.service.read_ahead_calls
    assert asked == length
    cold.warm = True
    sent = [0]
    done()
    while len(sent) < 100 and wired.connection.bytes_out < length:
        sent.append(wired.connection.bytes_out)
        with suppress(BlockingIOError):
            while wired.client.recv(1 << 20):
                pass
        wired.loop.turn()
    assert max(after - before for before, after in pairwise([*sent, length])) <= responses.COLD_BYTES_PER_SLICE
    assert wired.connection.is_idle
    assert len(wired.service.read_ahead_calls) == 1
    file.close()


def test_read_ahead_that_ends_after_the_client_left_is_harmless(wired: Wired, tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "segment"), create=True)
    file.append([b"x" * 1000])
    wired.service.answer = lambda frame: [FileSlice(ColdFile(file), 0, 1000)]  # type: ignore[arg-type]
    wired.send(b"fetch")
    wired.loop.settle()
    wired.connection.close()
    wired.service.read_ahead_calls[0][2]()
    assert wired.service.closed == 1
    file.close()


def test_close_when_sent_answers_and_then_closes(wired: Wired) -> None:

    wired.service.answer = lambda frame: None
    wired.send(b"last", b"never")
    wired.loop.settle()
    wired.connection.send([b"bye"])
    wired.connection.close_when_sent()
    wired.loop.settle()
    assert wired.client.recv(100) == b"bye"
    assert wired.service.frames == [b"last"]
    assert wired.service.closed == 1


def test_idle_connections_give_large_buffers_back(wired: Wired) -> None:
    wired.send(bytes(200_000))
    wired.received()
    wired.connection.shrink_if_idle()
    wired.send(b"again")
    assert wired.received() == b"again"


def test_idle_time_begins_anew_with_every_byte_that_comes_or_goes(wired: Wired) -> None:
    assert wired.connection.idle_ms(1000) == 1000
    wired.client.send(b"\0")
    wired.loop.settle()
    assert wired.connection.idle_ms(2000) == 0
    assert wired.connection.idle_ms(2500) == 500
    wired.client.send(b"\0\0\1x")
    assert wired.received() == b"x"
    assert wired.connection.idle_ms(3000) == 0
    assert wired.connection.idle_ms(3001) == 1


def test_who_does_not_send_the_rest_of_a_request_is_idle(wired: Wired) -> None:
    wired.client.send(b"\0\0\1\0half")
    wired.loop.settle()
    wired.connection.close_if_idle()
    assert wired.service.closed == 1


def test_who_does_not_take_its_answer_is_idle(wired: Wired) -> None:
    released: list[int] = []
    disk = MemoryDisk()
    disk.mkdirs("/d")
    file = disk.open("/d/segment", create=True)
    file.append([bytes(8 << 20)])
    wired.service.answer = lambda frame: [FileSlice(file, 0, 8 << 20, lambda: released.append(1))]
    wired.send(b"fetch")
    wired.loop.settle()
    assert wired.connection.unsent_parts
    wired.connection.close_if_idle()
    assert (wired.service.closed, released) == (1, [1])


def test_who_waits_for_an_answer_is_not_idle(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"join")
    wired.loop.settle()
    wired.connection.close_if_idle()
    assert not wired.connection.closed


def test_who_is_muted_for_long_is_idle(wired: Wired) -> None:
    """It may have gone, which is not seen while requests of it wait."""

    def throttled(frame: bytes) -> list[object]:
        wired.connection.mute_for(1e9)
        return [frame]

    wired.service.answer = throttled
    wired.send(b"one", b"two")
    assert wired.received() == b"one"
    wired.client.close()
    wired.connection.close_if_broken()
    wired.connection.close_if_idle()
    assert wired.connection.closed


class KeepingService(RecordingService):
    """Keeps the frame of every request, and looks at it when the request is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[memoryview] = []

    def handle_frame(self, connection: Connection, frame: memoryview) -> None:
        connection.keep_frame()
        self.kept.append(frame)
        self.frames.append(bytes(frame))
        parts = self.answer(bytes(frame))
        if parts is not None:
            connection.send(parts)  # type: ignore[arg-type]


@pytest.fixture
def keeping(wired: Wired) -> Wired:
    service = KeepingService()
    wired.service = service
    wired.connection._service = service
    return wired


def test_a_frame_that_is_kept_stays_as_it_is_until_the_answer(keeping: Wired) -> None:
    keeping.service.answer = lambda frame: None
    keeping.send(b"first" * 1000, b"second" * 100)
    keeping.loop.settle()
    keeping.send(b"third")
    keeping.loop.settle()
    assert keeping.service.frames == [b"first" * 1000]
    assert keeping.service.queued.held == 5000
    assert bytes(keeping.service.kept[0]) == b"first" * 1000, "further bytes went behind it"
    keeping.connection.send([b"a"])
    keeping.loop.settle()
    assert keeping.service.frames[1:] == [b"second" * 100]
    assert keeping.service.queued.held == 600
    keeping.service.answer = lambda frame: [b"b"]
    keeping.connection.send([b"a"])
    assert keeping.received() == b"aab"
    assert keeping.service.frames[2:] == [b"third"]
    assert keeping.service.queued.held == 0
    assert keeping.connection.is_idle


def test_a_kept_frame_is_not_used_again_when_its_connection_closes(keeping: Wired) -> None:
    pool = keeping.pool
    keeping.service.answer = lambda frame: None
    keeping.send(bytes(range(256)) * 40)
    keeping.loop.settle()
    keeping.connection.close()
    assert keeping.service.queued.held == 0
    assert pool.held == 0
    assert bytes(keeping.service.kept[0]) == bytes(range(256)) * 40


def send_in_pieces(wired: Wired, payload: bytes) -> None:
    """Send more than the socket's buffers hold."""
    data = memoryview(len(payload).to_bytes(4, "big") + payload)
    while data:
        data = data[wired.client.send(data[: 32 * 1024]) :]
        wired.loop.settle()


def test_a_client_that_leaves_during_a_large_request_is_noticed(keeping: Wired) -> None:
    """The buffer is full of the kept frame, so nothing is read that would show the end."""
    keeping.service.answer = lambda frame: None
    send_in_pieces(keeping, bytes(LARGE_FRAME))
    keeping.connection.close_if_broken()
    assert not keeping.connection.closed
    keeping.client.close()
    keeping.loop.settle()
    keeping.connection.close_if_broken()
    assert keeping.connection.closed
    assert keeping.service.closed == 1


def test_requests_sent_before_the_client_left_are_handled(wired: Wired) -> None:
    """Produce with acks=0 waits for no answer."""
    wired.service.answer = lambda frame: None
    wired.send(b"first", *[b"x" * 8000] * (WAITING_BYTES_LIMIT // 8000 + 1))
    wired.client.close()
    wired.loop.settle()
    wired.connection.close_if_broken()
    assert not wired.connection.closed
    wired.service.answer = lambda frame: (wired.connection.complete(), None)[1]
    wired.connection.complete()
    wired.loop.settle()
    assert len(wired.service.frames) == WAITING_BYTES_LIMIT // 8000 + 2
    assert wired.connection.closed


def test_reading_stops_in_the_middle_of_a_request_while_too_much_is_kept(wired: Wired) -> None:
    wired.service.queued = QueuedBytes(10)
    wired.service.queued.add(10)
    wired.client.sendall((20_000).to_bytes(4, "big") + bytes(5_000))
    wired.loop.settle()
    assert not wired.loop.readers
    wired.send(b"")
    wired.loop.settle()
    wired.service.queued.remove(10)
    wired.client.sendall(bytes(15_000 - 4))
    assert len(wired.received()) == 20_000
    wired.service.queued.add(10)
    wired.client.sendall((20_000).to_bytes(4, "big") + bytes(5_000))
    wired.loop.settle()
    wired.connection.close()
    wired.service.queued.remove(10)
    wired.loop.settle()


def test_a_muted_connection_answers_and_then_waits(wired: Wired) -> None:
    def throttled(frame: bytes) -> list[object]:
        wired.connection.mute_for(250)
        return [frame]

    wired.service.answer = throttled
    wired.send(b"one", b"two")
    assert wired.received() == b"one"
    assert not wired.loop.readers, "nothing is read meanwhile"
    ((delay_s, unmute),) = wired.loop.later
    assert delay_s == 0.25
    wired.service.answer = lambda frame: [frame]
    wired.send(b"three")
    wired.loop.settle()
    assert wired.service.frames == [b"one"]
    unmute()
    assert wired.received() == b"twothree"


def test_a_connection_is_muted_before_a_late_answer_and_after_it(wired: Wired) -> None:
    wired.service.answer = lambda frame: None
    wired.send(b"one")
    wired.loop.settle()
    wired.connection.mute_for(100)
    ((_, unmute),) = wired.loop.later
    unmute()
    wired.connection.send([b"1"])
    wired.send(b"two")
    assert wired.received() == b"1"
    assert wired.service.frames == [b"one", b"two"], "the time was over before the answer"
    wired.connection.mute_for(100)
    wired.connection.complete()
    wired.send(b"three")
    wired.loop.settle()
    assert wired.service.frames == [b"one", b"two"]
    del wired.loop.later[0]
    wired.connection.close()
    assert not wired.loop.later, "a throttle may be of days: its timer does not keep the connection"


def test_before_authentication_requests_are_small() -> None:
    ours, client = socket.socketpair()
    ours.setblocking(False)
    loop, service = HandLoop(), RecordingService()
    service.limit = 1 << 30
    stream = PlainStream(loop, TcpSocket(ours, "127.0.0.1", 1))
    connection = FramedConnection(loop, stream, service, "SASL", BufferPool(), principal=None)
    assert connection.principal is None
    assert connection.frame_limit == service.limit_before_login
    connection.set_principal(Principal("User", "ann"))
    assert str(connection.principal) == "User:ann"
    assert connection.frame_limit == 1 << 30
    connection.close()
    client.close()
    assert str(ANONYMOUS) == "User:ANONYMOUS"
