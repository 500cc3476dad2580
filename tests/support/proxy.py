"""A network that misbehaves: a proxy between clients and a broker that delays, swallows, cuts and holds by plan.

It reads Kafka's frames both ways and changes none. What happens to a request and its answer is decided as the request
comes by, from the plan's seed, the number of the connection and the number of the request on it, so that a plan does
the same to a connection however the connections are interleaved.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from support.ports import LOOPBACK

FRAME_SIZE = struct.Struct(">i")
REQUEST_HEAD = struct.Struct(">hhi")
#: Frames that are larger are no frames.
LARGEST_FRAME_BYTES = 200 * 1024 * 1024
START_TIMEOUT_S = 90.0
BACKLOG = 100
#: Between attempts to listen again on the port where connections were refused.
LISTEN_AGAIN_S = 0.05


class Fault(StrEnum):
    """What can happen to a request, its answer or its connection."""

    DELAY = "delay the request"
    DELAY_ANSWER = "delay the answer"
    #: Nothing more comes back on this connection, which stays open: the client has to lose patience.
    SWALLOW = "swallow the answer and all later ones"
    CUT_BEFORE = "cut the connection before the request is forwarded"
    CUT_AFTER = "cut the connection in place of the answer: the request was carried out"
    CUT_IN_REQUEST = "cut the connection in the middle of the request"
    CUT_IN_ANSWER = "cut the connection in the middle of the answer"
    #: Neither way passes anything for a while.
    STALL = "stall the connection"
    #: The request waits until other connections have passed a few.
    HOLD = "hold the request until others have passed"
    REFUSE = "cut all connections and refuse new ones for a while"


CUTS = (Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_IN_REQUEST, Fault.CUT_IN_ANSWER)
EVERY_FAULT = tuple(Fault)


@dataclass(frozen=True, slots=True)
class Passing:
    """A request on its way: the `number`-th of its connection, the `connection`-th of the proxy, both from 0."""

    connection: int
    number: int
    api_key: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to a request, and how long it lasts where it lasts."""

    fault: Fault
    seconds: float = 0.0


Plan = Callable[[Passing], Verdict | None]


@dataclass(slots=True)
class SeededPlan:
    """Each request of the kinds `api_keys` (of all, where None) has `chance` to meet one of `faults`; `most` in all."""

    seed: int
    chance: float
    faults: Sequence[Fault] = EVERY_FAULT
    api_keys: frozenset[int] | None = None
    longest_s: float = 0.2
    most: int = 50
    done: int = 0

    def __call__(self, passing: Passing) -> Verdict | None:
        if self.done >= self.most or (self.api_keys is not None and passing.api_key not in self.api_keys):
            return None
        dice = random.Random(f"{self.seed}/{passing.connection}/{passing.number}")
        if dice.random() >= self.chance:
            return None
        self.done += 1
        return Verdict(dice.choice(self.faults), dice.uniform(0.0, self.longest_s))


@dataclass(slots=True)
class ScriptedPlan:
    """The requests of a kind meet these verdicts in turn, None for those that pass unharmed; later ones pass."""

    script: Mapping[int, Sequence[Verdict | None]]
    _seen: Counter[int] = field(default_factory=Counter)

    def __call__(self, passing: Passing) -> Verdict | None:
        verdicts = self.script.get(passing.api_key, ())
        at = self._seen[passing.api_key]
        self._seen[passing.api_key] += 1
        return verdicts[at] if at < len(verdicts) else None


class _Cut(Exception):
    """The connection ends here."""


class Proxy:
    """Listens on `port` of this machine and leads to `upstream`, a port here, too, which may change (`lead_to`).

    A broker that advertises the proxy's port keeps its clients behind it. `plan` may be set and cleared at any time.
    """

    def __init__(self, upstream: int = 0, plan: Plan | None = None) -> None:
        self.upstream = upstream
        self.plan = plan
        #: The faults that happened, the requests that came by kind, and the connections that were opened.
        self.faults: Counter[Fault] = Counter()
        self.requests: Counter[int] = Counter()
        self.connections = 0
        self.port = 0
        self._passed = 0
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._passed_one = asyncio.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._run(self._listen())

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"

    def lead_to(self, upstream: int) -> None:
        """New connections go to this port from now on."""
        self.upstream = upstream

    def begin(self, plan: Plan) -> None:
        """Follow a plan from now on, and count from 0."""
        self.connections = 0
        self.faults.clear()
        self.requests.clear()
        self.plan = plan

    def heal(self) -> None:
        """Nothing happens from now on; connections that were swallowed or stalled are cut, refusals end."""
        self.plan = None
        self._run(self._heal())

    def hang(self) -> None:
        """From now on nothing is forwarded on any connection, and none is cut: a broker that hangs. `heal` ends it."""
        self.plan = lambda passing: Verdict(Fault.SWALLOW)
        self._run(self._hang())

    def cut_all(self) -> None:
        """Cut all connections now."""
        self._run(self._cut_all())

    def refuse(self, seconds: float) -> None:
        """Cut all connections and refuse new ones for a while."""
        self._loop.call_soon_threadsafe(self._spawn, self._refuse(seconds))

    def close(self) -> None:
        """End everything."""
        if self._thread.is_alive():
            self._run(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    async def _listen(self) -> None:
        # No asyncio.Server: one that is closed leaves what it is about to accept behind, unclosed.
        self._listening = socket.create_server((LOOPBACK, self.port), backlog=BACKLOG)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._loop.add_reader(self._listening, self._accept)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def _heal(self) -> None:
        for link in list(self._links):
            if link.is_silent or link.is_to_be_swallowed:
                link.cut()
        if self._listening is None:
            await self._listen_again()

    async def _hang(self) -> None:
        for link in self._links:
            link.silence()

    async def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut()

    async def _refuse(self, seconds: float) -> None:
        if self._listening is None:
            return
        self._stop_listening()
        await self._cut_all()
        await asyncio.sleep(seconds)
        await self._listen_again()

    async def _listen_again(self) -> None:
        while self._listening is None:
            try:
                await self._listen()
            except OSError:
                await asyncio.sleep(LISTEN_AGAIN_S)

    async def _close(self) -> None:
        self._stop_listening()
        await self._cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close in the next turns of the loop.
        await asyncio.sleep(0.01)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connected, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        number = self.connections
        self.connections += 1
        task = self._spawn(self._connect(number, connected))
        # One that is cancelled before it begins could not close it.
        task.add_done_callback(lambda ended: connected.close() if ended.cancelled() else None)

    async def _connect(self, number: int, connected: socket.socket) -> None:
        client = await asyncio.open_connection(sock=connected)
        try:
            upstream = await asyncio.open_connection(LOOPBACK, self.upstream)
        except BaseException as error:
            client[1].transport.abort()
            if isinstance(error, OSError):
                return
            raise
        link = _Link(self, number, client, upstream)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def judge(self, passing: Passing) -> Verdict | None:
        """The plan's verdict on a request, which is counted."""
        self.requests[passing.api_key] += 1
        verdict = self.plan(passing) if self.plan is not None else None
        if verdict is not None:
            self.faults[verdict.fault] += 1
            if verdict.fault is Fault.REFUSE:
                self._spawn(self._refuse(verdict.seconds))
        return verdict

    async def note_passed(self) -> None:
        """A request was forwarded."""
        async with self._passed_one:
            self._passed += 1
            self._passed_one.notify_all()

    async def others_have_passed(self, count: int, seconds: float) -> None:
        """Until this many requests were forwarded, at most for so long."""
        goal = self._passed + count
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._passed_one:
                await self._passed_one.wait_for(lambda: self._passed >= goal)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: How many requests of others pass before one that is held.
OVERTAKERS = 3


class _Link:
    """One client's connection and its continuation to the broker."""

    def __init__(self, proxy: Proxy, number: int, client: Streams, broker: Streams) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._broker = broker
        self._open: dict[int, Verdict] = {}
        self._is_flowing = asyncio.Event()
        self._is_flowing.set()
        self.is_silent = False

    async def run(self) -> None:
        """Pass both ways until one of them ends or is cut."""
        ways = [asyncio.create_task(self._pass_requests()), asyncio.create_task(self._pass_answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    @property
    def is_to_be_swallowed(self) -> bool:
        """Whether an answer that is still to come is not passed on."""
        return any(verdict.fault is Fault.SWALLOW for verdict in self._open.values())

    def cut(self) -> None:
        """End both connections at once."""
        for _, writer in (self._client, self._broker):
            writer.transport.abort()

    def silence(self) -> None:
        """Pass nothing more, either way."""
        self.is_silent = True
        self._is_flowing.clear()

    async def _pass_requests(self) -> None:
        number = 0
        while True:
            frame = await _read_frame(self._client[0])
            await self._is_flowing.wait()
            api_key, _, correlation_id = REQUEST_HEAD.unpack_from(frame)
            verdict = self._proxy.judge(Passing(self._number, number, api_key, correlation_id))
            number += 1
            if verdict is not None:
                self._open[correlation_id] = verdict
                await self._before_request(verdict, frame)
            await self._forward(self._broker[1], frame)
            await self._proxy.note_passed()

    async def _before_request(self, verdict: Verdict, frame: bytes) -> None:
        match verdict.fault:
            case Fault.DELAY:
                await asyncio.sleep(verdict.seconds)
            case Fault.HOLD:
                await self._proxy.others_have_passed(OVERTAKERS, verdict.seconds)
            case Fault.STALL:
                self._is_flowing.clear()
                await asyncio.sleep(verdict.seconds)
                self._is_flowing.set()
            case Fault.CUT_BEFORE | Fault.REFUSE:
                raise _Cut
            case Fault.CUT_IN_REQUEST:
                await self._forward_half(self._broker[1], frame)

    async def _pass_answers(self) -> None:
        while True:
            frame = await _read_frame(self._broker[0])
            await self._is_flowing.wait()
            (correlation_id,) = FRAME_SIZE.unpack_from(frame)
            verdict = self._open.pop(correlation_id, None)
            match verdict.fault if verdict is not None else None:
                case Fault.DELAY_ANSWER:
                    assert verdict is not None
                    await asyncio.sleep(verdict.seconds)
                case Fault.CUT_AFTER:
                    raise _Cut
                case Fault.CUT_IN_ANSWER:
                    await self._forward_half(self._client[1], frame)
                case Fault.SWALLOW:
                    self.silence()
                    await self._is_flowing.wait()
            await self._forward(self._client[1], frame)

    async def _forward(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(FRAME_SIZE.pack(len(frame)) + frame)
        await writer.drain()

    async def _forward_half(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        # What is still in the buffer would be lost with the connection, and the half is to arrive.
        writer.transport.set_write_buffer_limits(0)
        writer.write(FRAME_SIZE.pack(len(frame)) + frame[: len(frame) // 2])
        await writer.drain()
        raise _Cut


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = FRAME_SIZE.unpack(await reader.readexactly(FRAME_SIZE.size))
    if not 0 <= size <= LARGEST_FRAME_BYTES:
        raise _Cut
    return await reader.readexactly(size)
