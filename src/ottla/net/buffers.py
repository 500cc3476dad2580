"""The receive buffer of a connection: bytes from the socket in, whole frames out, nothing copied."""

from __future__ import annotations

import struct
from collections.abc import Callable

#: An idle connection costs this much.
INITIAL_CAPACITY = 4 * 1024
#: A buffer never grows in one step beyond this multiple of the bytes that arrived (or `FIRST_GROWTH`), so that a
#: size field alone makes nobody allocate.
GROWTH_FACTOR = 2
FIRST_GROWTH = 64 * 1024
#: Beside a large frame there is room for this much of the next one, so that pipelined frames share a `recv`.
READ_AHEAD = 64 * 1024
#: Buffers that no connection uses are kept up to this many bytes.
POOL_LIMIT = 32 * 1024 * 1024

SIZE_FIELD = 4
_SIZE = struct.Struct(">i")


class BufferPool:
    """Large buffers that idle connections gave back, by their power-of-two capacity."""

    __slots__ = ("_free", "_held", "_limit")

    def __init__(self, limit: int = POOL_LIMIT) -> None:
        self._free: dict[int, list[memoryview]] = {}
        self._held = 0
        self._limit = limit

    @property
    def held(self) -> int:
        """Bytes of free buffers."""
        return self._held

    def take(self, capacity: int) -> memoryview:
        """A buffer of `capacity` bytes rounded up to a power of two; its content is arbitrary."""
        rounded = 1 << (capacity - 1).bit_length()
        free = self._free.get(rounded)
        if free:
            self._held -= rounded
            return free.pop()
        return memoryview(bytearray(rounded))

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer for the next taker, or drop it where the pool is full."""
        capacity = len(buffer)
        if self._held + capacity <= self._limit:
            self._held += capacity
            self._free.setdefault(capacity, []).append(buffer)


class ReceiveBuffer:
    """Bytes received and not yet consumed, in one buffer that is replaced when a frame needs more room.

    Frames are memoryviews into the buffer: whoever gets one must be done with its bytes before `consume` is called.
    """

    __slots__ = ("_capacity", "_end", "_pool", "_start", "_view")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._capacity = INITIAL_CAPACITY
        self._view = memoryview(bytearray(INITIAL_CAPACITY))
        self._start = 0
        self._end = 0

    @property
    def capacity(self) -> int:
        """Bytes allocated."""
        return self._capacity

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def has_room(self) -> bool:
        """Whether `fill` can receive at least one byte."""
        return self._end < self._capacity

    def fill(self, recv_into: Callable[[memoryview], int]) -> int:
        """Receive once into the free space; returns the number of bytes, 0 at the end of the stream.

        Raises what `recv_into` raises. There must be room: `make_room` is called after each frame that did not fit.
        """
        received = recv_into(self._view[self._end :])
        self._end += received
        return received

    def next_frame_size(self) -> int | None:
        """The size field of the next frame (a signed 32-bit number, whatever was sent), None before it arrived."""
        if self._end - self._start < SIZE_FIELD:
            return None
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size

    def frame(self, size: int) -> memoryview | None:
        """The next frame's `size` bytes (without the size field), None where they have not all arrived."""
        begin = self._start + SIZE_FIELD
        if self._end - begin < size:
            return None
        return self._view[begin : begin + size]

    def consume(self, size: int) -> bool:
        """Drop the next frame of `size` bytes together with its size field; returns whether any bytes are left."""
        start = self._start + SIZE_FIELD + size
        if start == self._end:
            self._start = self._end = 0
            return False
        self._start = start
        return True

    def make_room(self, size: int) -> None:
        """Make room for more of a frame of `size` bytes: moves what is held to the front, or grows the buffer.

        It grows by what has arrived, not by what was announced, so it may take several calls until all of it fits.
        """
        total = SIZE_FIELD + size
        if self._start + total <= self._capacity:
            return
        held = self._end - self._start
        old = self._view
        if total > self._capacity:
            wanted = total if total <= INITIAL_CAPACITY else total + READ_AHEAD
            allowed = max(GROWTH_FACTOR * held, FIRST_GROWTH)
            grown = wanted if total <= allowed else allowed
            if grown > self._capacity:
                self._view = self._pool.take(grown)
                self._capacity = len(self._view)
        if self._start or self._view is not old:
            self._view[:held] = old[self._start : self._end]
        if self._view is not old and len(old) > INITIAL_CAPACITY:
            self._pool.give_back(old)
        self._start = 0
        self._end = held

    def shrink(self) -> None:
        """Go back to the initial capacity; does nothing while bytes are held."""
        if self._start == self._end and self._capacity > INITIAL_CAPACITY:
            self._pool.give_back(self._view)
            self._capacity = INITIAL_CAPACITY
            self._view = memoryview(bytearray(INITIAL_CAPACITY))
            self._start = self._end = 0

    def release(self) -> None:
        """Give the buffer back for good, when its connection closes."""
        if self._capacity > INITIAL_CAPACITY:
            self._pool.give_back(self._view)
        self._capacity = 0
        self._view = memoryview(b"")
        self._start = self._end = 0
