"""Heartbeats and stop requests: what they say from here and from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running.control import STALE_S, Liveness, RunnerHeartbeat, RunnerNotes, RunState, judge

NOW_MS = 1_000_000_000


def _beat(age_s: float = 1.0, host: str = "here", state: RunState = RunState.running) -> RunnerHeartbeat:
    return RunnerHeartbeat("run", host, 42, NOW_MS - 60_000, NOW_MS - round(age_s * 1_000), state)


@pytest.mark.parametrize(
    ("heartbeat", "exists", "expected"),
    [
        (None, False, Liveness.never),
        (_beat(), True, Liveness.alive),
        (_beat(), False, Liveness.ended),
        (_beat(state=RunState.stopped), True, Liveness.ended),
        (_beat(state=RunState.failed, host="there"), True, Liveness.ended),
        (_beat(STALE_S + 1), True, Liveness.unknown),
        (_beat(host="there"), False, Liveness.alive),
        (_beat(STALE_S + 1, host="there"), False, Liveness.unknown),
    ],
)
def test_what_is_known_is_said_and_no_more(heartbeat: RunnerHeartbeat | None, exists: bool, expected: Liveness) -> None:
    found = judge(heartbeat, "here", NOW_MS, lambda pid: exists)
    assert found.liveness is expected
    assert heartbeat is None or (heartbeat.host in found.reason and "42" in found.reason)


def test_notes_are_kept_in_the_checkpoint(tmp_path: Path) -> None:
    notes = RunnerNotes(str(tmp_path / "checkpoint"))
    assert notes.heartbeat() is None
    notes.beat(_beat())
    notes.beat(_beat(state=RunState.stopping))
    assert notes.heartbeat() == _beat(state=RunState.stopping)


def test_a_stop_request_is_for_one_run(tmp_path: Path) -> None:
    notes = RunnerNotes(str(tmp_path / "checkpoint"))
    assert not notes.is_stop_requested("first")
    notes.request_stop("first", NOW_MS)
    assert notes.is_stop_requested("first")
    assert not notes.is_stop_requested("second")


def test_a_heartbeat_of_another_release_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint" / "ottla"
    folder.mkdir(parents=True)
    (folder / "runner.json").write_text('{"run_id": "x"}')
    with pytest.raises(PipelineError, match="it is of another release of ottla"):
        RunnerNotes(str(tmp_path / "checkpoint")).heartbeat()
