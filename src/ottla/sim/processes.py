"""Processes in one event loop in virtual time: each can be paused, resumed and killed, as the system does with its own.

Whatever a process starts (tasks, timers, callbacks) belongs to it, since asyncio passes the context of the caller on.
A paused process runs nothing; its callbacks wait, in their order, while time passes. A killed one never runs
again, not even what it would do at its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from ottla.sim.virtual_loop import VirtualTimeLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ProcessState(Enum):
    """Whether a process runs."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


class SimulatedProcess:
    """One process; made by `ProcessLoop.process`."""

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.state = ProcessState.RUNNING
        #: Callbacks that became due while it was paused.
        self.held: deque[asyncio.Handle] = deque()
        #: How many of its callbacks have run.
        self.callbacks = 0
        self._context = contextvars.copy_context()
        self._context.run(_CURRENT.set, self)

    @property
    def is_killed(self) -> bool:
        """Whether it was killed."""
        return self.state is ProcessState.KILLED

    @property
    def is_running(self) -> bool:
        """Whether it is neither killed nor paused."""
        return self.state is ProcessState.RUNNING

    @property
    def context(self) -> contextvars.Context:
        """A context for callbacks and tasks that belong to this process."""
        return self._context.copy()

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function that does not wait, as this process."""
        return self.context.run(call, *arguments)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process. It never ends if the process is killed before."""
        return self._loop.create_task(work, context=self.context)

    def pause(self) -> None:
        """Stop it until `resume`, as SIGSTOP does."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """Continue it, as SIGCONT does; one that was killed stays so."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self._loop.resume(self.held)

    def kill(self) -> None:
        """End it, as SIGKILL does."""
        self.state = ProcessState.KILLED
        self.held.clear()
        self._loop.keep_tasks(self)


_CURRENT: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("process", default=None)


def current_process() -> SimulatedProcess | None:
    """The process that runs now; None for the simulation itself."""
    return _CURRENT.get()


class _OfProcess(asyncio.Handle):
    """A callback of a process."""

    __slots__ = ()
    process: SimulatedProcess

    def _run(self) -> None:
        process = self.process
        if process.state is ProcessState.RUNNING:
            process.callbacks += 1
            super()._run()
        elif process.state is ProcessState.PAUSED:
            process.held.append(self)


class _Handle(_OfProcess):
    __slots__ = ("process",)


class _TimerHandle(_OfProcess, asyncio.TimerHandle):
    __slots__ = ("process",)


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    """Ignore errors after the end."""


class ProcessLoop(VirtualTimeLoop):
    """A virtual loop with processes; callbacks of the simulation itself run always."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self.outside = contextvars.Context()
        self._processes: WeakKeyDictionary[asyncio.Task[Any], SimulatedProcess | None] = WeakKeyDictionary()
        #: Tasks of killed processes: collected as garbage they would clean up, in the name of whoever runs then.
        self._dead: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its protocol differs by Python
        self.set_exception_handler(self._failed)
        #: All processes that were started.
        self.processes: list[SimulatedProcess] = []
        #: Unhandled errors of callbacks and tasks: (process, description).
        self.failures: list[tuple[str, str]] = []

    def process(self, name: str) -> SimulatedProcess:
        """Start a process."""
        process = SimulatedProcess(self, name)
        self.processes.append(process)
        return process

    def _make_task(
        self, _loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **arguments: Any
    ) -> asyncio.Task[T]:
        context = arguments.get("context")
        task = asyncio.Task(work, loop=self, **arguments)
        self._processes[task] = _CURRENT.get() if context is None else context.get(_CURRENT)
        return task

    def keep_tasks(self, killed: SimulatedProcess) -> None:
        """Keep the tasks of a process that was killed until the end."""
        self._dead += [task for task in asyncio.all_tasks(self) if self._processes.get(task) is killed]

    def resume(self, held: deque[asyncio.Handle]) -> None:
        """Run the held callbacks of a resumed process, and look at its descriptors."""
        self._ready.extend(held)
        held.clear()
        self.look_at_all()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        handle.process = process
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`."""
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        handle = _TimerHandle(when, callback, args, self, context)
        handle.process = process
        heapq.heappush(self._scheduled, handle)
        handle._scheduled = True  # type: ignore[attr-defined]  # not declared by typeshed
        return handle

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        handle = context.get("handle")
        process = handle.process if isinstance(handle, _OfProcess) else current_process()
        error = context.get("exception")
        task = context.get("task")
        what = "" if task is None else f" ({task!r})"
        self.failures.append(("" if process is None else process.name, f"{context.get('message')}: {error!r}{what}"))

    def run_and_close(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the simulation to the end of `work`; what processes have not ended by then is dropped."""
        try:
            return self.run_until_complete(work)
        finally:
            self.set_exception_handler(_ignore)
            # Tasks of processes would not take a cancellation. Their ends (`finally`) run now, and what these start is
            # dropped with the loop.
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            self.close()
