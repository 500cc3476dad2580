"""Clients in an event loop that is not asyncio's own."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import Consumer, Producer, TopicPartition

COUNT = 100


@pytest.mark.spec("C8")
def test_uvloop(ottla_server):
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed (pip install ottla[fast])")

    async def there_and_back() -> list[bytes]:
        async with Producer(bootstrap_servers=ottla_server.bootstrap) as producer:
            futures = [await producer.send("t", b"%d" % at, partition=0) for at in range(COUNT)]
            assert [(await future).offset for future in futures] == list(range(COUNT))
        async with Consumer(bootstrap_servers=ottla_server.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition("t", 0)])
            values: list[bytes] = []
            while len(values) < COUNT:
                values += [record.value for record in await consumer.poll(timeout_ms=1000)]
            return values

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(there_and_back()) == [b"%d" % at for at in range(COUNT)]
