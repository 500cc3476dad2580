"""Ctrl-C at any moment ends a program within a second and leaves nothing wrong behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop.clients.topics import create_topic, group_size, values_of
from support.processes import ServerProcess
from support.proxied import ProxiedBroker
from support.waiting import Stopwatch, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("C1", "P1")]

PROGRAM = Path(__file__).with_name("interrupted.py")
ACTIVITIES = ("poll", "iterate", "commit", "rebalance", "send", "flush", "close", "hanging poll", "hanging send")
KINDS = ("sync", "asyncio")
EVERYDAY_POINTS = {"ottla": 20, "apache": 0}
LONG_POINTS = 100
READY_TIMEOUT_S = 90.0
LATEST_S = 0.4
#: From the signal to the end of the process: a second, and what a machine that is busy with other tests takes for the
#: end of an interpreter.
LIMIT_S = 1.0 + 4.0
#: What asyncio says of tasks and coroutines that nobody waited for. Source lines of the traceback may say anything.
COMPLAINTS = ("was never awaited", "exception was never retrieved", "Task was destroyed")

#: How Python begins what it says of an interrupt that it drops.
DROPPED = "Exception ignored"


def points(side: str) -> list[object]:
    """The points of one side, those beyond the everyday ones marked long."""
    everyday = EVERYDAY_POINTS[side]
    beyond = [pytest.param(side, point, marks=pytest.mark.long) for point in range(everyday, LONG_POINTS)]
    return [pytest.param(side, point) for point in range(everyday)] + beyond


@pytest.mark.needs_kafka
@pytest.mark.parametrize(("proxied", "point"), points("ottla") + points("apache"), indirect=["proxied"])
def test_ctrl_c_at_a_random_moment(proxied: ProxiedBroker, unique: str, tmp_path: Path, point: int) -> None:
    activity = ACTIVITIES[point % len(ACTIVITIES)]
    kind = KINDS[point // len(ACTIVITIES) % len(KINDS)]
    hangs = activity.startswith("hanging")
    topic = create_topic(proxied.direct, unique)
    prepare(proxied.direct, topic)
    acknowledged = tmp_path / "acknowledged"
    arguments = [kind, activity, proxied.bootstrap, topic, unique, str(acknowledged)]
    program = ServerProcess("interrupted", [sys.executable, str(PROGRAM), *arguments], tmp_path)
    try:
        program.wait_until_ready(lambda: "ready" in program.stdout, READY_TIMEOUT_S)
        if hangs:
            proxied.proxy.hang()
        time.sleep(random.Random(point).uniform(0.0, LATEST_S))  # sleep: interrupted at a random moment
        took_s = interrupt(program)
        status = program.wait()
    finally:
        program.kill9()
        proxied.proxy.heal()
    assert status == -signal.SIGINT, f"{activity}, {kind}: {program.output_tail()}"
    assert program.stderr.rstrip().endswith("KeyboardInterrupt"), program.stderr
    assert not [what for what in COMPLAINTS if what in program.stderr], program.stderr
    assert took_s < LIMIT_S, f"{activity}, {kind}: {program.stderr}"
    values = values_of(proxied.direct, topic, 0)
    assert set(acknowledged.read_bytes().splitlines()) <= set(values)
    if not hangs and activity != "close":
        assert group_size(proxied.direct, unique) == 0, f"{activity}, {kind}: it left the group"
    assert len(values) == len(set(values)), "nothing is there twice"


def interrupt(program: ServerProcess) -> float:
    """Press Ctrl-C until the program ends; returns the seconds that it took after the last time.

    Python drops what a signal's handler raises in a finalizer, such as the one that every thread has, and says so. Then
    a user presses the keys again.
    """
    watch = Stopwatch(program.pid)
    pressed = 0

    def has_ended() -> object:
        nonlocal pressed, watch
        if pressed == program.stderr.count(DROPPED):
            pressed, watch = pressed + 1, Stopwatch(program.pid)
            program.signal(signal.SIGINT)
        return os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    wait_until(has_ended, lambda: f"the end of the program: {program.stderr}")
    return watch.seconds()


def prepare(bootstrap: str, topic: str) -> None:
    """A few records to read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(500):
        producer.produce(topic, b"prepared %d" % number)
    assert producer.flush(120) == 0
