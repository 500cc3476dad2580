"""Start and stop in the process of a test, as a context manager with and without an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.testing.errors import TestBrokerError
from ottla.testing.loop_host import LoopHost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import TracebackType
    from typing import Self

    from ottla.config.broker import BrokerConfig


def broker_config(settings: Mapping[str, str], declared: Mapping[str, str]) -> BrokerConfig:
    """The configuration of a broker; the test has `declared` some of the settings. Raises `TestBrokerError`."""
    from ottla.config.broker import ConfigRefusal, parse_broker_config

    parsed = parse_broker_config(settings, strict=frozenset(declared))
    if isinstance(parsed, ConfigRefusal):
        raise TestBrokerError("\n".join(parsed.problems))
    return parsed


class StartedAndStopped(ABC):
    """Runs in a thread of its own from `start` to `stop`, or while a `with` or `async with` lasts."""

    #: Its name in messages, and how it is used.
    WHAT: ClassVar[str]
    USE: ClassVar[str]

    def __init__(self) -> None:
        #: Held while it is started or stopped.
        self._life = threading.Lock()
        self._host: LoopHost | None = None

    def start(self) -> Self:
        """Start it; when this returns, clients can use it. It runs until `stop`, or the process ends."""
        with self._life:
            if self._host is not None and not self._host.is_forked:
                raise TestBrokerError(f"this {self.WHAT} is running already")
            host = self._host = LoopHost(f"ottla-{self.WHAT.replace(' ', '-')}")
            try:
                host.run(self._start(host))
            except BaseException:
                self._forget()
                host.close()
                raise
        return self

    def stop(self) -> None:
        """Stop it; what it kept in memory is gone. Stopping twice does nothing.

        Waits that are under way in other threads raise `TestBrokerError`.
        """
        if self._host is not None:
            self._host.refuse_own_thread()
        with self._life:
            host, self._host = self._host, None
            if host is not None and not host.is_forked:
                host.close(self._last_work())
            self._forget()

    def __del__(self) -> None:
        host = getattr(self, "_host", None)
        if host is None or host.is_forked or sys.is_finalizing():
            return
        message = f"a {self.WHAT} was dropped while it ran: stop it, or use `with`"
        warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
        host.end_soon(self._last_work())

    @property
    def _running(self) -> LoopHost:
        if self._host is None:
            raise self._not_running()
        return self._host

    def _not_running(self) -> TestBrokerError:
        return TestBrokerError(f"the {self.WHAT} is not running: use it inside `{self.USE}`")

    @abstractmethod
    async def _start(self, host: LoopHost) -> None:
        """Start what runs in the host's loop."""

    @abstractmethod
    def _last_work(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """The last work of the loop, which stops what runs there now; None where nothing does."""

    def _forget(self) -> None:
        """Forget what ran."""
        self._host = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
