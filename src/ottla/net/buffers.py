"""The receive buffer of a connection: bytes from the socket in, whole frames out, nothing copied."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable

#: An idle connection costs this much.
INITIAL_CAPACITY = 4 * 1024
#: While a frame is incomplete, its buffer has room for this share of the bytes received, or for `FIRST_GROWTH` bytes,
#: so that neither a size field nor a slow sender makes the broker hold much more than it received.
GROWTH_SHARE = 8
FIRST_GROWTH = 16 * 1024
#: Room kept behind a frame for the start of the next one, so that pipelined frames share a `recv`.
READ_AHEAD = 64 * 1024
#: A larger frame is received up to its end only: what came of the next one would have to be moved.
LARGE_FRAME = 512 * 1024
#: The pool keeps at most this many bytes, unused or lent.
POOL_LIMIT = 32 * 1024 * 1024
#: A pooled buffer is lent if it is less than this many times as large as needed.
LARGEST_LOAN = 4

SIZE_FIELD = 4
_SIZE = struct.Struct(">i")


class BufferPool:
    """Large buffers that closed or idle connections gave back, lent to others.

    A lent buffer holds no memory that the broker does not hold already, so a frame may have one before its bytes have
    arrived. Therefore lent buffers count toward the limit until they come back.
    """

    __slots__ = ("_capacities", "_free", "_held", "_lent", "_limit")

    def __init__(self, limit: int = POOL_LIMIT) -> None:
        #: By capacity, which `_capacities` repeats.
        self._free: list[bytearray] = []
        self._capacities: list[int] = []
        self._held = 0
        self._lent = 0
        self._limit = limit

    @property
    def held(self) -> int:
        """Bytes of unused buffers."""
        return self._held

    @property
    def lent(self) -> int:
        """Bytes of buffers that connections have borrowed."""
        return self._lent

    def borrow(self, capacity: int) -> bytearray | None:
        """The smallest unused buffer of at least `capacity` bytes, with arbitrary content; None if there is none."""
        place = bisect_left(self._capacities, capacity)
        if place == len(self._free) or self._capacities[place] >= LARGEST_LOAN * capacity:
            return None
        found = self._capacities.pop(place)
        self._held -= found
        self._lent += found
        return self._free.pop(place)

    def new(self, capacity: int) -> bytearray:
        """A buffer of `capacity` bytes, lent: for one that `borrow` did not find."""
        self._lent += capacity
        return bytearray(capacity)

    def give_back(self, buffer: bytearray, *, lent: bool) -> None:
        """Pool a buffer that is not used any more, `lent` or not; it is dropped if the pool is full."""
        capacity = len(buffer)
        if lent:
            self._lent -= capacity
        if self._held + self._lent + capacity <= self._limit:
            self._held += capacity
            place = bisect_left(self._capacities, capacity)
            self._capacities.insert(place, capacity)
            self._free.insert(place, buffer)

    def forget(self, buffer: bytearray) -> None:
        """Count a lent buffer no longer, since it does not come back."""
        self._lent -= len(buffer)


class ReceiveBuffer:
    """Bytes received and not yet consumed, in one buffer that grows when a frame needs more room.

    Frames are memoryviews into the buffer: a caller must not use one after it has called `consume`.
    """

    __slots__ = ("_capacity", "_end", "_fill_to", "_is_lent", "_memory", "_pool", "_start", "_view", "is_followed")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._memory = bytearray(INITIAL_CAPACITY)
        self._capacity = INITIAL_CAPACITY
        #: Whether the memory is the pool's.
        self._is_lent = False
        self._view = memoryview(self._memory)
        self._start = 0
        self._end = 0
        #: Where `fill` stops: at the end of the buffer, or at that of a large frame.
        self._fill_to = INITIAL_CAPACITY
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
        return self._end < self._fill_to

    def fill(self, recv_into: Callable[[memoryview], int]) -> int:
        """Receive once into the free space; return the number of bytes, 0 at the end of the stream.

        Raises what `recv_into` raises. There must be room: call `make_room` after each frame that did not fit.
        """
        received = recv_into(self._view[self._end : self._fill_to])
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

        Unless the pool has a buffer for the frame, the buffer grows with the bytes received, not with the announced
        size, so a large frame needs several calls.
        """
        total = SIZE_FIELD + size
        self._make_room(total)
        self._fill_to = min(self._capacity, self._start + total) if total > LARGE_FRAME else self._capacity

    def _make_room(self, total: int) -> None:
        if self._start + total <= self._capacity:
            return
        held = self._end - self._start
        if self._start:
            self._view[:held] = self._view[self._start : self._end]
            self._start = 0
            self._end = held
        if total <= self._capacity:
            return
        wanted = total if total <= INITIAL_CAPACITY or total > LARGE_FRAME else total + READ_AHEAD
        pooled = self._pool.borrow(wanted)
        if pooled is not None:
            self._replace(pooled, lent=True)
            return
        allowed = held + max(held // GROWTH_SHARE, FIRST_GROWTH)
        grown = wanted if total <= allowed else allowed
        if grown > self._capacity:
            self._extend(grown - self._capacity)

    def _extend(self, more: int) -> None:
        """Grow in place if no view of the buffer is left, so that large blocks are not copied."""
        if self._is_lent:
            # What the pool lent comes back as large as it was.
            self._replace(bytearray(self._capacity + more), lent=False)
            return
        self._view.release()
        try:
            self._memory.extend(bytes(more))
        except BufferError:
            self._view = memoryview(self._memory)
            self._replace(bytearray(self._capacity + more), lent=False)
        else:
            self._capacity = self._fill_to = self._capacity + more
            self._view = memoryview(self._memory)

    def _replace(self, memory: bytearray, *, lent: bool) -> None:
        """Switch to another buffer and copy the held bytes into it."""
        view = memoryview(memory)
        view[: self._end] = self._view[: self._end]
        self._give_back()
        self._memory, self._view, self._capacity, self._is_lent = memory, view, len(memory), lent
        self._fill_to = self._capacity

    def _give_back(self) -> None:
        if self._capacity > INITIAL_CAPACITY:
            self._pool.give_back(self._memory, lent=self._is_lent)

    def shrink(self) -> None:
        """Go back to the initial capacity; no effect while bytes are held."""
        if self._start == self._end and self._capacity > INITIAL_CAPACITY:
            self._start = self._end = 0
            self._replace(bytearray(INITIAL_CAPACITY), lent=False)

    def release(self, *, reuse: bool = True) -> None:
        """Give up the buffer when its connection closes. With `reuse`, nothing refers to its content any more."""
        if reuse:
            self._give_back()
        elif self._is_lent:
            self._pool.forget(self._memory)
        self._memory = bytearray()
        self._view = memoryview(self._memory)
        self._capacity = 0
        self._is_lent = False
        self._start = self._end = 0
