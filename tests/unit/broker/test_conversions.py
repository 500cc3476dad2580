"""Conversions wait in line before the disk threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.broker.conversions import RUNNING_LIMIT, WAITING_BYTES_LIMIT, Conversions
from ottla.env.executor import NoThread


class HandExecutor:
    """Keeps the works until told to do them."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.closed = False

    def call(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        if self.closed:
            done(None, NoThread("the disk threads are stopped"))
            return
        self.works.append((work, done))

    def finish(self, number: int = 0) -> None:
        work, done = self.works.pop(number)
        try:
            done(work(), None)
        except ZeroDivisionError as error:
            done(None, error)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        raise AssertionError("not used")

    def run_all(self, works: Sequence[Callable[[], object]]) -> list[Exception | None]:
        raise AssertionError("not used")

    def close(self) -> None:
        self.closed = True


def test_only_a_few_run_at_a_time_and_in_the_order_asked() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    results: list[int | None] = []
    for number in range(5):
        line.run(lambda number=number: number, lambda result, _error: results.append(result))
    assert len(executor.works) == RUNNING_LIMIT
    while executor.works:
        assert len(executor.works) <= RUNNING_LIMIT
        executor.finish()
    assert results == [0, 1, 2, 3, 4]


def test_a_long_line_is_refused_one_by_one_when_the_threads_are_stopped() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    errors: list[BaseException | None] = []
    for _ in range(5_000):
        line.run(lambda: None, lambda _result, error: errors.append(error))
    executor.close()
    while executor.works:
        executor.finish()
    assert len(errors) == 5_000
    assert [type(error) for error in errors].count(NoThread) == 5_000 - RUNNING_LIMIT


def test_a_failed_one_makes_room_for_the_next() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    errors: list[BaseException | None] = []
    for _ in range(RUNNING_LIMIT + 1):
        line.run(lambda: 1 // 0, lambda _result, error: errors.append(error))
    while executor.works:
        executor.finish()
    assert [type(error) for error in errors] == [ZeroDivisionError] * (RUNNING_LIMIT + 1)


def test_when_the_threads_are_stopped_all_are_notified() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    executor.close()
    errors: list[BaseException | None] = []
    for _ in range(4):
        line.run(lambda: 1, lambda _result, error: errors.append(error))
    assert [type(error) for error in errors] == [NoThread] * 4


def test_what_waits_is_bounded() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    most = WAITING_BYTES_LIMIT // 2
    done: list[int] = []
    taken = [line.run(lambda: 1, lambda result, _error: done.append(result or 0), most) for _ in range(5)]
    assert taken == [True] * (RUNNING_LIMIT + 2) + [False]
    assert line.run(lambda: 2, lambda result, _error: done.append(result or 0))
    executor.finish()
    assert line.run(lambda: 3, lambda result, _error: done.append(result or 0), most)
    while executor.works:
        executor.finish()
    assert done == [1, 1, 1, 1, 2, 3]


def test_a_result_that_cannot_be_handled_does_not_stop_the_queue() -> None:
    executor = HandExecutor()
    line = Conversions(executor)
    results: list[int | None] = []

    def broken(_result: int | None, _error: BaseException | None) -> None:
        raise RuntimeError("for a test")

    for _ in range(RUNNING_LIMIT):
        line.run(lambda: 0, broken)
    line.run(lambda: 1, lambda result, _error: results.append(result))
    for _ in range(RUNNING_LIMIT):
        with pytest.raises(RuntimeError, match="for a test"):
            executor.finish()
    executor.finish()
    assert results == [1]
