"""Requests given to a broker's dispatcher in this process, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.net.connection import ANONYMOUS, Principal
from ottla.wire.apis import API
from ottla.wire.codec import decode, encode
from ottla.wire.framing import RequestHeader, encode_request_frame, parse_response_header
from ottla.wire.schema import Message


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until the condition holds."""
    for _ in range(10_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


class FakeConnection:
    """Keeps answers."""

    def __init__(self, principal: Principal | None = ANONYMOUS) -> None:
        self.listener_name = "PLAINTEXT"
        self.peer_host, self.peer_port = "1.2.3.4", 9
        self.principal = principal
        self.frame_limit = 1 << 30
        self.state: object = None
        self.last_active_ms = 0.0
        self.closed = False
        self.kept = False
        self.muted_ms = 0.0
        self.answers: list[bytes] = []
        self.completed = 0

    def keep_frame(self) -> None:
        self.kept = True

    def mute_for(self, duration_ms: float) -> None:
        self.muted_ms = duration_ms

    def send_bytes(self, data: bytes) -> None:
        self.answers.append(data)

    def send(self, parts: Iterable[bytes]) -> None:
        self.answers.append(b"".join(parts))

    def complete(self) -> None:
        self.completed += 1

    def close(self) -> None:
        self.closed = True

    @property
    def is_done(self) -> bool:
        return self.closed or bool(self.completed) or bool(self.answers)


class Ask:
    """Gives requests to a broker's dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def __call__(self, key: int, version: int, request: Message, principal: Principal | None = ANONYMOUS) -> Any:
        connection = FakeConnection(principal)
        self.give(connection, key, version, request)
        await wait_until(lambda: connection.is_done)
        return self.answer(connection, key, version)

    def give(self, connection: FakeConnection, key: int, version: int, request: Message) -> None:
        frame = encode_request_frame(RequestHeader(key, version, 5, "c"), encode(request, version))
        stand_in: Any = connection
        self.broker.dispatcher.handle_frame(stand_in, memoryview(bytearray(frame))[4:])

    def answer(self, connection: FakeConnection, key: int, version: int) -> Any:
        """The decoded answer, None where there was none."""
        if not connection.answers:
            return None
        body = memoryview(connection.answers[0])[4:]
        _, at = parse_response_header(body, key, version)
        return decode(API[key].response, bytes(body[at:]), version)


def with_broker(
    folder: Path, scenario: Callable[[Ask], Awaitable[None]], first_topic: str | None = "t", **settings: str
) -> None:
    """Run a scenario on a broker with a topic; settings have underscores for dots."""

    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        config = parse_broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), **named})
        assert isinstance(config, BrokerConfig), config
        broker = Broker(config)
        assert await broker.start() is None
        try:
            if first_topic is not None:
                await broker.control.admin.create_topic(TopicSpec(first_topic, 1))
            await scenario(Ask(broker))
        finally:
            await broker.stop()

    asyncio.run(run())
