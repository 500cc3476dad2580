"""The receive buffer: frames out of a stream of bytes, growth bounded by what arrived."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Callable

import pytest

from ottla.net.buffers import (
    FIRST_GROWTH,
    GROWTH_SHARE,
    INITIAL_CAPACITY,
    LARGE_FRAME,
    LARGEST_LOAN,
    POOL_LIMIT,
    READ_AHEAD,
    SIZE_FIELD,
    BufferPool,
    ReceiveBuffer,
)

LARGEST_FRAME = 1 << 30


def source(data: bytes, chunk: Callable[[], int]) -> Callable[[memoryview], int]:
    """A `recv_into` that hands out `data` in pieces."""
    left = memoryview(data)

    def recv_into(view: memoryview) -> int:
        nonlocal left
        assert len(view) > 0, "receiving into no room looks like the end of the stream"
        size = min(chunk(), len(view), len(left))
        view[:size] = left[:size]
        left = left[size:]
        return size

    return recv_into


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def drain(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while True:
        frame = buffer.next_frame(LARGEST_FRAME)
        if frame is None:
            buffer.make_room(buffer.next_frame_size() or 0)
            return frames
        frames.append(bytes(frame))
        buffer.consume(len(frame))


def test_a_large_frame_is_received_to_its_end_and_begins_the_buffer() -> None:
    """Of equal large frames in a row each comes with one call, to the front, and nothing is moved."""
    large, small = framed(bytes(2 * LARGE_FRAME)), framed(b"small")
    data = large * 6 + small * 3 + large * 2
    taken: list[int] = []
    receive = source(data, lambda: 1 << 30)

    def recv_into(view: memoryview) -> int:
        taken.append(receive(view))
        return taken[-1]

    buffer = ReceiveBuffer(BufferPool())
    frames: list[bytes] = []
    while sum(taken) < len(data):
        buffer.fill(recv_into)
        frames += drain(buffer)
    assert frames == [each[SIZE_FIELD:] for each in (*[large] * 6, *[small] * 3, *[large] * 2)]
    assert taken.count(len(large)) >= 4


@pytest.mark.parametrize("seed", range(20))
def test_frames_survive_any_cut_of_the_stream(seed: int) -> None:
    rng = random.Random(seed)
    payloads = [
        rng.randbytes(
            rng.choice([0, 1, 3, 100, 4000, 4092, 4093, 70_000, 200_000, LARGE_FRAME - 4, LARGE_FRAME, 600_000])
        )
        for _ in range(30)
    ]
    stream = b"".join(framed(payload) for payload in payloads)
    recv_into = source(stream, lambda: rng.choice([1, 7, 1000, 4096, 65_536, 1_000_000]))
    buffer = ReceiveBuffer(BufferPool())
    received: list[bytes] = []
    while buffer.fill(recv_into):
        received += drain(buffer)
        if len(received) == len(payloads):
            break
    assert received == payloads
    assert len(buffer) == 0


def test_a_size_field_alone_allocates_little() -> None:
    buffer = ReceiveBuffer(BufferPool())
    announced = 100 * 1024 * 1024
    buffer.fill(source(announced.to_bytes(4, "big"), lambda: 4))
    buffer.make_room(announced)
    assert buffer.capacity <= SIZE_FIELD + FIRST_GROWTH


def test_growth_follows_what_arrived() -> None:
    buffer = ReceiveBuffer(BufferPool())
    announced = 64 * 1024 * 1024
    recv_into = source(announced.to_bytes(4, "big") + bytes(3_000_000), lambda: 1_000_000)
    while buffer.fill(recv_into):
        held = len(buffer)
        buffer.make_room(announced)
        assert buffer.has_room
        assert buffer.capacity <= held + max(held // GROWTH_SHARE, FIRST_GROWTH)


def test_a_frame_that_stays_incomplete_holds_about_what_arrived() -> None:
    """Many connections, each with a part of an announced frame: the broker holds little more than it received."""
    arrived = 200_000
    buffers = []
    tracemalloc.start()
    try:
        pool = BufferPool()
        data = (64 * 1024 * 1024).to_bytes(4, "big") + bytes(arrived)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            buffer = ReceiveBuffer(pool)
            recv_into = source(data, lambda: 16_384)
            while len(buffer) < len(data):
                buffer.fill(recv_into)
                buffer.make_room(64 * 1024 * 1024)
            buffers.append(buffer)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # The list of free memory behind a bytearray that grew is up to an eighth of it.
    assert held < 20 * arrived * 1.3


def test_a_buffer_grows_while_somebody_looks_at_it() -> None:
    buffer = ReceiveBuffer(BufferPool())
    small, large = bytes(range(100)), bytes(range(256)) * 400
    stream = framed(small) + framed(large)
    recv_into = source(stream, lambda: 4096)
    buffer.fill(recv_into)
    seen = buffer.next_frame(LARGEST_FRAME)
    assert seen is not None
    while len(buffer) < len(stream):
        buffer.make_room(len(stream) - SIZE_FIELD)
        buffer.fill(recv_into)
    assert drain(buffer) == [small, large]
    assert bytes(seen) == small


@pytest.mark.parametrize(
    ("stream", "limit", "found"),
    [
        (framed(b"abc"), 3, b"abc"),
        (framed(b""), 0, b""),
        (framed(b"abc"), 2, None),
        (framed(b"abc")[:-1], 3, None),
        (framed(b"abc")[:3], 3, None),
        (b"", 3, None),
        (b"\xff\xff\xff\xff" + b"abc", 3, None),
    ],
)
def test_a_frame_is_given_out_whole_and_within_the_limit(stream: bytes, limit: int, found: bytes | None) -> None:
    buffer = ReceiveBuffer(BufferPool())
    if stream:
        buffer.fill(source(stream, lambda: 100))
    frame = buffer.next_frame(limit)
    assert (None if frame is None else bytes(frame)) == found


def test_a_large_frame_leaves_room_for_the_next_one() -> None:
    buffer = ReceiveBuffer(BufferPool())
    payload = bytes(500_000)
    recv_into = source(framed(payload), lambda: 1 << 20)
    while buffer.fill(recv_into):
        if drain(buffer):
            break
    assert buffer.capacity >= len(payload) + READ_AHEAD


def test_negative_size_is_reported_as_sent() -> None:
    buffer = ReceiveBuffer(BufferPool())
    buffer.fill(source(b"\xff\xff\xff\xff", lambda: 4))
    assert buffer.next_frame_size() == -1


def test_shrink_gives_a_large_buffer_back_and_only_when_empty() -> None:
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    recv_into = source(framed(bytes(300_000)) + b"\0", lambda: 1 << 20)
    while buffer.fill(recv_into):
        if drain(buffer):
            break
    while len(buffer) == 0:
        buffer.fill(recv_into)
    buffer.shrink()
    assert buffer.capacity > INITIAL_CAPACITY, "a byte is held"
    held_before = pool.held
    other = ReceiveBuffer(pool)
    other.fill(source(framed(b"x"), lambda: 5))
    drain(other)
    other.shrink()
    assert pool.held == held_before, "a small buffer is not pooled"
    buffer.release()
    assert pool.held > held_before


def test_the_pool_lends_the_smallest_buffer_that_fits_and_is_bounded() -> None:
    pool = BufferPool()
    assert pool.borrow(1_000) is None
    large, small = bytearray(300_000), bytearray(100_000)
    for buffer in (large, small):
        pool.give_back(buffer, lent=False)
    assert pool.held == 400_000
    assert pool.borrow(100_000) is small
    assert (pool.held, pool.lent) == (300_000, 100_000)
    assert pool.borrow(300_001) is None
    assert pool.borrow(300_000 // LARGEST_LOAN) is None, "far too large"
    assert pool.borrow(200_000) is large
    pool.give_back(small, lent=True)
    pool.forget(large)
    assert (pool.held, pool.lent) == (100_000, 0)
    small_pool = BufferPool(limit=1 << 20)
    for _ in range(20):
        small_pool.give_back(bytearray(1 << 18), lent=False)
    assert small_pool.held == 1 << 20
    assert POOL_LIMIT > 0


def receive(buffer: ReceiveBuffer, stream: bytes, chunk: int) -> int:
    """Receive one frame; return the number of receives."""
    recv_into = source(stream, lambda: chunk)
    for count in itertools.count(1):
        assert buffer.fill(recv_into)
        if drain(buffer):
            return count
    raise AssertionError


def test_the_next_connection_receives_a_large_frame_in_a_buffer_of_the_pool() -> None:
    """Growth costs a receive for each step; a frame as large as earlier ones needs none of it."""
    pool = BufferPool()
    stream = framed(bytes(1_000_000))
    first = ReceiveBuffer(pool)
    assert receive(first, stream, 1 << 20) > 10
    capacity = first.capacity
    first.release()
    for _ in range(3):
        buffer = ReceiveBuffer(pool)
        assert receive(buffer, stream, 1 << 20) == 2
        assert (buffer.capacity, pool.held) == (capacity, 0)
        buffer.release()
        assert (pool.held, pool.lent) == (capacity, 0)


def test_frames_announced_in_lent_buffers_hold_no_more_than_the_pool() -> None:
    """Buffers lent for frames that never arrive stay within the pool's limit, however often others refill it."""
    size = 1_000_000
    pool = BufferPool(limit=5 * (size + READ_AHEAD))
    waiting = []
    for _ in range(20):
        honest = ReceiveBuffer(pool)
        receive(honest, framed(bytes(size)), 1 << 20)
        honest.release()
        announced = ReceiveBuffer(pool)
        announced.fill(source(size.to_bytes(4, "big"), lambda: 4))
        announced.make_room(size)
        waiting.append(announced)
    assert pool.lent > 0
    assert pool.held + pool.lent <= 5 * (size + READ_AHEAD + SIZE_FIELD)
    # The others grew with what had arrived.
    assert sum(buffer.capacity for buffer in waiting) <= pool.lent + 20 * (SIZE_FIELD + FIRST_GROWTH)
    for buffer in waiting:
        buffer.release(reuse=False)
    assert pool.lent == 0


def test_a_lent_buffer_that_is_too_small_goes_back_to_the_pool() -> None:
    pool = BufferPool()
    lent = bytearray(200_000)
    pool.give_back(lent, lent=False)
    buffer = ReceiveBuffer(pool)
    payload = bytes(range(256)) * 2_000
    stream = framed(bytes(100_000)) + framed(payload)
    recv_into = source(stream, lambda: 150_000)
    received: list[bytes] = []
    while len(received) < 2:
        assert buffer.fill(recv_into)
        received += drain(buffer)
    assert received == [bytes(100_000), payload]
    assert pool.borrow(200_000) is lent
