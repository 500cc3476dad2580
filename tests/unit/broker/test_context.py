"""The answer to a request, from whoever gives it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.context import RequestContext
from ottla.wire.framing import RequestHeader
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse


class FakeConnection:
    """Notes what is sent and whether it was closed."""

    def __init__(self) -> None:
        self.peer_host = "1.2.3.4"
        self.sent: list[bytes] = []
        self.closed = False

    def send(self, parts: tuple[bytes, ...]) -> None:
        self.sent.append(b"".join(parts))

    def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


def context(api_key: int, version: int) -> tuple[RequestContext, FakeConnection]:
    connection = FakeConnection()
    broker: Any = None
    stand_in: Any = connection
    return RequestContext(broker, stand_in, RequestHeader(api_key, version, 77, "client")), connection


def test_an_answer_has_its_size_and_the_requests_correlation_id() -> None:
    request, connection = context(12, 1)
    request.reply(HeartbeatResponse(error_code=27))
    assert connection.sent == [b"\0\0\0\x0a" + b"\0\0\0\x4d" + b"\0\0\0\0" + b"\0\x1b"]


def test_an_answer_that_cannot_be_written_closes_its_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request, connection = context(11, 3)
    with caplog.at_level(logging.ERROR):
        request.reply(JoinGroupResponse(member_id="m" * 40_000))
    assert connection.closed
    assert not connection.sent
    assert "its answer cannot be written" in caplog.text
