"""The shell of the controller's state machine: passes it events in order, and carries out its effects.

The clock, randomness and znodes that its decisions depend on belong to the shell. One task processes the event queue
while it is not empty; a caller waits for a future, and may be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.control.channels.manager import ControllerChannels
from ottla.broker.control.refusals import METADATA_ERRORS, metadata_refusal
from ottla.cluster.controller_events import (
    Answer,
    Continue,
    Continued,
    Effect,
    Event,
    Notified,
    Notify,
    ReadAll,
    ReadBack,
    Report,
    SendToBroker,
    SetChannels,
    SetTimer,
    TimerFired,
    Write,
)
from ottla.cluster.refusal import TopicRefusal
from ottla.env.futures import settle
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import ZnodeDataError

if TYPE_CHECKING:
    from ottla.broker.control.interbroker import BrokerConnector
    from ottla.broker.control.membership import ClusterMembership
    from ottla.broker.control.metadata_writes import MetadataWriter
    from ottla.broker.slices import LoopSlices
    from ottla.cluster.controller import Controller
    from ottla.cluster.image import ImageDelta
    from ottla.env.clock import Clock
    from ottla.env.disk import DiskError
    from ottla.zk.tree import ZkError

log = logging.getLogger("ottla.controller")

ReadEvent: TypeAlias = "Callable[[], Awaitable[Event | None]]"
"""Reads znodes and makes an event of them, or None. May raise `ZkError`, `ZnodeDataError`."""


class ControllerShell:
    """Runs the controller of one broker while it is elected.

    `apply` has the broker apply a change of the image; `read_back` reads a topic's znodes and posts the result,
    `read_all` reads everything and posts the election again.
    """

    def __init__(
        self,
        controller: Controller,
        membership: ClusterMembership,
        writer: MetadataWriter,
        clock: Clock,
        slices: LoopSlices,
        apply: Callable[[ImageDelta], Awaitable[None]],
        read_back: Callable[[str], None],
        read_all: Callable[[], None],
        connector: BrokerConnector,
    ) -> None:
        self.controller = controller
        self.channels = ControllerChannels(membership.broker_id, connector, slices, self.post)
        self._membership = membership
        self._writer = writer
        self._clock = clock
        self._slices = slices
        self._apply = apply
        self._read_back = read_back
        self._read_all = read_all
        #: The queue: events, reads that produce one, and futures of callers that wait for their turn.
        self._events: deque[Event | ReadEvent | asyncio.Future[None]] = deque()
        #: Outcomes of effects, handled before all other events.
        self._outcomes: deque[Event] = deque()
        self._answers: dict[int, asyncio.Future[object]] = {}
        self._last_token = 0
        self._working: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_stopped = False
        #: The first error of the disk or of ZooKeeper since the start, or since a read began.
        self._error: DiskError | ZkError | ZnodeDataError | None = None

    def post(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)
        self._wake()

    async def handle_read(self, read: ReadEvent) -> None:
        """Queue a read of znodes, so that no change is under way when it runs, and handle the event it produces.

        Raises what the read raises, or the first error of the effects: `DiskError`, `ZkError`, `ZnodeDataError`.
        """
        handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def first() -> Event | None:
            self._error = None
            # Queued in front: it runs when all effects of the event are done.
            self._events.appendleft(done)
            return await read()

        async def done() -> None:
            settle(handled, None, self._error)

        self._events.append(first)
        self._wake()
        await handled

    async def ask(self, event_of: Callable[[int], Event]) -> object:
        """Post a client's request, made with a token, and wait for the answer. Cancellation does not undo it."""
        self._last_token += 1
        token = self._last_token
        answer = self._answers[token] = asyncio.get_running_loop().create_future()
        self.post(event_of(token))
        return await answer

    def check(self) -> None:
        """Raise the first error since the start: `DiskError`, `ZkError`, `ZnodeDataError`."""
        if self._error is not None:
            raise self._error

    async def settled(self) -> None:
        """Wait until all events posted so far are handled."""
        barrier: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.append(barrier)
        self._wake()
        await barrier

    async def stop(self) -> None:
        """Stop. Unfinished changes are completed by the next controller."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        await self.channels.close()
        for waiting in (*self._answers.values(), *self._events):
            if isinstance(waiting, asyncio.Future):
                waiting.cancel()

    def _wake(self) -> None:
        if not self._is_stopped and (self._working is None or self._working.done()):
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        self._slices.begin()
        while self._outcomes or self._events:
            event = self._outcomes.popleft() if self._outcomes else self._events.popleft()
            try:
                await self._handle(event)
            except (*METADATA_ERRORS, ZnodeDataError) as error:
                self._error = self._error or error
            except Exception:
                log.exception("the controller failed over %s", type(event).__name__)
                self._fail_all()
            await self._slices.point()

    async def _handle(self, event: Event | ReadEvent | asyncio.Future[None]) -> None:
        if isinstance(event, asyncio.Future):
            settle(event, None)
            return
        if callable(event):
            read = await event()
            if read is None:
                return
            event = read
        for effect in self.controller.handle_in_slices(event, self._clock.now_ms()):
            await self._slices.point()
            await self._do(effect)

    async def _do(self, effect: Effect) -> None:
        if isinstance(effect, Write):
            self._outcomes.append(await self._writer.write(effect, self._membership.term))
            self._error = self._error or self._writer.error
        elif isinstance(effect, Notify):
            self._outcomes.append(await self._notify(effect))
        elif isinstance(effect, Continue):
            self._outcomes.append(Continued(effect.continuation_id))
        elif isinstance(effect, Answer):
            answer = self._answers.pop(effect.token, None)
            if answer is not None:
                settle(answer, effect.result)
        elif isinstance(effect, SetChannels):
            self.channels.set_brokers(effect.brokers)
        elif isinstance(effect, SendToBroker):
            self.channels.send(effect)
        elif isinstance(effect, ReadBack):
            self._read_back(effect.name)
        elif isinstance(effect, ReadAll):
            self._read_all()
        elif isinstance(effect, SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, Report):
            log.log(logging.ERROR if effect.is_error else logging.INFO, "%s", effect.message)

    async def _notify(self, effect: Notify) -> Notified:
        if effect.epoch != self._membership.term.epoch:
            error = ErrorCode.NOT_CONTROLLER
            return Notified(effect.notify_id, TopicRefusal(error, "another controller was elected meanwhile"))
        try:
            await self._apply(effect.delta)
        except METADATA_ERRORS as error:
            self._error = self._error or error
            return Notified(effect.notify_id, metadata_refusal(error))
        return Notified(effect.notify_id)

    def _set_timer(self, effect: SetTimer) -> None:
        former = self._timers.pop(effect.name, None)
        if former is not None:
            former.cancel()
        delay_s = max(0.0, (effect.at_ms - self._clock.now_ms()) / 1000.0)
        loop = asyncio.get_running_loop()
        self._timers[effect.name] = loop.call_later(delay_s, self.post, TimerFired(effect.name))

    def _fail_all(self) -> None:
        """Handle a bug: fail all pending requests, so that no caller waits forever."""
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            settle(answer, TopicRefusal(error, error.message))
