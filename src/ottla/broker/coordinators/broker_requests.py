"""Requests of coordinators to other brokers: each is sent once, over a connection to its broker that is kept.

They have nothing to do with the controller's channels, which repeat requests until the broker has answered or is gone:
here a failure is an outcome like any other, and the state machine that sent the request decides. Source: Apache Kafka
3.9, `InterBrokerSendThread`, as `TransactionMarkerChannelManager` and `AddPartitionsToTxnManager` use it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.control.interbroker import KeptConnection
from ottla.peer.errors import ClientError, ClientTimeoutError, UnsupportedVersionError
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest, Destination
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.control.interbroker import BrokerConnector
    from ottla.cluster.image import BrokerImage, ClusterImage
    from ottla.wire.schema import Message

log = logging.getLogger("ottla.broker")

MOST_IN_WORK = 5_000
"""Most requests that are not answered yet; more than these fail at once, with REQUEST_TIMED_OUT."""
FAILURE_PAUSE_S = 0.1
"""Pause before a failure is passed on: what is sent again at once must not spin."""


class BrokerRequestSender:
    """`BrokerRequests`; `image` is the cluster as this broker knows it.

    Requests to one broker go out in their order. A connection is made, and then each response awaited, for `timeout_ms`
    (None: as the connector does). `client_id` is another than this broker's id. This broker is a destination, too.
    """

    def __init__(
        self,
        connector: BrokerConnector,
        image: ClusterImage,
        *,
        timeout_ms: int | None = None,
        client_id: str | None = None,
    ) -> None:
        self._connector = connector
        self._image = image
        self._timeout_ms = timeout_ms
        self._client_id = client_id
        #: By broker id.
        self._connections: dict[int, KeptConnection] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def send(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        """Send a request to its broker, or to the leader of its partition; call `done` once, later, with the outcome.

        BROKER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE: the broker, partition or leader is
        absent at present. NETWORK_EXCEPTION, REQUEST_TIMED_OUT: it may have been carried out. UNSUPPORTED_VERSION: the
        broker does not serve the API.
        """
        task = asyncio.get_running_loop().create_task(self._work(request, done))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def close(self) -> None:
        """Close all connections; what is not answered has no outcome any more."""
        for task in self._tasks:
            task.cancel()
        for connection in self._connections.values():
            connection.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the outcome of a request to another broker could not be handled", exc_info=error)

    async def _work(self, request: BrokerRequest, done: Callable[[BrokerOutcome], None]) -> None:
        response = await self._response(request)
        if not isinstance(response, ErrorCode):
            done(BrokerOutcome(request.token, ErrorCode.NONE, response))
            return
        await asyncio.sleep(FAILURE_PAUSE_S)
        done(BrokerOutcome(request.token, response))

    async def _response(self, request: BrokerRequest) -> Message | ErrorCode:
        if len(self._tasks) > MOST_IN_WORK:
            return ErrorCode.REQUEST_TIMED_OUT
        target = self._target(request.destination)
        if isinstance(target, ErrorCode):
            return target
        kept = self._connections.get(target.id)
        if kept is None:
            kept = self._connections[target.id] = KeptConnection(self._connector, self._client_id, self._timeout_ms)
        try:
            connection = await kept.to(target)
            response: Message = await connection.request(
                request.payload, timeout_ms=self._timeout_ms, versions=request.versions
            )
        except ClientError as error:
            log.debug("a request of a coordinator (key %d) to broker %d failed: %s", request.api_key, target.id, error)
            return _error_of(error)
        return response

    def _target(self, destination: Destination) -> BrokerImage | ErrorCode:
        """The broker that a request goes to."""
        image = self._image
        if isinstance(destination, int):
            return image.brokers.get(destination, ErrorCode.BROKER_NOT_AVAILABLE)
        name, index = destination
        topic = image.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return image.brokers.get(topic.partitions[index].leader, ErrorCode.LEADER_NOT_AVAILABLE)


def _error_of(error: ClientError) -> ErrorCode:
    if isinstance(error, UnsupportedVersionError):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(error, ClientTimeoutError) else ErrorCode.NETWORK_EXCEPTION
