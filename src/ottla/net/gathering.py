"""The file ranges of a response to several partitions, read together so that one call sends them all.

`sendfile` takes one range at a time, so that each range of such a response costs two calls and wakes its receiver. For
ranges of a batch each, as followers get them, that takes twice the processor time of one call that sends from memory,
on both sides. What clients fetch is not read: large ranges, or a single one, gain nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.env.disk import DiskError, FileSlice
from ottla.net.buffers import BufferPool
from ottla.net.connection import MadePart, Part

#: A response of up to this size with several file ranges is read, where they are in the page cache, and sent in one
#: call. A system's send buffer takes about as much.
GATHERED_RESPONSE_BYTES: Final = 512 * 1024


def gather(parts: Sequence[Part], pool: BufferPool) -> tuple[bytearray, int] | None:
    """A buffer with all bytes of a response, and their number; the caller gives it back to the pool, as lent.

    None if the response has not several file ranges, is large, or is not all in the page cache.
    """
    total = slices = 0
    for part in parts:
        if isinstance(part, FileSlice):
            slices += 1
            total += part.length
        elif isinstance(part, MadePart):
            return None
        else:
            total += len(part)
    if slices < 2 or total > GATHERED_RESPONSE_BYTES:
        return None
    buffer = pool.borrow(total)
    if buffer is None:
        buffer = pool.new(1 << (total - 1).bit_length())
    if _fill(buffer, parts):
        return buffer, total
    pool.give_back(buffer, lent=True)
    return None


def _fill(buffer: bytearray, parts: Sequence[Part]) -> bool:
    at = 0
    with memoryview(buffer) as view:
        for part in parts:
            if isinstance(part, FileSlice):
                end = at + part.length
                try:
                    if not part.file.read_warm(view[at:end], part.position):
                        return False
                except DiskError:
                    return False  # it occurs again where the range is sent by itself
            else:
                assert not isinstance(part, MadePart), "its bytes are not known yet"
                end = at + len(part)
                view[at:end] = part
            at = end
    return True


def unsent(parts: Sequence[Part], sent: int) -> list[Part]:
    """The rest of a response after its first `sent` bytes; ranges that are sent whole are released."""
    left: list[Part] = []
    for part in parts:
        if isinstance(part, FileSlice):
            if sent >= part.length:
                sent -= part.length
                if part.release is not None:
                    part.release()
                continue
            part.position += sent
            part.length -= sent
        else:
            assert not isinstance(part, MadePart), "its bytes are not known yet"
            if sent >= len(part):
                sent -= len(part)
                continue
            part = memoryview(part)[sent:] if sent else part
        sent = 0
        left.append(part)
    return left
