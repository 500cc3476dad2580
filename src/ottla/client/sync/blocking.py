"""Sync clients made from the asyncio ones: their methods block until the asyncio client's have ended in its thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.client.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


class SyncClient:
    """Base of the sync clients, as context managers. `_async` is the asyncio client, which runs in `_thread`."""

    _async: Any
    _thread: LoopThread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        self._thread.finish()

    def _run(self, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a method of the asyncio client in the loop; returns its result."""
        return self._thread.run(work, *args, **options)


def made_of(method: Callable[..., Any], call: Callable[..., Any]) -> Any:
    """`call`, with name, signature and documentation of the asyncio client's method."""
    made = functools.wraps(method)(call)
    del made.__dict__["__wrapped__"]  # a coroutine function, which this is not
    if (text := method.__doc__) is not None and "await " in text:
        made.__doc__ = f"{inspect.cleandoc(text)}\n\nThis is the blocking form: leave out `await`."
    made.__dict__["__signature__"] = inspect.signature(method)
    made.__annotations__ = inspect.get_annotations(inspect.unwrap(method), eval_str=True)  # their names are known there
    return made


def passed_to(run: str, method: Callable[..., Any]) -> Any:
    """A method that passes the asyncio client's to the method `run`, with the arguments."""
    name = method.__name__

    def call(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self, run)(getattr(self._async, name), *args, **options)

    return made_of(method, call)


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The blocking form of a coroutine method of the asyncio client."""
    made: Callable[Concatenate[Any, P], T] = passed_to("_run", method)
    return made
