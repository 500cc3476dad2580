"""The raw load generator: one thread, requests encoded beforehand, answers counted and not decoded.

It must cost less than the brokers it loads, on the same machine: edge-triggered epoll, a few requests in flight on
each connection, one large receive buffer for all, and of every answer only the size field is looked at (where it did
not come in two parts). An answer of another length than the first, which was decoded and checked, is an error.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from frames import HOST

#: Small enough to stay in a processor's cache.
RECEIVE_BUFFER = 256 * 1024
#: A broker that answers nothing for so long has failed.
STALL_LIMIT_S = 30.0
SIZE_FIELD = 4

_SIZE = struct.Struct(">i")
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET


class LoadFailed(Exception):
    """A broker closed a connection, stalled, or gave another answer than expected."""


@dataclass
class Load:
    """What a measurement saw; the broker's own CPU time is read by whoever runs it."""

    requests: int
    seconds: float
    generator_cpu_s: float
    bytes_in: int = 0
    bytes_out: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    #: The same of each connection, where they are told apart.
    by_stream_ns: list[list[int]] = field(default_factory=list)

    def percentile_ms(self, percent: float) -> float:
        """Of the latencies, by the nearest rank."""
        return percentile_ms(self.latencies_ns, percent)


def percentile_ms(latencies_ns: Iterable[int], percent: float) -> float:
    """Of latencies in nanoseconds, by the nearest rank."""
    ordered = sorted(latencies_ns)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1e6


class _Stream:
    """One connection with its requests, some of them in flight."""

    def __init__(self, sock: socket.socket, frames: Iterator[bytes], answer_size: int, in_flight: int) -> None:
        self._sock = sock
        self._frames = frames
        self._answer_size = answer_size
        self._in_flight = in_flight
        self._sent = 0
        self._exhausted = False
        self._rest = memoryview(b"")
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def done(self) -> bool:
        """Whether all was sent (nothing more was to be had from `frames`) and answered."""
        return self._exhausted and self._sent == self.answers

    @property
    def answers(self) -> int:
        """Answers that came whole."""
        return self.bytes_in // (SIZE_FIELD + self._answer_size)

    def write(self) -> None:
        """Send until enough is in flight, the socket is full, or all is sent."""
        rest = self._rest
        while True:
            if not rest:
                if self._sent - self.answers >= self._in_flight:
                    break
                frame = next(self._frames, None)
                if frame is None:
                    self._exhausted = True
                    break
                rest = memoryview(frame)
                self._sent += 1
            try:
                sent = self._sock.send(rest)
            except _WOULD_BLOCK:
                break
            self.bytes_out += sent
            rest = rest[sent:]
        self._rest = rest

    def read(self, buffer: bytearray) -> None:
        """Receive until the socket is empty."""
        received, is_tls = len(buffer), isinstance(self._sock, ssl.SSLSocket)
        # Of TLS one record comes at a time.
        while received == len(buffer) or is_tls:
            try:
                received = self._sock.recv_into(buffer)
            except _WOULD_BLOCK:
                return
            if received == 0:
                raise LoadFailed("the broker closed the connection")
            self._check(buffer, received)
            self.bytes_in += received

    def _check(self, buffer: bytearray, received: int) -> None:
        whole = SIZE_FIELD + self._answer_size
        for start in range(-self.bytes_in % whole, received - SIZE_FIELD + 1, whole):
            (size,) = _SIZE.unpack_from(buffer, start)
            if size != self._answer_size:
                raise LoadFailed(f"an answer of {size} bytes instead of {self._answer_size}")


def connect(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A connection to the broker; blocking until `setblocking(False)`."""
    sock = socket.create_connection((HOST, port), timeout=STALL_LIMIT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if tls is None else tls.wrap_socket(sock, server_hostname=HOST)


def stream(
    port: int | Sequence[int],
    requests: Sequence[Iterable[bytes]],
    answer_size: int,
    in_flight: int,
    tls: ssl.SSLContext | None = None,
) -> Load:
    """Send each connection's requests with `in_flight` of them unanswered; every answer has `answer_size` bytes.

    `port` is one for all connections, or one for each.
    """
    socks = [connect(each, tls) for each in ([port] * len(requests) if isinstance(port, int) else port)]
    buffer = bytearray(RECEIVE_BUFFER)
    streams: dict[int, _Stream] = {}
    with select.epoll() as epoll:
        for sock, frames in zip(socks, requests, strict=True):
            sock.setblocking(False)
            streams[sock.fileno()] = _Stream(sock, iter(frames), answer_size, in_flight)
        cpu_before, begun = time.process_time(), time.perf_counter()
        for descriptor in streams:
            epoll.register(descriptor, _EVENTS)
        busy = set(streams)
        while busy:
            events = epoll.poll(STALL_LIMIT_S)
            if not events:
                raise LoadFailed(f"no answer for {STALL_LIMIT_S:g} s")
            for descriptor, event in events:
                one = streams[descriptor]
                if event & ~select.EPOLLOUT:
                    one.read(buffer)
                one.write()
                if one.done:
                    busy.discard(descriptor)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu_before
    for sock in socks:
        sock.close()
    return Load(
        requests=sum(one.answers for one in streams.values()),
        seconds=seconds,
        generator_cpu_s=cpu,
        bytes_in=sum(one.bytes_in for one in streams.values()),
        bytes_out=sum(one.bytes_out for one in streams.values()),
    )


def ping_pong(port: int, frames: Sequence[bytes], answer_size: int, requests: int) -> Load:
    """Send each connection's own request again whenever it was answered, `requests` times over all connections."""
    socks = [connect(port) for _ in frames]
    whole = SIZE_FIELD + answer_size
    buffer = bytearray(64 * 1024)
    latencies: list[int] = []
    now = time.perf_counter_ns
    begun_at = dict.fromkeys((sock.fileno() for sock in socks), 0)
    by_descriptor = {sock.fileno(): (sock, frame) for sock, frame in zip(socks, frames, strict=True)}
    missing = dict.fromkeys(by_descriptor, whole)
    with select.epoll() as epoll:
        for sock in socks:
            sock.setblocking(False)
            epoll.register(sock.fileno(), select.EPOLLIN)
        left = requests - len(socks)
        cpu_before, begun = time.process_time(), time.perf_counter()
        for descriptor, (sock, frame) in by_descriptor.items():
            begun_at[descriptor] = now()
            sock.send(frame)
        while len(latencies) < requests:
            events = epoll.poll(STALL_LIMIT_S)
            if not events:
                raise LoadFailed(f"no answer for {STALL_LIMIT_S:g} s")
            for descriptor, _ in events:
                sock, frame = by_descriptor[descriptor]
                received = sock.recv_into(buffer)
                if received != missing[descriptor]:
                    if not 0 < received < missing[descriptor]:
                        raise LoadFailed(f"an answer of {received} bytes instead of {missing[descriptor]}")
                    missing[descriptor] -= received
                    continue
                missing[descriptor] = whole
                time_ns = now()
                latencies.append(time_ns - begun_at[descriptor])
                if left > 0:
                    left -= 1
                    begun_at[descriptor] = time_ns
                    sock.send(frame)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu_before
    for sock in socks:
        sock.close()
    return Load(requests=requests, seconds=seconds, generator_cpu_s=cpu, latencies_ns=latencies)


class _Paced:
    """One connection of `paced`: what is to be sent, and when each request that is not answered was due."""

    def __init__(self, sock: socket.socket, frame: bytes, whole: int) -> None:
        self.sock = sock
        self._frame = frame
        self._rest = memoryview(b"")
        self._whole = whole
        self._to_send = 0
        self._received = 0
        self.due_ns: deque[int] = deque()
        self.latencies_ns: list[int] = []

    def add(self, due_ns: int) -> None:
        """Another request is due."""
        self.due_ns.append(due_ns)
        self._to_send += 1
        self.write()

    def write(self) -> None:
        """Send what the socket takes."""
        while self._rest or self._to_send:
            if not self._rest:
                self._rest = memoryview(self._frame)
                self._to_send -= 1
            try:
                self._rest = self._rest[self.sock.send(self._rest) :]
            except BlockingIOError:
                return

    def read(self, buffer: bytearray) -> int:
        """Receive until the socket is empty; the number of answers that came whole."""
        answers = 0
        while True:
            try:
                count = self.sock.recv_into(buffer)
            except BlockingIOError:
                return answers
            if count == 0:
                raise LoadFailed("the broker closed the connection")
            whole, self._received = divmod(self._received + count, self._whole)
            answers += whole


def paced(
    ports: Sequence[int],
    frames: Sequence[bytes],
    answer_size: int | Sequence[int],
    per_s: float,
    seconds: float,
    goes_on: Callable[[], bool] = lambda: True,
) -> Load:
    """Send requests at a fixed rate over all connections in turn, each with its own request, however slow answers are.

    A latency counts from the moment when its request was due. `answer_size` is one for all connections, or one for
    each. It ends after `seconds`, or as soon as it need not continue.
    """
    socks = [connect(port) for port in ports]
    sizes = [answer_size] * len(socks) if isinstance(answer_size, int) else answer_size
    streams = [_Paced(sock, frame, SIZE_FIELD + size) for sock, frame, size in zip(socks, frames, sizes, strict=True)]
    by_descriptor = {one.sock.fileno(): one for one in streams}
    buffer = bytearray(RECEIVE_BUFFER)
    latencies: list[int] = []
    now = time.perf_counter_ns
    requests, every_ns = int(per_s * seconds), 1e9 / per_s
    with select.epoll() as epoll:
        for one in streams:
            one.sock.setblocking(False)
            epoll.register(one.sock.fileno(), _EVENTS)
        cpu_before, begun_ns, sent = time.process_time(), now(), 0
        while len(latencies) < requests:
            if sent < requests and not goes_on():
                requests = sent
                continue
            while sent < requests and (due_ns := begun_ns + int(sent * every_ns)) <= now():
                streams[sent % len(streams)].add(due_ns)
                sent += 1
            wait_s = STALL_LIMIT_S if sent == requests else max(0.0, (begun_ns + sent * every_ns - now()) / 1e9)
            events = epoll.poll(wait_s)
            if not events and sent == requests:
                raise LoadFailed(f"no answer for {STALL_LIMIT_S:g} s")
            for descriptor, event in events:
                one = by_descriptor[descriptor]
                if event & ~select.EPOLLOUT:
                    answers = one.read(buffer)
                    time_ns = now()
                    found = [time_ns - one.due_ns.popleft() for _ in range(answers)]
                    one.latencies_ns += found
                    latencies += found
                one.write()
        taken_s, cpu = (now() - begun_ns) / 1e9, time.process_time() - cpu_before
    for sock in socks:
        sock.close()
    by_stream = [one.latencies_ns for one in streams]
    return Load(requests=requests, seconds=taken_s, generator_cpu_s=cpu, latencies_ns=latencies, by_stream_ns=by_stream)
