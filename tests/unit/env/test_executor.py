from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.env import executor as executors
from ottla.env.executor import DiskExecutor, Executor, InlineExecutor, NoThread


def fail() -> int:
    raise ValueError("no")


@pytest.mark.parametrize("make", [lambda: DiskExecutor(2), InlineExecutor])
def test_results_and_exceptions_come_back(make: object) -> None:
    executor: Executor = make()  # type: ignore[operator]

    async def run() -> None:
        assert await executor.submit(lambda a, b: a + b, 1, 2) == 3
        with pytest.raises(ValueError, match="no"):
            await executor.submit(fail)
        told: list[tuple[object, object]] = []
        both = asyncio.Event()

        def done(result: object, error: object) -> None:
            told.append((result, type(error)))
            if len(told) == 2:
                both.set()

        executor.call(lambda: 5, done)
        executor.call(fail, done)
        await both.wait()
        assert sorted(told, key=str) == [(5, type(None)), (None, ValueError)]
        outcomes = executor.run_all([lambda: 1, fail, lambda: 2])
        assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]
        assert executor.run_all([]) == []

    asyncio.run(run())
    executor.close()
    executor.close()


def test_work_leaves_the_loop_and_counts() -> None:
    async def run() -> None:
        executor = DiskExecutor(1)
        go = threading.Event()
        future = executor.submit(lambda: (go.wait(10), threading.current_thread().name)[1])
        assert executor.pending == 1
        go.set()
        assert (await future).startswith("ottla-disk")
        assert executor.pending == 0
        executor.close()
        with pytest.raises(RuntimeError, match="stopped"):
            executor.submit(fail)
        told: list[object] = []
        executor.call(fail, lambda result, error: told.append((result, type(error))))
        assert told == [(None, NoThread)], "whoever counts on being told is told"

    asyncio.run(run())


def test_waiting_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "MAX_WAITING_JOBS", 1)

    async def run() -> None:
        executor = DiskExecutor(1)
        go = threading.Event()
        future = executor.submit(go.wait, 10)
        with pytest.raises(RuntimeError, match="jobs wait"):
            executor.submit(go.wait, 10)
        go.set()
        await future
        executor.close()

    asyncio.run(run())
