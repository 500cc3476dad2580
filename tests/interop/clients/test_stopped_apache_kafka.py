"""Consumers of groups end soon after they are cancelled while Apache Kafka, stopped by SIGSTOP, makes their topic.

`tests/unit/client/consumer/test_cancelled_anywhere.py` does this with a cluster of its own, many times over.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.clients.topics import create_topic
from ottla.client import Admin, Consumer
from ottla.client.consumer.consumer import CLOSE_TIMEOUT_MS
from ottla.client.errors import ClientError, UnknownTopicError
from support.apache import ApacheKafka

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.needs_kafka, pytest.mark.spec("G10")]

ROUNDS = 50
CONSUMERS = 8
OFFSETS_TOPIC = "__consumer_offsets"
#: When after the start of a round the broker is stopped, and when after that the consumers are cancelled, seconds.
STOPPED_WITHIN_S = 2.5
CANCELLED_WITHIN_S = 1.0
#: What a busy machine may take on top of the time that `close` gives itself.
PATIENCE_S = 30.0


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """A broker of its own, which is stopped again and again."""
    broker = ApacheKafka(tmp_path, zookeeper=None, overrides={"offsets.topic.num.partitions": "50"})
    try:
        yield broker.start()
    finally:
        broker.kill9()


async def consume(bootstrap: str, group: str) -> None:
    async with Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=50
    ) as consumer:
        await consumer.subscribe(["t"])
        while True:
            try:
                await consumer.poll(1000)
                await consumer.commit(timeout_ms=200)
            except ClientError:
                await asyncio.sleep(0.01)  # sleep: between two tries of an application


async def forget_groups(bootstrap: str) -> None:
    """Delete the offsets topic, so that the next group has it made."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        async with asyncio.timeout(60):
            while True:
                try:
                    await admin.delete_topic(OFFSETS_TOPIC)
                except UnknownTopicError:
                    return
                except ClientError:
                    await asyncio.sleep(0.05)  # sleep: between two tries


async def play(kafka: ApacheKafka, seed: int) -> float:
    """One round; how long the slowest consumer took to end."""
    chance = random.Random(seed)
    await forget_groups(kafka.bootstrap)
    tasks = [asyncio.create_task(consume(kafka.bootstrap, f"g{seed}-{number}")) for number in range(CONSUMERS)]
    await asyncio.sleep(chance.uniform(0, STOPPED_WITHIN_S))  # sleep: wherever the broker is then
    kafka.server.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(chance.uniform(0, CANCELLED_WITHIN_S))  # sleep: wherever the consumers are then
        begun = time.monotonic()
        for task in tasks:
            task.cancel()
        _, left = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_MS / 1000 + PATIENCE_S)
        assert not left, [str(task.get_stack()) for task in left]
        assert all(task.cancelled() for task in tasks)
        return time.monotonic() - begun
    finally:
        kafka.server.signal(signal.SIGCONT)


@pytest.mark.timeout(900)
def test_cancelled_while_the_offsets_topic_is_made(kafka: ApacheKafka) -> None:
    create_topic(kafka.bootstrap, "t", 2)
    for seed in range(ROUNDS):
        took_s = asyncio.run(play(kafka, seed))
        print(f"round {seed}: {took_s:.2f} s")
        assert took_s < CLOSE_TIMEOUT_MS / 1000 + PATIENCE_S, seed
