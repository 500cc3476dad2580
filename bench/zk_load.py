"""The loads of bench/zk.py: one thread, requests encoded beforehand, answers counted by their bytes and not decoded.

Each lasts for as long as it is told to and then waits for what is still unanswered.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import zk_frames as zf
from frames import HOST
from zk_frames import Burst, Session

from ottla.zk.wire import Op

RECEIVE_BUFFER = 256 * 1024
#: A server that answers nothing for so long has failed.
STALL_LIMIT_S = 30.0
#: So many bursts of each session are unanswered at a time.
BURSTS_IN_FLIGHT = 2
#: How often those that ping are looked through.
PACE_S = 0.01


class LoadFailed(Exception):
    """A server closed a connection, stalled, or gave another answer than expected."""


@dataclass(frozen=True)
class Load:
    """What was done; the server's own CPU time is read by whoever runs it."""

    count: int
    seconds: float
    generator_cpu_s: float


class _Meter:
    """Takes the time from its making on."""

    def __init__(self) -> None:
        self._cpu_s, self._begun_s = time.process_time(), time.perf_counter()

    def load(self, count: int) -> Load:
        """What was done until now."""
        return Load(count, time.perf_counter() - self._begun_s, time.process_time() - self._cpu_s)


@contextmanager
def sessions(port: int, count: int) -> Iterator[list[Session]]:
    """So many sessions, closed at the end."""
    opened: list[Session] = []
    try:
        opened.extend(Session(port) for _ in range(count))
        yield opened
    finally:
        for session in opened:
            session.drop()


class _Stream:
    """One session with its bursts, which are sent again and again in turn."""

    __slots__ = ("bursts", "expected", "next", "owed", "received", "requests", "sock")

    def __init__(self, sock: socket.socket, bursts: Sequence[Burst]) -> None:
        self.sock = sock
        self.bursts = bursts
        self.next = 0
        #: How many bytes will have come when each burst on its way is answered.
        self.owed: list[int] = []
        self.expected = 0
        self.received = 0
        self.requests = 0

    def send(self) -> None:
        """Send the next burst. It fits into the socket: answers have made room for it."""
        burst = self.bursts[self.next % len(self.bursts)]
        self.next += 1
        self.sock.sendall(burst.data)
        self.expected += burst.answer_bytes
        self.requests += burst.requests
        self.owed.append(self.expected)

    def receive(self, buffer: bytearray) -> int:
        """Take what has come; returns how many bursts are answered by it."""
        count = self.sock.recv_into(buffer)
        if not count:
            raise LoadFailed("the server closed the connection")
        self.received += count
        owed, answered = self.owed, 0
        while owed and owed[0] <= self.received:
            owed.pop(0)
            answered += 1
        if not owed and self.received != self.expected:
            raise LoadFailed(f"{self.received - self.expected} more bytes than expected")
        return answered


def pipelined(
    opened: Sequence[Session], bursts: Sequence[Sequence[Burst]], seconds: float, in_flight: int = BURSTS_IN_FLIGHT
) -> Load:
    """Send each session's bursts, another one whenever one is answered; counts requests."""
    streams = {session.sock.fileno(): _Stream(session.sock, mine) for session, mine in zip(opened, bursts, strict=True)}
    buffer = bytearray(RECEIVE_BUFFER)
    with select.epoll() as epoll:
        for descriptor in streams:
            epoll.register(descriptor, select.EPOLLIN)
        meter, end_s = _Meter(), time.perf_counter() + seconds
        for stream in streams.values():
            for _ in range(in_flight):
                stream.send()
        busy = len(streams)
        while busy:
            events = epoll.poll(STALL_LIMIT_S)
            if not events:
                raise LoadFailed(f"no answer for {STALL_LIMIT_S:g} s")
            goes_on = time.perf_counter() < end_s
            for descriptor, _ in events:
                stream = streams[descriptor]
                answered = stream.receive(buffer)
                if goes_on or stream.next % len(stream.bursts):
                    for _ in range(answered):
                        stream.send()
                if not stream.owed:
                    busy -= 1
        return meter.load(sum(stream.requests for stream in streams.values()))


def many_watch_one(changer: Session, watchers: Sequence[Session], path: str, seconds: float) -> Load:
    """Change a node that all watch; each watches it again when it is told, and then comes the next change."""
    again = zf.read(Op.GET_DATA, path, watch=True)
    (armed,) = {watcher.burst([again]).answer_bytes for watcher in watchers}
    told = zf.event_bytes(path)
    change = zf.set_data(path, b"c" * 100)
    changed = changer.burst([change]).answer_bytes
    # That told all of them once.
    socks = {watcher.sock.fileno(): watcher.sock for watcher in watchers}
    buffer = bytearray(RECEIVE_BUFFER)
    events = 0
    with select.epoll() as epoll:
        for descriptor in socks:
            epoll.register(descriptor, select.EPOLLIN)
        meter, end_s = _Meter(), time.perf_counter() + seconds
        while True:
            owed = dict.fromkeys(socks, told + armed)
            while owed:
                for descriptor, _ in _events(epoll):
                    left = owed[descriptor] = owed[descriptor] - socks[descriptor].recv_into(buffer)
                    if left == armed:
                        socks[descriptor].sendall(again)
                    elif left <= 0:
                        del owed[descriptor]
            events += len(socks)
            if time.perf_counter() >= end_s:
                return meter.load(events)
            changer.sock.sendall(change)
            changer.take(changed)


def _events(epoll: select.epoll) -> list[tuple[int, int]]:
    events = epoll.poll(STALL_LIMIT_S)
    if not events:
        raise LoadFailed(f"nothing for {STALL_LIMIT_S:g} s")
    return events


def one_watches_many(changer: Session, watcher: Session, paths: Sequence[str], seconds: float) -> Load:
    """One session watches all nodes, another changes all of them; counts events."""
    arm = watcher.burst([zf.read(Op.GET_DATA, path, watch=True) for path in paths])
    change = [zf.set_data(path, b"c" * 100) for path in paths]
    data = b"".join(change)
    told = sum(map(zf.event_bytes, paths))
    # This tells of all of them once, and every change below once more.
    changed = changer.burst(change).answer_bytes
    meter, end_s, events = _Meter(), time.perf_counter() + seconds, 0
    while True:
        watcher.take(told)
        events += len(paths)
        watcher.sock.sendall(arm.data)
        watcher.take(arm.answer_bytes)
        if time.perf_counter() >= end_s:
            return meter.load(events)
        changer.sock.sendall(data)
        changer.take(changed)


def ping_paced(opened: Sequence[Session], per_s: int, seconds: float) -> Load:
    """Have the sessions ping one after the other, `per_s` in all."""
    socks = [session.sock for session in opened]
    each = max(1, round(per_s * PACE_S))
    pinged, waiting = 0, 0
    buffer = bytearray(RECEIVE_BUFFER)
    by_descriptor = {sock.fileno(): sock for sock in socks}
    with select.epoll() as epoll:
        for sock in socks:
            epoll.register(sock.fileno(), select.EPOLLIN)
        meter, begun_s = _Meter(), time.perf_counter()
        turns = round(seconds / PACE_S)
        for turn in range(1, turns + 1):
            for _ in range(each):
                socks[pinged % len(socks)].sendall(zf.PING)
                pinged += 1
            waiting += each * zf.EMPTY_ANSWER_BYTES
            at_s = begun_s + turn * PACE_S
            # At the end all has to be answered, else what has come in time will do.
            while waiting and (turn == turns or time.perf_counter() < at_s):
                limit_s = STALL_LIMIT_S if turn == turns else max(0.0, at_s - time.perf_counter())
                waiting -= sum(by_descriptor[descriptor].recv_into(buffer) for descriptor, _ in epoll.poll(limit_s))
            time.sleep(max(0.0, at_s - time.perf_counter()))
        return meter.load(pinged)


class _Opening:
    """A connection that opens a session, closes it, and is followed by another one."""

    __slots__ = ("received", "sock")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection((HOST, port), timeout=zf.TIMEOUT_S)
        self.sock.sendall(zf.CONNECT_FRAME)
        self.received = 0

    def go_on(self, buffer: bytearray) -> bool:
        """Take what has come; whether the session is closed."""
        before = self.received
        self.received += self.sock.recv_into(buffer)
        if self.received == before:
            raise LoadFailed("the server closed the connection")
        if self.received == zf.CONNECT_ANSWER_BYTES:
            self.sock.sendall(zf.CLOSE)
        if self.received < zf.CONNECT_ANSWER_BYTES + zf.EMPTY_ANSWER_BYTES:
            return False
        self.sock.close()
        return True


def open_and_close(port: int, connections: int, seconds: float) -> Load:
    """Connect, open a session, close it, and again, with this many of them on their way at a time; counts sessions."""
    buffer = bytearray(RECEIVE_BUFFER)
    begun: dict[int, _Opening] = {}
    count = 0

    def begin(epoll: select.epoll) -> None:
        opening = _Opening(port)
        begun[opening.sock.fileno()] = opening
        epoll.register(opening.sock.fileno(), select.EPOLLIN)

    with select.epoll() as epoll:
        meter, end_s = _Meter(), time.perf_counter() + seconds
        for _ in range(connections):
            begin(epoll)
        while begun:
            for descriptor, _ in _events(epoll):
                if begun[descriptor].go_on(buffer):
                    del begun[descriptor]
                    count += 1
                    if time.perf_counter() < end_s:
                        begin(epoll)
        return meter.load(count)


def in_steps(session: Session, frames: Iterable[bytes], each: int) -> None:
    """Send all requests, this many together, and make sure that none is refused."""
    remaining = iter(frames)
    while part := list(itertools.islice(remaining, each)):
        session.burst(part)
