"""A deadlocked client of librdkafka is told from one that waits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from support.librdkafka_threads import DEADLOCKED_S, MainThread, with_main_thread
from support.waiting import wait_until


def test_who_does_not_run_for_long_is_deadlocked(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\trdk:main\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n")
    thread = MainThread(tmp_path)
    assert not thread.is_deadlocked(100.0)
    assert not thread.is_deadlocked(100.0 + DEADLOCKED_S - 1)
    assert thread.is_deadlocked(100.0 + DEADLOCKED_S)
    status.write_text("voluntary_ctxt_switches:\t8\n")
    assert not thread.is_deadlocked(200.0)
    status.unlink()
    assert not thread.is_deadlocked(300.0)
    assert not MainThread(None).is_deadlocked()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are seen in /proc")
def test_a_client_that_has_nobody_to_talk_to_runs(tmp_path: Path) -> None:
    consumer, thread = with_main_thread(lambda: Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    folder = thread.folder
    assert folder is not None
    assert (folder / "comm").read_text().strip() == "rdk:main"
    before = thread.switches()
    wait_until(lambda: thread.switches() != before, "the main thread to run")
    consumer.close()
