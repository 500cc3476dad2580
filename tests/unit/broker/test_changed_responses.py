"""Responses that are cut, or altered before they are sent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.changed_responses import changing
from ottla.broker.context import RequestContext
from ottla.broker.intercept import ChangeResponse, Cut
from ottla.env.disk import FileSlice
from ottla.net.connection import MadePart
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.codec import encode
from ottla.wire.framing import RequestHeader
from ottla.wire.messages.heartbeat import HeartbeatResponse

HEARTBEAT = 12


class SentTo:
    """The connection: keeps what it is given."""

    def __init__(self) -> None:
        self.peer_host = "1.2.3.4"
        self.sent: list[bytes] = []
        self.closed_when_sent = self.closed = False

    def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    def close_when_sent(self) -> None:
        self.closed_when_sent = True

    def close(self) -> None:
        self.closed = True


def context_of(verdict: Cut | ChangeResponse) -> tuple[RequestContext, SentTo]:
    sent_to: Any = SentTo()
    broker: Any = None
    return changing(RequestContext(broker, sent_to, RequestHeader(HEARTBEAT, 0, 7, "c")), verdict), sent_to


def slice_of(data: bytes, release: Callable[[], None]) -> FileSlice:
    file = MemoryDisk(lambda: 0).open("/f", create=True)
    file.append([data])
    return FileSlice(file, 0, len(data), release)


@pytest.mark.parametrize("after_bytes", [1, 11, 12, 100])
def test_a_cut_response_of_all_kinds_of_parts(after_bytes: int) -> None:
    released: list[str] = []
    pieces = [b"ma", b"de"]
    made = MadePart(4, lambda: pieces.pop(0), lambda: released.append("made"))
    context, sent_to = context_of(Cut(after_bytes))
    context.reply_parts([b"head", slice_of(b"file", lambda: released.append("file")), made], 12)
    assert sent_to.sent == [b"\0\0\0\x10\0\0\0\x07headfilemade"[:after_bytes]]
    assert (sent_to.closed_when_sent, sorted(released)) == (True, ["file", "made"])


def test_nothing_of_a_response_or_no_response_at_all() -> None:
    context, sent_to = context_of(Cut(0))
    context.reply_body(b"body")
    assert (sent_to.sent, sent_to.closed) == ([], True)
    context, sent_to = context_of(Cut(10))
    context.no_reply()
    assert (sent_to.sent, sent_to.closed) == ([], True)


def test_a_response_is_altered() -> None:
    def change(response: HeartbeatResponse) -> None:
        response.error_code += 1

    context, sent_to = context_of(ChangeResponse(change))
    body = encode(HeartbeatResponse(error_code=26), 0)
    context.reply_body(body)
    context.reply_parts([body[:1], body[1:]], len(body))
    assert sent_to.sent == [b"\0\0\0\x06\0\0\0\x07\0\x1b"] * 2


@pytest.mark.parametrize("reply", [lambda context: context.reply_body(b"\0\0"), lambda context: reply_broken(context)])
def test_a_failed_change_closes_the_connection(
    reply: Callable[[RequestContext], None], caplog: pytest.LogCaptureFixture
) -> None:
    context, sent_to = context_of(ChangeResponse(lambda response: 1 / 0))
    with caplog.at_level(logging.ERROR, "ottla.broker"):
        reply(context)
    assert (sent_to.sent, sent_to.closed) == ([], True)
    assert "closing the connection of /1.2.3.4: its response cannot be" in caplog.text


def reply_broken(context: RequestContext) -> None:
    """A range of a file that cannot be read."""

    def unreadable() -> bytes:
        raise OSError("the disk is gone")

    context.reply_parts([MadePart(4, unreadable, lambda: None)], 4)
