"""A request as handlers see it, without a connection: its answer goes through the bytes of its version."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.broker.authorization import SUPPORTED_BITS
from ottla.broker.slices import start
from ottla.cluster.acls import ResourceType
from ottla.wire.codec import decode, encode
from ottla.wire.schema import Message
from ottla.wire.sliced import encode_in_slices


class HandlerContext:
    """Stands in for `RequestContext`; everything is permitted, and slices never end."""

    def __init__(self, broker: Any, version: int, listener_name: str = "PLAINTEXT") -> None:
        self.broker = broker
        self.api_version = version
        self.listener_name = listener_name
        self.client_host = "/1.2.3.4"
        self.throttle_ms = 0
        self.charge = None
        self.permitted = None
        self.charge = None
        self.is_gone = False
        #: The answer, decoded.
        self.answer: Any = None

    def permits(self, *_: object) -> bool:
        return True

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        return SUPPORTED_BITS[resource_type]

    def reply(self, response: Message) -> None:
        self._answered(type(response), encode(response, self.api_version))

    def reply_body(self, body: bytes) -> None:
        raise NotImplementedError

    def reply_in_slices(self, response: Message) -> None:
        self.run(self.replied(response))

    async def replied(self, response: Message) -> None:
        steps = encode_in_slices(response, self.api_version)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            parts, _ = end.value
        self._answered(type(response), b"".join(parts))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.broker.slices.begin()
        rest = start(work)
        if rest is not None:
            self.spawn(rest)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    def _answered(self, cls: type[Message], body: bytes) -> None:
        assert self.answer is None, "answered twice"
        self.answer = decode(cls, body, self.api_version)
