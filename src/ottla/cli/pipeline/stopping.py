"""`ottla pipeline stop`: the request in the checkpoint, and the wait for the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.cli.pipeline import COMMAND
from ottla.spark.pipelines.running.control import Liveness, Runner, RunnerNotes
from ottla.spark.pipelines.running.process import host_name, is_running

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import PipelineSettings

POLL_S = 0.2


def stop_command(settings: PipelineSettings, wait_s: float | None) -> int:
    """Ask the runner to end, and with `wait_s` wait that long; the exit code. Raises PipelineError."""
    notes = RunnerNotes(settings.checkpoint)
    runner = _look(notes)
    if runner.heartbeat is None or runner.liveness is Liveness.ended:
        return COMMAND.report(f"{settings.name} does not run: {runner.reason}")
    run_id = runner.heartbeat.run_id
    notes.request_stop(run_id, round(time.time() * 1_000))
    print(f"{settings.name} is asked to end after the batch in work ({runner.reason})", flush=True)
    if wait_s is None:
        return 0
    deadline = time.monotonic() + wait_s
    while not _has_ended(runner := _look(notes), run_id):
        if time.monotonic() >= deadline:
            return COMMAND.report(f"{settings.name} has not ended in {wait_s:.0f} s: {runner.reason}")
        time.sleep(POLL_S)
    print(f"{settings.name} has ended ({runner.reason})", flush=True)
    return 0


def _look(notes: RunnerNotes) -> Runner:
    return notes.runner(host_name(), round(time.time() * 1_000), is_running)


def _has_ended(runner: Runner, run_id: str) -> bool:
    """Whether this run has ended; another one may have begun meanwhile."""
    return runner.liveness is Liveness.ended or runner.heartbeat is None or runner.heartbeat.run_id != run_id
