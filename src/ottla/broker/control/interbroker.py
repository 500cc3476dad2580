"""Connections to other brokers on the inter-broker listener, and requests to the controller.

`BrokerConnector` opens connections; the controller's channels, the fetchers of followers and `KeptConnection` use it,
which `ControllerLink` and coordinators (`broker/coordinators/broker_requests.py`) use.
`ControllerLink` sends a broker's requests (AlterPartition, ControlledShutdown, AllocateProducerIds) to whoever is the
controller. Source: Apache Kafka 3.9, `NodeToControllerChannelManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.peer.errors import BrokerUnreachableError, ClientError, ConnectError
from ottla.peer.settings import ConnectionSettings, SaslSettings
from ottla.peer.tls import TlsSettings

if TYPE_CHECKING:
    from ottla.cluster.image import BrokerImage
    from ottla.config.broker import BrokerConfig
    from ottla.env.environment import Environment
    from ottla.peer.connection import PeerConnection
    from ottla.wire.schema import Message


class BrokerConnector:
    """Opens connections to other brokers, on the listener for brokers (`inter.broker.listener.name`)."""

    def __init__(self, broker_id: int, config: BrokerConfig, environment: Environment) -> None:
        self.listener_name = config.inter_broker_listener_name
        self.environment = environment
        #: How long a connection or a response may take (`controller.socket.timeout.ms`).
        self.timeout_ms = config.get_int("controller.socket.timeout.ms")
        self._client_id = str(broker_id)
        self._login: SaslSettings | None = None
        self.apply_settings(config)

    def apply_settings(self, config: BrokerConfig) -> None:
        """Use changed settings, and changed stores of keys, for new connections; the login stays if it cannot be."""
        tls = TlsSettings(config.tls_settings(self.listener_name)) if config.has_tls(self.listener_name) else None
        self._login = _own_login(config, self._login)
        self._settings = ConnectionSettings(
            client_id=self._client_id, request_timeout_ms=self.timeout_ms, tls=tls, sasl=self._login
        )

    async def connect(
        self, broker: BrokerImage, client_id: str | None = None, timeout_ms: int | None = None
    ) -> PeerConnection:
        """A new connection to the broker, with another client id and time limit if given. Raises ConnectError."""
        from ottla.peer.connection import open_connection  # a broker that is alone needs none

        endpoint = broker.endpoint(self.listener_name)
        if endpoint is None:
            raise BrokerUnreachableError(
                f"broker {broker.id} has no listener {self.listener_name}; all brokers of a cluster need the same "
                "inter.broker.listener.name",
                retriable=True,
            )
        settings = self._settings
        if client_id is not None:
            settings = replace(settings, client_id=client_id)
        timeout_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        return await open_connection(
            endpoint.host, endpoint.port, settings, self.environment, timeout_ms, look_twice=False
        )


def _own_login(config: BrokerConfig, former: SaslSettings | None) -> SaslSettings | None:
    """The login towards other brokers (`sasl.mechanism.inter.broker.protocol`), the former one where it cannot be."""
    if not any(endpoint.uses_sasl for endpoint in config.listeners):
        return None
    from ottla.broker.logins import inter_broker_login  # few brokers need it
    from ottla.peer.tokens import TokenSource
    from ottla.security.oauth_login import OauthLogin

    own = inter_broker_login(config)
    if own is None or isinstance(own, str):
        return None if own is None else former
    mechanism, login = own
    return SaslSettings(mechanism, TokenSource(login) if isinstance(login, OauthLogin) else login)


class KeptConnection:
    """A connection to one broker at a time, opened when needed and kept; a broker that has moved is another one.

    `client_id` and `timeout_ms` are those of `BrokerConnector.connect`.
    """

    def __init__(self, connector: BrokerConnector, client_id: str | None = None, timeout_ms: int | None = None) -> None:
        self._connector = connector
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connection: PeerConnection | None = None
        self._target: BrokerImage | None = None
        self._opening = asyncio.Lock()
        #: The last attempt that failed.
        self._failed: tuple[BrokerImage, ClientError] | None = None

    async def to(self, target: BrokerImage) -> PeerConnection:
        """The connection to this broker. Raises ClientError, also for an attempt that this call has waited for.

        Else each of many requests to a broker that does not answer would wait for its own attempt after the others'.
        """
        former = self._failed
        async with self._opening:
            if self._connection is not None and self._connection.is_open and self._target == target:
                return self._connection
            failed = self._failed
            if failed is not None and failed is not former and failed[0] == target:
                raise failed[1].with_traceback(None)
            self.close()
            try:
                connection = await self._connector.connect(target, self._client_id, self._timeout_ms)
            except ClientError as error:
                self._failed = target, error
                raise
            self._connection, self._target = connection, target
            return connection

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class ControllerLink:
    """A broker's connection to the controller.

    `controller` returns the controller as the broker knows it, None if there is none.
    """

    def __init__(self, connector: BrokerConnector, controller: Callable[[], BrokerImage | None]) -> None:
        self._kept = KeptConnection(connector)
        self._controller = controller
        #: The controller's id and broker epoch, as last reported.
        self._followed: tuple[int, int | None] = (-1, None)
        #: Done when the controller changes; None while no request waits.
        self._changed: asyncio.Future[None] | None = None

    async def request(
        self, message: Message, *, timeout_ms: int | None = None, versions: tuple[int, int] | None = None
    ) -> Any:
        """Send a request to the controller, once, and return the response. Its error codes are the caller's matter.

        Raises ClientError if no controller is known or reachable, it does not answer in time, or the controller
        changes meanwhile: whether the request was carried out is unknown then. If cancelled, the response is ignored
        when it comes.
        """
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        changed = self._changed
        asking = asyncio.ensure_future(self._ask(message, timeout_ms, versions))
        try:
            await asyncio.wait((asking, changed), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ConnectError("the controller has changed before it answered", retriable=True)
            return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, message: Message, timeout_ms: int | None, versions: tuple[int, int] | None) -> Any:
        target = self._controller()
        if target is None:
            self.close()
            raise ConnectError("the cluster has no controller at the moment", retriable=True)
        connection = await self._kept.to(target)
        return await connection.request(message, timeout_ms=timeout_ms, versions=versions)

    def follow(self, controller_id: int, epoch: int | None) -> None:
        """Hear which broker is the controller (-1: none), and its broker epoch; requests in flight to another fail.

        A former one, or an earlier session of the same, may never answer them: a controller of Apache Kafka 3.9
        drops the AlterPartition requests that it has queued when its session ends (`AlterPartitionReceived.preempt`).
        """
        if (controller_id, epoch) == self._followed:
            return
        self._followed = controller_id, epoch
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None
        self.close()

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._kept.close()
