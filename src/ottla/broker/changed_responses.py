"""Requests that are handled as usual, and whose responses are cut or altered before they are sent (fault rules)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.intercept import ChangeResponse, Cut
from ottla.env.disk import FileSlice
from ottla.net.connection import MadePart, Part
from ottla.wire.apis import API
from ottla.wire.codec import decode_prefix, encode

log = logging.getLogger("ottla.broker")


def changing(context: RequestContext, verdict: Cut | ChangeResponse) -> RequestContext:
    """The context to handle the request in, so that its response is what the verdict says."""
    if isinstance(verdict, Cut):
        return _CutContext(context, verdict.after_bytes)
    return _ChangingContext(context, verdict.change)


class _WholeResponseContext(RequestContext):
    """A request whose response is collected in memory."""

    __slots__ = ()

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context.broker, context.connection, context.header)
        self.permitted = context.permitted
        self.throttle_ms = context.throttle_ms
        self.charge = context.charge

    def reply_parts(self, parts: Sequence[Part], length: int) -> None:
        try:
            body = _read(parts)
        except Exception as error:
            log.error("closing the connection of %s: its response cannot be read", self.client_host, exc_info=error)
            self.disconnect()
            return
        self.reply_body(body)


class _CutContext(_WholeResponseContext):
    """A request whose connection is closed after `after_bytes` of its response."""

    __slots__ = ("_after_bytes",)

    def __init__(self, context: RequestContext, after_bytes: int) -> None:
        super().__init__(context)
        self._after_bytes = after_bytes

    def reply_body(self, body: bytes) -> None:
        kept = (self._head(len(body)) + body)[: self._after_bytes]
        if kept:
            self.connection.send_bytes(kept)
            self.connection.close_when_sent()
        else:
            self.disconnect()

    def no_reply(self) -> None:
        self.disconnect()


class _ChangingContext(_WholeResponseContext):
    """A request whose response is altered."""

    __slots__ = ("_change",)

    def __init__(self, context: RequestContext, change: Callable[[Any], None]) -> None:
        super().__init__(context)
        self._change = change

    def reply_body(self, body: bytes) -> None:
        try:
            response, _ = decode_prefix(API[self.header.api_key].response, body, self.api_version)
            self._change(response)
            changed = encode(response, self.api_version)
        except Exception as error:
            log.error("closing the connection of %s: its response cannot be changed", self.client_host, exc_info=error)
            self.disconnect()
            return
        super().reply_body(changed)


def _read(parts: Sequence[Part]) -> bytes:
    """The bytes of a response; its file ranges are read and released."""
    pieces: list[bytes | bytearray | memoryview] = []
    try:
        for part in parts:
            if isinstance(part, FileSlice):
                pieces.append(part.read())
            elif isinstance(part, MadePart):
                while part.length > 0:
                    part.begin()
                    pieces.append(piece := part.make())
                    part.end(len(piece))
            else:
                pieces.append(part)
    finally:
        for part in parts:
            if isinstance(part, FileSlice | MadePart) and part.release is not None:
                part.release()
    return b"".join(pieces)
