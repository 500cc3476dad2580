"""One blocking socket to a broker, with frames: what all clients of tests share that speak the protocol by hand."""

from __future__ import annotations

import select
import socket
import struct
from types import TracebackType
from typing import Self

TIMEOUT_S = 60.0
SIZE = struct.Struct(">i")


class Disconnected(Exception):
    """The broker closed the connection, or is not there."""


class FramedSocket:
    """One connection. Bytes that do not come within `timeout_s` are a TimeoutError."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        try:
            self.socket = socket.create_connection((host, port), timeout=timeout_s)
        except ConnectionError as error:
            raise Disconnected(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: This end's host and port, as the broker's log names it.
        self.address: tuple[str, int] = self.socket.getsockname()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Disconnected(str(error)) from error

    def receive_frame(self) -> bytes:
        """The next frame without its size."""
        (size,) = SIZE.unpack(self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise Disconnected(str(error)) from error
            if not chunk:
                raise Disconnected(f"closed after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)

    def has_answer(self) -> bool:
        """Whether bytes or the end of the connection can be read now."""
        poller = select.poll()  # select() takes no number above 1,023
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(0))

    def is_closed_by_broker(self) -> bool:
        """Whether the broker closes the connection; False where it answers instead."""
        try:
            self.receive_exactly(1)
        except Disconnected:
            return True
        return False
