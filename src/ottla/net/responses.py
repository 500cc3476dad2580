"""Responses out: the parts that wait to be sent to one client, in order, without blocking or copies of files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.env.disk import DiskError, FileSlice
from ottla.env.platforms import MORE_FOLLOWS
from ottla.net.connection import MadePart, Part, RequestService
from ottla.net.gathering import gather, unsent

if TYPE_CHECKING:
    from ottla.net.buffers import BufferPool
    from ottla.net.streams import ByteStream

#: Bytes of one response sent in one slice: the Java consumer's default for one partition (1 MiB), and the header.
SEND_BYTES_PER_SLICE = (1024 + 64) * 1024
#: The same for a range read from the disk: a consumer of old data can wait, and consumers of new records should not
#: notice it.
COLD_BYTES_PER_SLICE = 128 * 1024
#: Byte parts passed to the kernel in one call (its own limit is 1,024).
PARTS_PER_CALL = 512
#: A response of up to this size whose file ranges are in the page cache is read and sent in one call.
READ_RESPONSE_BYTES = 4096

_NOT_IN_MEMORY = (FileSlice, MadePart)


class ResponseQueue:
    """The responses to one client that are not sent yet.

    `on_sent` is called when the queue has become empty, `on_broken` when the client or a file is gone.
    """

    __slots__ = (
        "_closed",
        "_on_broken",
        "_on_sent",
        "_pool",
        "_reading_ahead",
        "_service",
        "_stream",
        "_warm_bytes",
        "_was_cold",
        "_writing",
        "bytes_out",
        "held",
        "held_bytes",
        "parts",
    )

    def __init__(
        self,
        stream: ByteStream,
        service: RequestService,
        pool: BufferPool,
        on_sent: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._service = service
        self._pool = pool
        self._on_sent = on_sent
        self._on_broken = on_broken
        self.parts: deque[Part] = deque()
        #: Responses of this slice, sent together at its end at the latest.
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.bytes_out = 0
        self._writing = False
        self._warm_bytes = 0
        #: Whether the range being sent had to be read from the disk first.
        self._was_cold = False
        self._reading_ahead = False
        self._closed = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses not sent yet."""
        return sum(each.length if isinstance(each, _NOT_IN_MEMORY) else len(each) for each in self.parts)

    def send(self, parts: Sequence[Part], *, gathers_ranges: bool) -> bool:
        """Send a response after those before it; whether all is sent."""
        if gathers_ranges and not self.parts and not self.held:
            parts = self._send_gathered(parts)
        if self.held:
            self.parts.append(self._take_held())
        self.parts.extend(parts)
        self._flush()
        return not self.parts

    def _send_gathered(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Send a response of several short file ranges in one call, as far as it goes; return what is left of it."""
        gathered = gather(parts, self._pool)
        if gathered is None:
            return parts
        buffer, length = gathered
        try:
            with memoryview(buffer) as view, view[:length] as data:
                sent = self._stream.send(data, 0)
        except OSError:  # what is wrong is met again, where the rest is sent
            sent = 0
        self._pool.give_back(buffer, lent=True)
        self.bytes_out += sent
        return unsent(parts, sent)

    def send_bytes(self, data: bytes) -> bool:
        """Send a response of one part, with those that are held; whether all is sent."""
        if self.parts:
            return self.send((data,), gathers_ranges=False)
        if self.held:
            self.held.append(data)
            data = self._take_held()
        try:
            sent = self._stream.send(data, 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._on_broken()
            return True
        self.bytes_out += sent
        if sent < len(data):
            self.parts.append(memoryview(data)[sent:])
            self._want_write()
            return False
        return True

    def hold(self, data: bytes) -> None:
        """Have this response wait for the next one, or for `send_held`."""
        self.held.append(data)
        self.held_bytes += len(data)

    def _take_held(self) -> bytes:
        data = b"".join(self.held)
        self.held.clear()
        self.held_bytes = 0
        return data

    def send_held(self) -> bool:
        """Send the held responses; whether all is sent."""
        self.parts.append(self._take_held())
        self._flush()
        return not self.parts

    def _flush(self) -> None:
        """Send from the queue until it is empty, the client or the disk is slow, or this slice's budget is spent."""
        budget = COLD_BYTES_PER_SLICE if self._was_cold else SEND_BYTES_PER_SLICE
        parts = self.parts
        try:
            while parts and budget > 0 and not self._reading_ahead:
                part = parts[0]
                if isinstance(part, FileSlice):
                    sent = self._send_slice(part, min(part.length, budget))
                elif isinstance(part, MadePart):
                    self._make_more(part)
                    continue
                else:
                    sent = self._send_bytes()
                self.bytes_out += sent
                budget -= sent
                if self._closed:
                    return
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, DiskError):
            self._on_broken()
            return
        if parts and not self._reading_ahead:
            self._want_write()
        elif self._writing:
            self._writing = False
            self._stream.remove_writer()
        if not parts:
            self._on_sent()

    def _send_bytes(self) -> int:
        """Send the byte parts at the head of the queue in one call; return the bytes sent."""
        parts = self.parts
        first = parts[0]
        if not isinstance(first, _NOT_IN_MEMORY) and (len(parts) == 1 or isinstance(parts[1], _NOT_IN_MEMORY)):
            sent = self._stream.send(first, MORE_FOLLOWS if len(parts) > 1 else 0)
            if sent == len(first):
                parts.popleft()
            else:
                parts[0] = memoryview(first)[sent:]
            return sent
        run: list[bytes | bytearray | memoryview] = []
        for part in parts:
            if isinstance(part, _NOT_IN_MEMORY) or len(run) == PARTS_PER_CALL:
                break
            run.append(part)
        flags = MORE_FOLLOWS if len(run) < len(parts) else 0
        sent = self._stream.sendmsg(run, (), flags)
        left = sent
        for data in run:
            if left < len(data):
                parts[0] = memoryview(data)[left:]
                break
            left -= len(data)
            parts.popleft()
        return sent

    def _send_slice(self, part: FileSlice, length: int) -> int:
        """Send from the file range at the head of the queue; return the bytes sent, 0 while the disk is read."""
        fd = part.file.fileno()
        if fd is None:
            sent = self._stream.send(part.file.pread(length, part.position), 0)
        else:
            if self._warm_bytes <= 0 and not self._prove_warm(part, min(part.length, SEND_BYTES_PER_SLICE)):
                return 0
            sent = self._stream.sendfile(fd, part.position, min(length, self._warm_bytes))
            self._warm_bytes -= sent
        if sent == 0:
            # The file is shorter than its range: this response is too far along to hold an error.
            self._on_broken()
        elif sent == part.length:
            self.parts.popleft()
            self._warm_bytes = 0
            self._was_cold = False
            if part.release is not None:
                part.release()
        else:
            part.position += sent
            part.length -= sent
        return sent

    def _prove_warm(self, part: FileSlice, length: int) -> bool:
        """Whether the next `length` bytes are in the page cache; if not, have them read in a thread."""
        warm = part.file.is_warm(part.position, length)
        if warm or (warm is None and part.active):
            self._warm_bytes = length
            return True
        self._reading_ahead = True

        def done() -> None:
            self._reading_ahead = False
            self._warm_bytes = length
            self._was_cold = True
            if not self._closed:
                self._flush()

        self._service.read_ahead(part.file, part.position, length, done)
        return False

    def _make_more(self, part: MadePart) -> None:
        """Have the next piece of the part at the head of the queue made, and send it when it is ready."""
        self._reading_ahead = True
        here = True

        def done(piece: bytes | None, error: BaseException | None) -> None:
            self._reading_ahead = False
            part.end(len(piece or b""))
            if self._closed:
                return
            if not piece or error is not None:
                # The response's size is sent already, so it cannot hold an error any more.
                self._on_broken()
                return
            if part.length <= 0:
                self.parts.popleft()
            self.parts.appendleft(piece)
            if not here:
                self._flush()

        part.begin()
        self._service.make(part.make, done)
        here = False

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._stream.add_writer(self._flush)

    def send_before_close(self) -> None:
        """Send the held responses as far as the client takes them: the cause of the end came after their requests."""
        with suppress(OSError):
            self.bytes_out += self._stream.send(self._take_held(), 0)

    def close(self) -> None:
        """Close the stream, drop the unsent parts and release their file ranges."""
        self._closed = True
        if self._writing:
            self._stream.remove_writer()
        self._stream.close()
        release(self.parts)
        self.parts.clear()
        # Without these the connection is freed at once, not when the garbage collector finds it.
        self._on_sent = self._on_broken = _nothing


def read_short(parts: Sequence[Part]) -> bytes | None:
    """The bytes of a short response, its file ranges released; None if it is not short, or not all in memory."""
    left = READ_RESPONSE_BYTES
    pieces: list[bytes | bytearray | memoryview] = []
    for part in parts:
        if isinstance(part, FileSlice):
            left -= part.length
            if left < 0 or not part.file.is_warm(part.position, part.length):
                return None
            try:
                data = part.read()
            except DiskError:
                return None
            if len(data) < part.length:
                return None
            pieces.append(data)
        elif isinstance(part, MadePart) or len(part) > left:
            return None
        else:
            left -= len(part)
            pieces.append(part)
    release(parts)
    return b"".join(pieces)


def release(parts: Sequence[Part] | deque[Part]) -> None:
    """Release the file ranges of parts that are not sent."""
    for part in parts:
        release_part = part.release if isinstance(part, FileSlice | MadePart) else None
        if release_part is not None:
            release_part()


def _nothing() -> None:
    pass
