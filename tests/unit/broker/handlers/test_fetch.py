"""Fetch against the logs of a broker in this process: when it answers at once, and when it waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.connection_state import ConnectionState
from ottla.broker.context import RequestContext
from ottla.broker.fetches import answering
from ottla.broker.handlers import fetch
from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.disk import FileSlice
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT, AppendInfo
from ottla.wire.framing import RequestHeader
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

VERSION = 11
LONG_MS = 60_000


class Client:
    """The connection as handlers see it: answers are kept, file ranges released."""

    def __init__(self) -> None:
        self.peer_host = "1.2.3.4"
        self.listener_name = "PLAINTEXT"
        self.state = ConnectionState()
        self.record_bytes: list[int] = []
        self.closed = False

    def send(self, parts: Sequence[Any]) -> None:
        slices = [part for part in parts if isinstance(part, FileSlice)]
        self.record_bytes.append(sum(part.length for part in slices))
        for part in slices:
            assert part.release is not None
            part.release()

    def send_bytes(self, data: bytes) -> None:
        self.record_bytes.append(0)

    def close(self) -> None:
        self.closed = True


def ask(broker: Broker, client: Client, offset: int, min_bytes: int = 1, topic: str = "t") -> None:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    request = FetchRequest(
        max_wait_ms=LONG_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    stand_in: Any = client
    fetch.handle(RequestContext(broker, stand_in, RequestHeader(1, VERSION, 1, "c")), request)


def produce(broker: Broker) -> int:
    partition = broker.partitions.get("t", 0)
    assert partition is not None
    batch = bytearray(encode_batch([Record(0, broker.clock.now_ms(), b"k", bytes(100))]))
    assert isinstance(broker.partitions.append(partition, memoryview(batch), CLIENT), AppendInfo)
    return len(batch)


def with_broker(folder: Path, scenario: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **named})
        assert isinstance(config, BrokerConfig), config
        broker = Broker(config)
        assert await broker.start() is None
        try:
            await broker.control.admin.create_topic(TopicSpec("t", 1))
            await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


@pytest.mark.spec("R7")
def test_it_waits_for_min_bytes_and_for_no_more(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client()
        size = produce(broker)
        ask(broker, client, 0, 2 * size)
        assert client.record_bytes == []
        produce(broker)
        assert client.record_bytes == [2 * size]

    with_broker(tmp_path, scenario)


def test_the_end_of_an_older_segment_is_answered_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client()
        size = produce(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        log.roll(broker.clock.now_ms())
        produce(broker)
        ask(broker, client, 0, 100 * size)
        assert client.record_bytes == [size], "the segment will not grow: waiting is in vain"

    with_broker(tmp_path, scenario)


def test_a_deleted_topic_ends_the_wait(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client()
        ask(broker, client, 0)
        assert await broker.control.admin.delete_topic("t") is None
        assert client.record_bytes == [0]
        assert client.state.pending is None

    with_broker(tmp_path, scenario)


def test_a_late_answer_that_fails_ends_its_own_connection_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(broker: Broker) -> None:
        client = Client()
        ask(broker, client, 0)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(answering, "encode_fetch_response", broken)
        with caplog.at_level(logging.ERROR):
            produce(broker)
        assert client.closed
        assert "a fetch of /1.2.3.4 failed" in caplog.text

    with_broker(tmp_path, scenario)
