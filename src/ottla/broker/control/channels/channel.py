"""One broker's channel: control requests in order, one in flight, repeated until the broker has answered or is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.control.channels.messages import (
    ControlMessages,
    deletion_answered,
    leader_and_isr_answered,
)
from ottla.cluster.control_batches import ControlRequest, LeaderAndIsrBatch, StopReplicaBatch
from ottla.cluster.controller_events import Event, SendToBroker, StateLost
from ottla.peer.errors import ClientError
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.control.interbroker import BrokerConnector
    from ottla.cluster.controller_events import LiveBroker
    from ottla.peer.connection import PeerConnection

log = logging.getLogger("ottla.controller")

#: Behind the error of a broker whose ACLs deny what brokers do.
DENIED_CURE = ", not authorized: name this broker's principal in its super.users, or allow it ClusterAction"
#: Most requests that wait for a broker. Beyond, they are dropped, and the broker gets the whole state instead.
MOST_WAITING = 5_000
#: Pause before a request is repeated, in milliseconds, as in Kafka's `RequestSendThread`.
RETRY_MS = 100


class _Waiting(NamedTuple):
    sending: SendToBroker
    request: ControlRequest


class BrokerChannel:
    """Sends control requests to a broker in one registration. `post` gives the controller what the broker answers."""

    def __init__(
        self, broker: LiveBroker, connector: BrokerConnector, messages: ControlMessages, post: Callable[[Event], None]
    ) -> None:
        self.broker = broker
        self._connector = connector
        self._messages = messages
        self._post = post
        self._waiting: deque[_Waiting] = deque()
        self._connection: PeerConnection | None = None
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False
        #: Whether the broker was reported as not reachable, and is not yet reachable again.
        self._is_reported = False

    def send(self, sending: SendToBroker) -> None:
        """Queue requests behind those that wait."""
        if len(self._waiting) + len(sending.requests) > MOST_WAITING:
            log.error("broker %d has not answered %d control requests", self.broker.image.id, len(self._waiting))
            # The first may be in flight.
            while len(self._waiting) > 1:
                self._waiting.pop()
            self._post(StateLost(self.broker.image.id, self.broker.epoch))
            return
        self._waiting.extend(_Waiting(sending, request) for request in sending.requests)
        if not self._is_closed and (self._working is None or self._working.done()):
            self._working = asyncio.get_running_loop().create_task(self._work())

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Close; unanswered requests are dropped."""
        self._is_closed = True
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
        self._disconnect()

    async def closed(self) -> None:
        """Close, and wait for the end of the work."""
        self.close()
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _work(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = await self._connector.connect(self.broker.image)
                message = await self._messages.make(first.sending, first.request)
                response = await self._connection.request(message, through=self._messages.slices.through)
            except ClientError as error:
                self._disconnect()
                self._report(error)
                await asyncio.sleep(RETRY_MS / 1000)  # sleep: the pause before a request is repeated
                continue
            self._is_reported = False
            if self._waiting and self._waiting[0] is first:
                self._waiting.popleft()
            try:
                await self._answered(first, response)
            except Exception:
                log.exception("the response of broker %d is not understood", self.broker.image.id)

    def _report(self, error: ClientError) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.warning(
                "control requests cannot be sent to broker %d, %d wait: %s",
                self.broker.image.id,
                len(self._waiting),
                error,
            )

    async def _answered(self, answered: _Waiting, response: Any) -> None:
        sending, request = answered
        error = response.error_code
        if error != ErrorCode.NONE:
            cure = DENIED_CURE if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
            log.error("broker %d refuses a control request: error %s%s", sending.broker_id, error, cure)
        event: Event | None = None
        if isinstance(request, StopReplicaBatch):
            event = await self._messages.slices.through(deletion_answered(sending, request, response))
        elif isinstance(request, LeaderAndIsrBatch) and error == ErrorCode.NONE:
            event = await self._messages.slices.through(leader_and_isr_answered(sending, request, response))
        if event is not None:
            self._post(event)
