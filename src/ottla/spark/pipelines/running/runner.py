"""A pipeline's query followed until it ends or is asked to: heartbeats, stop requests, and the end after a batch."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running.control import BEAT_INTERVAL_S, RunnerHeartbeat, RunnerNotes, RunState
from ottla.spark.pipelines.running.process import host_name, process_start

log = logging.getLogger(__name__)

#: How often the runner looks at the query and at signals, and how often for a stop request in the checkpoint.
POLL_S: Final = 0.2
STOP_LOOK_S: Final = 1.0


class FollowedQuery(Protocol):
    """The runner's view of a StreamingQuery, classic or of Spark Connect."""

    @property
    def isActive(self) -> bool: ...  # noqa: D102, N802

    @property
    def status(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def lastProgress(self) -> Any: ...  # noqa: D102, N802

    def awaitTermination(self, timeout: int | None = None) -> bool | None: ...  # noqa: D102, N802

    def stop(self) -> None: ...  # noqa: D102


@dataclass(slots=True)
class StopWish:
    """The end that signals ask for: after the batch in work, or at once. Handlers of signals set it."""

    after_batch: bool = False
    at_once: bool = False

    def ask(self) -> None:
        """Ask to end after the batch in work; asked again, at once."""
        self.at_once = self.after_batch
        self.after_batch = True


@dataclass(frozen=True, slots=True)
class Ending:
    """How a query ended: by itself (`available_now`), because it was asked to, or by an exception."""

    was_stopped: bool = False
    failure: Exception | None = None


class PipelineRunner:
    """One run of a pipeline: its heartbeats, and its end. `on_poll` is called between two looks at the query.

    A thread writes the heartbeats from `announce` to `close`: the start of Spark, and its end, may take minutes.
    """

    def __init__(
        self,
        checkpoint: str,
        wish: StopWish,
        on_poll: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._notes = RunnerNotes(checkpoint)
        self._wish = wish
        self._on_poll = on_poll
        self._now_s = now_s
        self._started_ms = round(now_s() * 1_000)
        self.run_id = uuid.uuid4().hex
        self._state = RunState.starting
        self._writing = threading.Lock()
        self._has_closed = threading.Event()
        self._looked_at_s = 0.0
        self._trouble_is_known = False

    def announce(self) -> None:
        """Write the first heartbeat, and the others from now on.

        Raises PipelineError where the checkpoint cannot be written.
        """
        self._notes.beat(self._heartbeat())
        threading.Thread(target=self._keep_beating, name="ottla-pipeline-heartbeat", daemon=True).start()

    def follow(self, query: FollowedQuery) -> Ending:
        """Wait for the end of the query, or end it when it is asked to end."""
        self._change(RunState.running)
        try:
            while not query.awaitTermination(_seconds(POLL_S)):
                self._on_poll()
                if self._wish.after_batch or self._is_stop_requested():
                    self._change(RunState.stopping)
                    self._end_after_batch(query)
                    return Ending(was_stopped=True)
        except Exception as failure:  # Whatever Spark raises for a query that failed; the caller reports it.
            return Ending(failure=failure)
        return Ending()

    def close(self, *, failed: bool) -> None:
        """Write the last heartbeat."""
        self._has_closed.set()
        self._change(RunState.failed if failed else RunState.stopped)

    def _end_after_batch(self, query: FollowedQuery) -> None:
        """Stop the query once the batch that is in work has ended; at once if that is asked for."""
        batch = _last_batch(query)
        while query.isActive and not self._wish.at_once:
            if not query.status["isTriggerActive"] or _last_batch(query) != batch:
                break
            self._on_poll()
            query.awaitTermination(_seconds(POLL_S))
        query.stop()

    def _keep_beating(self) -> None:
        while not self._has_closed.wait(BEAT_INTERVAL_S):
            self._beat()

    def _is_stop_requested(self) -> bool:
        if self._now_s() - self._looked_at_s < STOP_LOOK_S:
            return False
        self._looked_at_s = self._now_s()
        try:
            return self._notes.is_stop_requested(self.run_id)
        except PipelineError as problem:
            self._note_trouble(problem)
            return False

    def _change(self, state: RunState) -> None:
        with self._writing:
            self._state = state
        self._beat()

    def _beat(self) -> None:
        with self._writing:
            if self._has_closed.is_set() and not self._state.has_ended:
                return  # The last word is that of `close`.
            try:
                self._notes.beat(self._heartbeat())
            except PipelineError as problem:
                self._note_trouble(problem)

    def _note_trouble(self, problem: PipelineError) -> None:
        """A pipeline whose heartbeat cannot be written runs on; the log says so once."""
        if not self._trouble_is_known:
            self._trouble_is_known = True
            log.warning("status and stop may not work: %s", problem)

    def _heartbeat(self) -> RunnerHeartbeat:
        return RunnerHeartbeat(
            run_id=self.run_id,
            host=host_name(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            beat_ms=round(self._now_s() * 1_000),
            state=self._state,
            process_start=process_start(os.getpid()),
        )


def _last_batch(query: FollowedQuery) -> object:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]


def _seconds(value: float) -> Any:
    """PySpark declares whole seconds, and takes parts of them."""
    return value
