"""A request with very many elements, of every served API and version that has arrays, holds up nobody.

The broker, a client and a probe share one event loop. The probe counts the processor time of the loop's thread between
its turns, so that a busy machine does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.served import SERVED
from ottla.broker.server import Broker
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.collector import tune_collector
from ottla.wire.apis import API
from ottla.wire.sliced import LAZY_ELEMENTS
from support.large_requests import RequestMaker, shapes
from support.server_collector import restored_collector

#: Fewer than the limit of elements, for the sake of the time that the test takes; all work is linear.
ELEMENTS = 2_000
#: Of the steps between two turns of the loop 99 in 100 must be shorter, seconds.
LONGEST_TURN_S = 0.050
#: The longest of all: a collection of garbage may fall into it.
LONGEST_OF_ALL_S = 0.5
#: No topic is made because a request names it, and the one of offsets is small.
FEW_TOPICS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The garbage collector as in `ottla serve`; it passes over what was there before, the objects of other tests."""
    with restored_collector():
        tune_collector()
        yield


@asynccontextmanager
async def running(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker on this loop, with these settings."""
    config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **settings})
    assert isinstance(config, BrokerConfig), config
    broker = Broker(config)
    assert await broker.start() is None
    try:
        yield broker
    finally:
        await broker.stop()


class Probe:
    """Measures what the loop's thread does between two of its turns."""

    def __init__(self) -> None:
        self.turns_s: list[float] = []
        self._is_on = True

    async def run(self) -> None:
        last = time.thread_time()
        while self._is_on:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.turns_s.append(now - last)
            last = now

    def stop(self) -> None:
        self._is_on = False

    def percentile(self, share: float) -> float:
        ordered = sorted(self.turns_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def exchange(port: int, frame: bytes) -> int:
    """Send a request; returns the size of the answer, 0 where the connection was closed instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(frame)
        try:
            size = int.from_bytes(await reader.readexactly(4), "big")
            left = size
            while left:
                data = await reader.read(min(left, 1 << 16))
                if not data:
                    return 0
                left -= len(data)
            return size
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return 0
    finally:
        writer.close()


async def measured(port: int, frame: bytes) -> tuple[int, Probe]:
    probe = Probe()
    watching = asyncio.get_running_loop().create_task(probe.run())
    try:
        async with asyncio.timeout(60):
            size = await exchange(port, frame)
    finally:
        probe.stop()
        await watching
    return size, probe


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("S5", "R7")
def test_no_request_holds_the_loop(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **FEW_TOPICS) as broker:
            await broker.groups.router.ensure_topic()
            # Handlers are imported at their first request, and pytest compiles each module again to rewrite assertions.
            for served in SERVED.values():
                served.load()
            port = broker.listening[0].port
            for key, version, path in shapes():
                frame = RequestMaker(version, "t").frame(key, path, (1,) * (len(path) - 1) + (ELEMENTS,))
                size, probe = await measured(port, frame)
                what = f"{API[key].name} version {version}, {ELEMENTS} elements of {'.'.join(path)}"
                assert size > 0, f"{what}: no answer"
                assert probe.percentile(0.99) < LONGEST_TURN_S, what
                assert max(probe.turns_s) < LONGEST_OF_ALL_S, what

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("S5")
def test_every_array_may_have_more_elements_than_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there as arrays that can only be iterated: a handler that does more with one fails, which is logged."""
    monkeypatch.setattr("ottla.broker.dispatch.DECODED_AT_ONCE_BYTES", 0)

    async def run() -> None:
        async with running(tmp_path, **FEW_TOPICS) as broker:
            await broker.groups.router.ensure_topic()
            for key, version, path in shapes():
                frame = RequestMaker(version, "t").frame(key, path, (1,) * (len(path) - 1) + (LAZY_ELEMENTS + 1,))
                what = f"{API[key].name} version {version}, {LAZY_ELEMENTS + 1} elements of {'.'.join(path)}"
                async with asyncio.timeout(60):
                    assert await exchange(broker.listening[0].port, frame) > 0, f"{what}: no answer"
                assert not [each.getMessage() for each in caplog.records if each.exc_info], what

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.spec("S5", "R7")
def test_moves_and_elections_of_as_many_partitions_as_a_request_may_name(tmp_path: Path) -> None:
    """Near the limit of elements: what takes less than a microsecond for each shows only here."""

    async def run() -> None:
        async with running(tmp_path) as broker:
            for key, version, path in (
                (34, 2, ("dirs",)),
                (43, 2, ("topic_partitions", "partitions")),
                (45, 0, ("topics", "partitions")),
                (46, 0, ("topics",)),
            ):
                frame = RequestMaker(version, "t").frame(key, path, (1,) * (len(path) - 1) + (190_000,))
                size, probe = await measured(broker.listening[0].port, frame)
                assert size > 0, f"{API[key].name}: no answer"
                assert max(probe.turns_s) < 2 * LONGEST_TURN_S, API[key].name

    asyncio.run(run())


@pytest.mark.spec("S5")
def test_settings_of_one_topic_asked_for_very_often_are_described_once(tmp_path: Path) -> None:
    """20,000 times the same topic: what is described is encoded once, and held once until it is sent."""

    async def run() -> None:
        async with running(tmp_path) as broker:
            assert await broker.control.admin.ensure_topic("t0") is None
            frame = RequestMaker(4, "t", same=True).frame(32, ("resources",), (20_000,))
            size, probe = await measured(broker.listening[0].port, frame)
            assert size > 20_000 * 1_000
            assert probe.percentile(0.99) < LONGEST_TURN_S

    asyncio.run(run())


@pytest.mark.spec("S5")
@pytest.mark.parametrize(
    ("key", "version", "path"),
    [(14, 5, ("assignments",)), (21, 2, ("topics", "partitions"))],
    ids=["SyncGroup", "DeleteRecords"],
)
def test_elements_that_name_the_same_thing_are_worked_on_in_slices(
    tmp_path: Path, key: int, version: int, path: tuple[str, ...]
) -> None:
    """Decoding looks at the clock for every 16 elements; whoever works on them afterwards has to do so, too."""

    async def run() -> None:
        async with running(tmp_path) as broker:
            looks = 0
            monotonic_ms = broker.slices._monotonic_ms

            def counted() -> float:
                nonlocal looks
                looks += 1
                return monotonic_ms()

            broker.slices._monotonic_ms = counted
            frame = RequestMaker(version, "t", same=True).frame(key, path, (1,) * (len(path) - 1) + (ELEMENTS,))
            size, _ = await measured(broker.listening[0].port, frame)
            assert size > 0
            assert looks > ELEMENTS / 16 + ELEMENTS / 128

    asyncio.run(run())
