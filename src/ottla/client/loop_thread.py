"""An event loop in a thread of its own, for sync callers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ottla.client.errors import ClientClosedError, ForkedError, IllegalStateError
from ottla.env.futures import settle
from ottla.env.process import process_id
from ottla.env.threads import SIGNAL_POLL_S, Latch, RLock, Thread, thread_id

T = TypeVar("T")
P = ParamSpec("P")

STOP_TIMEOUT_S = 5.0
TASKS_TIMEOUT_S = 1.0
"""Time for remaining tasks to end after the loop is stopped."""
CANCEL_TIMEOUT_S = 0.5
"""Time that an interrupted caller waits for the cancelled work to end."""

UserCall = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class _Waiting:
    """A caller waiting for work. It may be interrupted anywhere, so abandonment is also marked by a flag."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.abandoned = False
        self.task: asyncio.Task[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self, task: asyncio.Task[Any]) -> None:
        """In the loop: the work has ended."""
        try:
            self.result = task.result()
        except BaseException as error:
            self.error = error
        self.ended.set()

    def fail(self, error: BaseException) -> None:
        """In the loop: the work could not be started."""
        self.error = error
        self.ended.set()

    def cancel(self) -> None:
        """In the loop: cancel the work, if it was started."""
        if self.task is None:
            self.ended.set()
        else:
            self.task.cancel()


class _Serving(_Waiting):
    """A caller waiting in `run_serving`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: SimpleQueue[UserCall | None] = SimpleQueue()

    def next_call(self) -> UserCall | None:
        """In the caller: wait for the next call; None when the work has ended."""
        while True:
            with contextlib.suppress(Empty):
                return self.calls.get(timeout=SIGNAL_POLL_S)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.calls.put(None)

    def end(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """In the loop: the work has ended, or was cancelled before it started."""
        coroutine.close()
        self.ended.set()
        self.calls.put(None)


class LoopThread:
    """Runs coroutines for other threads. Threads do not survive a fork, so a child process needs its own.

    If it is dropped without `close`, a ResourceWarning is issued, and `closing` runs before the thread ends. Neither
    `closing` nor code in the loop may hold a reference to the owner, or it would never be collected.
    """

    def __init__(self, name: str, closing: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        self._closing = closing
        self._loop, self._thread = _begin(name)
        self._process = process_id()
        self._closed = False
        #: Held while work is passed to the loop, so that the loop is not stopped before it starts the work.
        self._handing_over = RLock()
        self._finishing = RLock()
        #: The callers waiting in `run_serving`, the innermost last.
        self._serving: list[_Serving] = []
        #: Work whose callers were interrupted, and that may not have ended yet.
        self._left_over: list[_Serving] = []

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """Run `work(*args)` in the loop; the caller waits for its result.

        Raises ClientClosedError without a loop (any more), IllegalStateError if the caller runs in it.
        """
        self._check_may_wait()
        waiting = _Waiting()

        def begin() -> None:
            if waiting.abandoned:
                return
            try:
                coroutine = work(*args, **options)
            except BaseException as error:  # The caller waits for it.
                waiting.fail(error)
                return
            waiting.task = self._loop.create_task(coroutine)
            waiting.task.add_done_callback(waiting.take)

        try:
            self.call(begin)
            waiting.ended.wait()
        except BaseException:
            waiting.abandoned = True
            self._hand_over(waiting.cancel)
            raise
        result: T = self._result_of(waiting)
        return result

    def run_serving(self, work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """Same as `run`; meanwhile the waiting caller executes functions that the loop passes to `in_caller`.

        A caller that is interrupted (KeyboardInterrupt) cancels the work and waits a limited time for its end.
        """
        self._check_may_wait()
        self.finish_left_over()
        serving = _Serving()

        def begin() -> None:
            if serving.abandoned:
                serving.ended.set()
                return
            try:
                coroutine = work(*args, **options)
            except BaseException as error:  # The caller waits for it.
                serving.fail(error)
                return
            serving.task = self._loop.create_task(self._serve(serving, coroutine))
            serving.task.add_done_callback(lambda _: serving.end(coroutine))

        try:
            self.call(begin)
            while (call := serving.next_call()) is not None:
                self._execute(*call)
        except BaseException:
            if not serving.ended.is_set() and not self._closed:
                serving.abandoned = True
                self._left_over.append(serving)
                self._hand_over(serving.cancel)
                serving.ended.wait(CANCEL_TIMEOUT_S)
            raise
        result: T = self._result_of(serving)
        return result

    def _result_of(self, waiting: _Waiting) -> Any:
        if isinstance(waiting.error, asyncio.CancelledError):
            raise _closed_meanwhile() if self._closed else CancelledError
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def finish_left_over(self) -> None:
        """Wait a limited time for the end of work whose caller was interrupted, even while it waited for that end.

        Such work must not run beside the caller's next call.
        """
        while self._left_over:
            self._hand_over(self._left_over[-1].cancel)  # again: what interrupted the caller may have prevented it
            self._left_over[-1].ended.wait(CANCEL_TIMEOUT_S)
            self._left_over.pop()

    async def _serve(self, serving: _Serving, work: Coroutine[Any, Any, Any]) -> None:
        self._serving.append(serving)
        try:
            serving.result = await work
        except BaseException as error:
            serving.error = error
        finally:
            self._serving.remove(serving)

    def _execute(self, call: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        """Run a call for the loop and pass its result back; anything but an Exception is raised here."""
        try:
            result = call()
        except Exception as error:
            self._hand_over(settle, answer, None, error)
        else:
            self._hand_over(settle, answer, result, None)

    async def in_caller(self, function: Callable[..., T], *args: Any) -> T:
        """In the loop: return the result of `function(*args)`, called in the thread that waits in `run_serving`."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._serving[-1].calls.put((lambda: function(*args), answer))
        return await answer

    def call(self, work: Callable[[], None]) -> None:
        """Schedule `work()` in the loop; the caller does not wait. Raises ClientClosedError without a loop."""
        self.check()
        if not self._hand_over(work):
            raise _closed_meanwhile()

    def _hand_over(self, function: Callable[..., Any], *args: Any) -> bool:
        """Schedule `function(*args)` in the loop; False if it is being stopped."""
        with self._handing_over:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *args)
            return not self._closed

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the loop, and so must not wait for it."""
        return thread_id() == self._thread.ident

    @property
    def is_closed(self) -> bool:
        """Whether nothing can run any more: the loop was stopped, or belongs to the parent process."""
        return self._closed or process_id() != self._process

    def check(self) -> None:
        """Raise ClientClosedError if nothing can run any more."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        if process_id() != self._process:
            raise ForkedError("client")
        if sys.is_finalizing():  # No thread but the main one runs any more: a caller would wait for ever.
            raise ClientClosedError("the client cannot be used: Python is ending")

    def _check_may_wait(self) -> None:
        self.check()
        if self.is_current:
            raise IllegalStateError(
                f"this call would wait for the thread that it was made in ({self._thread.name}), for ever; "
                "callbacks and (de)serializers must not call what waits"
            )

    def close(self) -> None:
        """Stop the loop and the thread; callers waiting in `run` get ClientClosedError. No effect in a forked child."""
        if process_id() != self._process:
            return
        with self._handing_over:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(STOP_TIMEOUT_S)

    def finish(self) -> None:
        """Run `closing` in the loop, then `close` even if it failed; only once, and not in a forked child.

        No effect while Python is ending, as for a generator that is collected last: its threads do not run any more.
        """
        if self.is_closed or sys.is_finalizing():
            return
        with self._finishing:
            if self._closed:
                return
            try:
                if self._closing is not None:
                    self.run(self._closing)
            finally:
                self.close()

    def __del__(self, _warn: Any = warnings.warn, _process_id: Any = process_id) -> None:
        if getattr(self, "_closed", True) or _process_id() != self._process:
            return
        self._closed = True
        _warn(f"a client was dropped without close: {self._thread.name}", ResourceWarning, source=self)
        asyncio.run_coroutine_threadsafe(_end(self._closing), self._loop)


class _Beginning:
    """A thread that makes its loop. Its caller may be interrupted, and want it no more."""

    def __init__(self) -> None:
        self.over = Latch()
        self.unwanted = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: Exception | None = None

    def give_up(self) -> None:
        """In the caller: let the thread end, whether it has made the loop or not."""
        self.unwanted = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # closed: the thread has seen it
                self.loop.call_soon_threadsafe(self.loop.stop)


def _begin(name: str) -> tuple[asyncio.AbstractEventLoop, Thread]:
    """Start a thread with an event loop; returns both.

    The thread creates the loop: Ctrl-C interrupts only the caller, and a loop interrupted during its creation would be
    incomplete, with a traceback when it is collected. An interrupted caller leaves a thread that ends at once.
    """
    beginning = _Beginning()
    thread = Thread(target=_serve, args=(beginning,), name=name, daemon=True)
    try:
        thread.start()
        beginning.over.wait()
    except BaseException:
        beginning.give_up()
        raise
    if beginning.loop is None:
        raise beginning.error or RuntimeError("the thread has ended without a loop")
    return beginning.loop, thread


def _serve(beginning: _Beginning) -> None:
    """The thread's main function: create the loop, run it until it is stopped."""
    try:
        loop = asyncio.new_event_loop()
    except Exception as error:
        beginning.error = error
        beginning.over.set()
        return
    try:
        beginning.loop = loop
        beginning.over.set()
        if not beginning.unwanted:  # Else nothing may run: `give_up` stops what runs, also the end of tasks.
            loop.run_forever()
            loop.run_until_complete(_end_tasks())
    finally:
        loop.close()


async def _end_tasks() -> None:
    """In a stopped loop: cancel the remaining tasks, so that no caller waits for them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=TASKS_TIMEOUT_S)
    await asyncio.sleep(0)  # once more, so that callers and connections are notified


async def _end(closing: Callable[[], Coroutine[Any, Any, object]] | None) -> None:
    """In the loop of a dropped client: run `closing`, then stop the loop."""
    try:
        if closing is not None:
            await closing()
    finally:
        asyncio.get_running_loop().stop()


def _closed_meanwhile() -> ClientClosedError:
    return ClientClosedError("the client was closed while this call was under way")
