"""Heartbeats and stop requests: what they say from here and from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.running.control import STALE_S, Liveness, RunnerHeartbeat, RunnerNotes, RunState, judge
from ottla.spark.pipelines.running.process import is_running, process_start
from support.waiting import wait_until

NOW_MS = 1_000_000_000


def _beat(
    age_s: float = 1.0, host: str = "here", state: RunState = RunState.running, start: str | None = "17"
) -> RunnerHeartbeat:
    return RunnerHeartbeat("run", host, 42, NOW_MS - 60_000, NOW_MS - round(age_s * 1_000), state, start)


@pytest.mark.parametrize(
    ("heartbeat", "exists", "expected"),
    [
        (None, False, Liveness.never),
        (_beat(), True, Liveness.alive),
        (_beat(), False, Liveness.ended),
        (_beat(state=RunState.stopped), True, Liveness.ended),
        (_beat(state=RunState.failed, host="there"), True, Liveness.ended),
        (_beat(STALE_S + 1), True, Liveness.alive),
        # Of a release that did not say when its process started: the process may be another one by now.
        (_beat(STALE_S + 1, start=None), True, Liveness.unknown),
        (_beat(start=None), True, Liveness.alive),
        (_beat(host="there"), False, Liveness.alive),
        (_beat(STALE_S + 1, host="there"), False, Liveness.unknown),
    ],
)
def test_what_is_known_is_said_and_no_more(heartbeat: RunnerHeartbeat | None, exists: bool, expected: Liveness) -> None:
    found = judge(heartbeat, "here", NOW_MS, lambda pid, start: exists)
    assert found.liveness is expected
    assert heartbeat is None or (heartbeat.host in found.reason and "42" in found.reason)


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    mine = process_start(os.getpid())
    assert is_running(os.getpid(), mine)
    assert is_running(os.getpid(), None)
    assert not is_running(0, None)
    assert not is_running(2**22 + 1, None)
    if mine is not None:
        assert not is_running(os.getpid(), f"{mine}0")


def test_a_process_that_nobody_has_waited_for_yet_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        start = process_start(child.pid)
        assert is_running(child.pid, start)
        child.kill()
        wait_until(lambda: start is None or not is_running(child.pid, start), what="the end of the child")
    assert not is_running(child.pid, start)


def test_a_heartbeat_of_the_release_before_is_read(tmp_path: Path) -> None:
    notes = RunnerNotes(str(tmp_path / "checkpoint"))
    notes.beat(_beat())
    path = tmp_path / "checkpoint" / "ottla" / "runner.json"
    content = json.loads(path.read_text())
    assert content.pop("process_start") == "17"
    path.write_text(json.dumps(content))
    assert notes.heartbeat() == _beat(start=None)


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
