"""The receive buffer of a connection: bytes from the socket in, whole frames out, nothing copied."""

from __future__ import annotations

import struct
from collections.abc import Callable

#: An idle connection costs this much.
INITIAL_CAPACITY = 4 * 1024
#: While a frame is incomplete, its buffer has room for this share of the bytes received, or for `FIRST_GROWTH` bytes,
#: so that neither a size field nor a slow sender makes the broker hold much more than it received.
GROWTH_SHARE = 8
FIRST_GROWTH = 16 * 1024
#: Room kept behind a large frame for the start of the next one, so that pipelined frames share a `recv`.
READ_AHEAD = 64 * 1024
#: Unused buffers are pooled up to this many bytes.
POOL_LIMIT = 32 * 1024 * 1024

SIZE_FIELD = 4
_SIZE = struct.Struct(">i")


class BufferPool:
    """Pool of large buffers that idle connections gave back, by the power of two below their capacity."""

    __slots__ = ("_free", "_held", "_limit")

    def __init__(self, limit: int = POOL_LIMIT) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._held = 0
        self._limit = limit

    @property
    def held(self) -> int:
        """Bytes of pooled buffers."""
        return self._held

    def take(self, capacity: int) -> bytearray:
        """Return a buffer of at least `capacity` bytes and less than four times as many; its content is arbitrary."""
        free = self._free.get((capacity - 1).bit_length())
        if free:
            buffer = free.pop()
            self._held -= len(buffer)
            return buffer
        return bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer to the pool; it is dropped if the pool is full."""
        capacity = len(buffer)
        if self._held + capacity <= self._limit:
            self._held += capacity
            self._free.setdefault(capacity.bit_length() - 1, []).append(buffer)


class ReceiveBuffer:
    """Bytes received and not yet consumed, in one buffer that grows when a frame needs more room.

    Frames are memoryviews into the buffer: a caller must not use one after it has called `consume`.
    """

    __slots__ = ("_capacity", "_end", "_memory", "_pool", "_start", "_view", "is_followed")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._memory = bytearray(INITIAL_CAPACITY)
        self._capacity = INITIAL_CAPACITY
        self._view = memoryview(self._memory)
        self._start = 0
        self._end = 0
        #: Whether bytes of another frame follow the one that `next_frame` returned.
        self.is_followed = False

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
        """Receive once into the free space; return the number of bytes, 0 at the end of the stream.

        Raises what `recv_into` raises. There must be room: call `make_room` after each frame that did not fit.
        """
        received = recv_into(self._view[self._end :])
        self._end += received
        return received

    def next_frame(self, limit: int) -> memoryview | None:
        """The next frame (without its size field) if it has arrived whole and has at most `limit` bytes, else None."""
        begin = self._start + SIZE_FIELD
        arrived = self._end - begin
        if arrived < 0:
            return None
        (size,) = _SIZE.unpack_from(self._view, self._start)
        if 0 <= size <= arrived and size <= limit:
            self.is_followed = size < arrived
            return self._view[begin : begin + size]
        return None

    def next_frame_size(self) -> int | None:
        """The size field of the next frame, as a signed 32-bit number, not checked; None if it has not arrived."""
        if self._end - self._start < SIZE_FIELD:
            return None
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size

    def consume(self, size: int) -> bool:
        """Drop the next frame of `size` bytes with its size field; return whether any bytes are left."""
        start = self._start + SIZE_FIELD + size
        if start == self._end:
            self._start = self._end = 0
            return False
        self._start = start
        return True

    def make_room(self, size: int) -> None:
        """Make room for more of a frame of `size` bytes: move the held bytes to the front, or grow the buffer.

        The buffer grows with the bytes received, not with the announced size, so a large frame needs several calls.
        """
        total = SIZE_FIELD + size
        if self._start + total <= self._capacity:
            return
        held = self._end - self._start
        if self._start:
            self._view[:held] = self._view[self._start : self._end]
            self._start = 0
            self._end = held
        if total <= self._capacity:
            return
        wanted = total if total <= INITIAL_CAPACITY else total + READ_AHEAD
        allowed = held + max(held // GROWTH_SHARE, FIRST_GROWTH)
        if total <= allowed:
            self._replace(self._pool.take(wanted))
        elif allowed > self._capacity:
            self._extend(allowed - self._capacity)

    def _extend(self, more: int) -> None:
        """Grow in place if no view of the buffer is left, so that large blocks are not copied."""
        self._view.release()
        try:
            self._memory.extend(bytes(more))
        except BufferError:
            self._view = memoryview(self._memory)
            self._replace(bytearray(self._capacity + more))
        else:
            self._capacity += more
            self._view = memoryview(self._memory)

    def _replace(self, memory: bytearray) -> None:
        """Switch to another buffer and copy the held bytes into it."""
        view = memoryview(memory)
        view[: self._end] = self._view[: self._end]
        self._give_back()
        self._memory, self._view, self._capacity = memory, view, len(memory)

    def _give_back(self) -> None:
        if self._capacity > INITIAL_CAPACITY:
            self._pool.give_back(self._memory)

    def shrink(self) -> None:
        """Go back to the initial capacity; no effect while bytes are held."""
        if self._start == self._end and self._capacity > INITIAL_CAPACITY:
            self._start = self._end = 0
            self._replace(bytearray(INITIAL_CAPACITY))

    def release(self, *, reuse: bool = True) -> None:
        """Give up the buffer when its connection closes. With `reuse`, nothing refers to its content any more."""
        if reuse:
            self._give_back()
        self._memory = bytearray()
        self._view = memoryview(self._memory)
        self._capacity = 0
        self._start = self._end = 0
