"""The runner with a query that is played: it ends after the batch in work, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.running import runner as module
from ottla.spark.pipelines.running.control import RunnerNotes, RunState
from ottla.spark.pipelines.running.runner import PipelineRunner, StopWish
from support.waiting import wait_until


class PlayedQuery:
    """A query whose looks advance a script: each call of awaitTermination is one step."""

    def __init__(self, steps: list[Callable[[PlayedQuery], bool]]) -> None:
        self._steps = steps
        self.isActive = True
        self.status = {"isTriggerActive": True}
        self.lastProgress: Any = {"batchId": 4}
        self.stopped_after: int | None = None
        self.looks = 0

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802
        self.looks += 1
        return self._steps.pop(0)(self) if self._steps else False

    def stop(self) -> None:
        self.isActive = False
        self.stopped_after = None if self.lastProgress is None else self.lastProgress["batchId"]


class Clock:
    """A clock that moves with each look."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        self.now_s += 0.3
        return self.now_s


def _runner(folder: Path, wish: StopWish | None = None) -> PipelineRunner:
    return PipelineRunner(str(folder / "checkpoint"), wish or StopWish(), now_s=Clock())


def _state(folder: Path) -> RunState | None:
    heartbeat = RunnerNotes(str(folder / "checkpoint")).heartbeat()
    return None if heartbeat is None else heartbeat.state


def _waits(query: PlayedQuery) -> bool:
    return False


def test_a_query_that_ends_by_itself(tmp_path: Path) -> None:
    runner = _runner(tmp_path)
    ending = runner.follow(PlayedQuery([_waits, lambda query: True]))
    assert (ending.was_stopped, ending.failure) == (False, None)
    assert _state(tmp_path) is RunState.running
    runner.close(failed=False)
    assert _state(tmp_path) is RunState.stopped


def test_a_query_that_fails(tmp_path: Path) -> None:
    def fail(query: PlayedQuery) -> bool:
        raise RuntimeError("no")

    runner = _runner(tmp_path)
    assert isinstance(runner.follow(PlayedQuery([fail])).failure, RuntimeError)
    runner.close(failed=True)
    assert _state(tmp_path) is RunState.failed


def test_a_stop_from_elsewhere_waits_for_the_batch_in_work(tmp_path: Path) -> None:
    runner = _runner(tmp_path)

    def ask(query: PlayedQuery) -> bool:
        RunnerNotes(str(tmp_path / "checkpoint")).request_stop(runner.run_id, 0)
        return False

    def end_batch(query: PlayedQuery) -> bool:
        assert query.isActive, "stopped in the middle of a batch"
        query.lastProgress = {"batchId": 5}
        return False

    query = PlayedQuery([ask, *[_waits] * 10, end_batch])
    assert runner.follow(query).was_stopped
    assert query.stopped_after == 5


def test_a_query_that_waits_is_stopped_at_once(tmp_path: Path) -> None:
    wish = StopWish()
    wish.ask()
    query = PlayedQuery([_waits])
    query.status = {"isTriggerActive": False}
    assert _runner(tmp_path, wish).follow(query).was_stopped
    assert (query.stopped_after, query.looks) == (4, 1)


def test_a_first_batch_counts_as_one(tmp_path: Path) -> None:
    wish = StopWish()
    wish.ask()
    query = PlayedQuery([_waits, _waits])
    query.lastProgress = None

    def end_batch(played: PlayedQuery) -> bool:
        played.lastProgress = {"batchId": 0}
        return False

    query._steps.append(end_batch)
    assert _runner(tmp_path, wish).follow(query).was_stopped
    assert query.stopped_after == 0


def test_asked_twice_it_does_not_wait(tmp_path: Path) -> None:
    wish = StopWish()
    wish.ask()
    wish.ask()
    query = PlayedQuery([_waits])
    assert _runner(tmp_path, wish).follow(query).was_stopped
    assert query.looks == 1


def test_it_beats_from_before_the_query_starts_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's start and its end take longer than a heartbeat lasts, on a slow machine."""
    monkeypatch.setattr(module, "BEAT_INTERVAL_S", 0.01)
    notes = RunnerNotes(str(tmp_path / "checkpoint"))
    runner = _runner(tmp_path)

    def beats() -> int:
        heartbeat = notes.heartbeat()
        assert heartbeat is not None
        return heartbeat.beat_ms

    def wait_for_a_beat() -> None:
        before = beats()
        wait_until(lambda: beats() > before, what="another heartbeat")

    runner.announce()
    try:
        wait_for_a_beat()
        assert _state(tmp_path) is RunState.starting
        runner.follow(PlayedQuery([lambda query: True]))
        wait_for_a_beat()
        assert _state(tmp_path) is RunState.running
    finally:
        runner.close(failed=False)
    assert _state(tmp_path) is RunState.stopped
    runner._beat()
    assert _state(tmp_path) is RunState.stopped


def test_a_checkpoint_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoint").write_text("a file where a folder should be")
    runner = _runner(tmp_path)
    assert runner.follow(PlayedQuery([*[_waits] * 30, lambda query: True])).failure is None
    assert [each.getMessage()[:31] for each in caplog.records] == ["status and stop may not work: c"]
