"""Thousands of topics: work that grows with their number, in slices, ended by a stop of the broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.control.metadata_writes import MOST_OPERATIONS
from ottla.broker.server import Broker
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.disk import Disk
from ottla.env.executor import InlineExecutor
from ottla.testing.disk_memory import MemoryDisk
from support.cpu_clock import without_collections

#: Four times the work may take so many times the processor time; work that grows with the square takes 16 times.
MOST_GROWTH = 7.0
ATTEMPTS = 3
#: So often the many are measured at most: one attempt without disturbance shows how little they cost.
MOST_ATTEMPTS = 9
#: The loop's thread may compute so long in one go. Slices are of 5 ms; in one piece the work takes several times this.
LONGEST_TURN_S = 0.25


async def started(folder: str, disk: Disk | None = None) -> Broker:
    config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder, "broker.id": "7"})
    assert isinstance(config, BrokerConfig)
    broker = Broker(config, disk=disk, executor=InlineExecutor() if disk is not None else None)
    assert await broker.start() is None
    return broker


def run(scenario: Callable[[Broker], Awaitable[None]], folder: Path | None = None) -> None:
    """In memory, or in a folder: renaming and removing folders in memory looks at all files."""

    async def whole() -> None:
        broker = await (started("/d", MemoryDisk()) if folder is None else started(str(folder)))
        try:
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(whole())


class Turns:
    """Measures how long the loop's thread computes before something else has its turn, in processor time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began_s)

    async def end(self) -> float:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.longest_s


async def create(broker: Broker, count: int) -> None:
    for number in range(count):
        # A dot, so that names are compared with those of all topics.
        assert isinstance(await broker.control.admin.create_topic(TopicSpec(f"topic.{number}")), TopicCreated)


async def delete(broker: Broker, count: int) -> None:
    for number in range(count):
        assert await broker.control.admin.delete_topic(f"topic.{number}") is None


async def on_demand(broker: Broker, count: int) -> None:
    for number in range(count):
        assert await broker.control.admin.ensure_topic(f"topic.{number}") is None


async def partitions(broker: Broker, count: int) -> None:
    assert isinstance(await broker.control.admin.create_topic(TopicSpec("topic.0", count)), TopicCreated)


async def more_partitions(broker: Broker, count: int) -> None:
    assert isinstance(await broker.control.admin.create_topic(TopicSpec("topic.0", 1)), TopicCreated)
    assert await broker.control.admin.create_partitions("topic.0", count) is None


async def settings(broker: Broker, count: int) -> None:
    for number in range(count):
        name = f"topic.{number}"
        changed = await broker.control.topic_configs.change(name, lambda _: {"retention.ms": "5"}, validate_only=False)
        assert changed is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "before", "few_topics"),
    [
        pytest.param(create, None, 120, id="create"),
        pytest.param(on_demand, None, 120, id="on demand"),
        pytest.param(delete, create, 120, id="delete"),
        pytest.param(settings, create, 120, id="settings"),
        pytest.param(partitions, None, 500, id="partitions"),
        pytest.param(more_partitions, None, 500, id="more partitions"),
    ],
)
def test_the_work_grows_with_the_number(
    tmp_path: Path,
    work: Callable[[Broker, int], Awaitable[None]],
    before: Callable[[Broker, int], Awaitable[None]] | None,
    few_topics: int,
) -> None:
    def cost_s(count: int, attempt: int = 0) -> float:
        costs = []

        async def scenario(broker: Broker) -> None:
            if before is not None:
                await before(broker, count)
            with without_collections():  # a full one costs as much as a thousand partitions
                began_s = time.process_time()
                await work(broker, count)
                costs.append(time.process_time() - began_s)

        run(scenario, tmp_path / f"{count}-{attempt}" if work is delete else None)
        return costs[0]

    cost_s(50)  # modules are imported, code is warm
    # The least of some attempts: what else runs on the machine, and in this process, only adds to the processor time.
    few = min(cost_s(few_topics, each) for each in range(ATTEMPTS))
    many = []
    while not many or (min(many) >= few * MOST_GROWTH and len(many) < MOST_ATTEMPTS):
        many.append(cost_s(4 * few_topics, len(many)))
    assert min(many) < few * MOST_GROWTH, (few, many)


@pytest.mark.slow
@pytest.mark.parametrize("work", [create, partitions])
def test_others_have_their_turn_meanwhile(work: Callable[[Broker, int], Awaitable[None]]) -> None:
    async def scenario(broker: Broker) -> None:
        await create(broker, 1)
        await delete(broker, 1)
        with without_collections():  # a full one looks through what all the tests before have left
            turns = Turns()
            await work(broker, 3 * MOST_OPERATIONS)
            longest_s = await turns.end()
        assert longest_s < LONGEST_TURN_S

    run(scenario)


@pytest.mark.slow
def test_a_stop_ends_what_is_under_way_and_the_next_start_finishes_it() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        broker = await started("/d", disk)
        making = asyncio.ensure_future(broker.control.admin.create_topic(TopicSpec("t", 6 * MOST_OPERATIONS)))
        while not broker.partitions.indexes("t"):  # noqa: ASYNC110 - until the first of its logs is there
            await asyncio.sleep(0)
        began_s = time.thread_time()
        await broker.stop()
        assert time.thread_time() - began_s < 5.0
        made = len(broker.partitions.indexes("t"))
        assert made < 6 * MOST_OPERATIONS
        result = (await asyncio.gather(making, return_exceptions=True))[0]
        assert isinstance(result, TopicRefusal | asyncio.CancelledError)
        again = await started("/d", disk)
        assert len(again.partitions.indexes("t")) == 6 * MOST_OPERATIONS
        await again.stop()

    asyncio.run(scenario())
