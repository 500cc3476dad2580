"""Ctrl-C at any moment ends a program within a second and leaves nothing wrong behind."""

from __future__ import annotations

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
from support.waiting import Stopwatch, wait_until_ended

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
        watch = Stopwatch(program.pid)
        program.signal(signal.SIGINT)
        wait_until_ended(program.pid)
        took_s = watch.seconds()
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


def prepare(bootstrap: str, topic: str) -> None:
    """A few records to read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(500):
        producer.produce(topic, b"prepared %d" % number)
    assert producer.flush(120) == 0
