"""Delayed fetches complete exactly once: by their condition, by their deadline, or never when cancelled."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.connection_state import ConnectionState
from ottla.broker.replicas.partition import Partition, Replication
from ottla.broker.replicas.purgatory import DelayedFetch

LONG_MS = 60_000


def partitions(count: int = 2) -> list[Partition]:
    log: Any = SimpleNamespace(log_end_offset=0)
    return [Partition("t", UUID(int=1), index, log, False, Replication(lambda: 0)) for index in range(count)]


async def waiting(
    hosted: list[Partition], missing: int, max_wait_ms: int
) -> tuple[DelayedFetch, ConnectionState, list[int], asyncio.Event]:
    client = ConnectionState()
    answers: list[int] = []
    answered = asyncio.Event()

    def respond() -> None:
        answers.append(1)
        answered.set()

    queues = [each.waiting for each in hosted]
    return DelayedFetch(client, queues, missing, max_wait_ms, respond), client, answers, answered


@pytest.mark.spec("R7")
def test_it_completes_when_enough_bytes_have_come_and_only_once() -> None:
    async def scenario() -> None:
        hosted = partitions()
        fetch, client, answers, _ = await waiting(hosted, 100, LONG_MS)
        assert client.pending is fetch
        fetch.grown(60)
        assert answers == []
        fetch.grown(40)
        assert answers == [1]
        assert client.pending is None
        assert all(not partition.waiting for partition in hosted)
        fetch.grown(1000)
        fetch.complete()
        assert answers == [1]

    asyncio.run(scenario())


def test_it_completes_at_its_deadline() -> None:
    async def scenario() -> None:
        hosted = partitions()
        _, client, answers, answered = await waiting(hosted, 100, 1)
        await asyncio.wait_for(answered.wait(), 10)
        assert answers == [1]
        assert client.pending is None
        assert all(not partition.waiting for partition in hosted)

    asyncio.run(scenario())


def test_a_cancelled_one_never_answers() -> None:
    async def scenario() -> None:
        hosted = partitions()
        fetch, _, answers, _ = await waiting(hosted, 1, 1)
        fetch.cancel()
        assert all(not partition.waiting for partition in hosted)
        fetch.grown(10)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, later.set)
        await later.wait()
        assert answers == []

    asyncio.run(scenario())
