"""How processes learn of a pipeline's runner, and ask it to stop: two notes in the checkpoint, on any file system.

The runner writes a heartbeat every `BEAT_INTERVAL_S`, from before Spark starts until it has ended. A stop request names
the run that it is for, so that an old one stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint

BEAT_INTERVAL_S: Final = 5.0
#: A heartbeat older than this says nothing certain any more.
STALE_S: Final = 4 * BEAT_INTERVAL_S

_RUNNER: Final = "runner"
_STOP: Final = "stop"


class RunState(StrEnum):
    """The state that a runner reports."""

    starting = "starting"
    running = "running"
    stopping = "stopping"
    stopped = "stopped"
    failed = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether the runner does nothing any more."""
        return self in (RunState.stopped, RunState.failed)


@dataclass(frozen=True, slots=True)
class RunnerHeartbeat:
    """A runner's last word: which run, where, and when (ms since 1970, by the runner's clock).

    `process_start` tells its process from a later one with the same number; None where the system does not say it.
    """

    run_id: str
    host: str
    pid: int
    started_ms: int
    beat_ms: int
    state: RunState
    process_start: str | None = None


class Liveness(StrEnum):
    """Whether a runner is there, as far as that can be known from here."""

    never = "never"
    """No runner has been here."""
    alive = "yes"
    ended = "no"
    """It said so when it ended, or its process is gone."""
    unknown = "unknown"


@dataclass(frozen=True, slots=True)
class Runner:
    """A runner as seen from a process: its last heartbeat, whether it is there, and why that is thought."""

    heartbeat: RunnerHeartbeat | None
    liveness: Liveness
    reason: str


class RunnerNotes:
    """The notes of one pipeline."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = QueryCheckpoint(checkpoint)

    def beat(self, heartbeat: RunnerHeartbeat) -> None:
        """Write a heartbeat. Raises PipelineError."""
        self._checkpoint.write_note(_RUNNER, asdict(heartbeat))

    def heartbeat(self) -> RunnerHeartbeat | None:
        """The last one; None where there is none. Raises PipelineError."""
        found = self._checkpoint.note(_RUNNER)
        return None if found is None else _heartbeat(found)

    def request_stop(self, run_id: str, now_ms: int) -> None:
        """Ask a run to end after the batch in work. Raises PipelineError."""
        self._checkpoint.write_note(_STOP, {"run_id": run_id, "asked_ms": now_ms})

    def is_stop_requested(self, run_id: str) -> bool:
        """Whether this run was asked to end. Raises PipelineError."""
        found = self._checkpoint.note(_STOP)
        return found is not None and found.get("run_id") == run_id

    def runner(self, host: str, now_ms: int, is_running: Callable[[int, str | None], bool]) -> Runner:
        """The runner as a process on `host` sees it. Raises PipelineError."""
        return judge(self.heartbeat(), host, now_ms, is_running)


def judge(
    heartbeat: RunnerHeartbeat | None, host: str, now_ms: int, is_running: Callable[[int, str | None], bool]
) -> Runner:
    """Whether the runner of a heartbeat is there, asked on `host`, whose processes `is_running` knows."""
    if heartbeat is None:
        return Runner(None, Liveness.never, "no runner has been here")
    at, age_s = f"process {heartbeat.pid} on {heartbeat.host}", max(0.0, (now_ms - heartbeat.beat_ms) / 1_000)
    if heartbeat.state.has_ended:
        return Runner(heartbeat, Liveness.ended, f"{at} {heartbeat.state} {age_s:.0f} s ago")
    if heartbeat.host == host and not is_running(heartbeat.pid, heartbeat.process_start):
        return Runner(heartbeat, Liveness.ended, f"{at} is gone, and did not say that it ends: killed?")
    # A process that is there is alive however old its beat is: it may be halted, or its disk slow.
    is_ours = heartbeat.host == host and heartbeat.process_start is not None
    if age_s <= STALE_S or is_ours:
        return Runner(heartbeat, Liveness.alive, f"{at}, {heartbeat.state}, last heard of {age_s:.0f} s ago")
    if heartbeat.host == host:
        return Runner(heartbeat, Liveness.unknown, f"{at} is there, and was last heard of {age_s:.0f} s ago: halted?")
    return Runner(heartbeat, Liveness.unknown, f"{at} was last heard of {age_s:.0f} s ago; only {heartbeat.host} knows")


def _heartbeat(found: Mapping[str, Any]) -> RunnerHeartbeat:
    try:
        return RunnerHeartbeat(
            run_id=str(found["run_id"]),
            host=str(found["host"]),
            pid=int(found["pid"]),
            started_ms=int(found["started_ms"]),
            beat_ms=int(found["beat_ms"]),
            state=RunState(found["state"]),
            process_start=None if found.get("process_start") is None else str(found["process_start"]),
        )
    except (KeyError, TypeError, ValueError):
        raise PipelineError(
            "the heartbeat in the checkpoint cannot be read; it is of another release of ottla"
        ) from None
