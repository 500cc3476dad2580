"""The exchanges on a new connection before the first request: TLS, the versions of APIs, then the login (SASL)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import ottla
from ottla.peer.errors import (
    BrokerError,
    BrokerHangsError,
    BrokerTooOldError,
    ClientTimeoutError,
    ConnectionLostError,
    NotKafkaError,
    ProtocolError,
)
from ottla.peer.tls import shake_hands
from ottla.peer.versions import USED, choose_version
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from ottla.peer.connection import PeerConnection

Handshake = Callable[["PeerConnection", int], Awaitable[None]]
"""One exchange on a connection; each answer has a time limit in milliseconds. Raises subclasses of ConnectError."""

CHECK_PORT: Final = "check the port: brokers listen on 9092 by default"


async def secure(connection: PeerConnection, timeout_ms: int) -> None:
    """Finish the handshake of TLS where the connection has it."""
    if connection.tls is not None:
        await shake_hands(connection.tls, connection.address, timeout_ms)


async def agree_on_versions(connection: PeerConnection, timeout_ms: int) -> None:
    """Negotiate API versions (KIP-35, KIP-511)."""
    address = connection.address
    version = USED[ApiKey.API_VERSIONS][1]
    question = ApiVersionsRequest(client_software_name="ottla", client_software_version=ottla.__version__)
    try:
        answer: ApiVersionsResponse = await connection.exchange(question, timeout_ms, version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            version = choose_version(ApiKey.API_VERSIONS, served) if served else 0
            answer = await connection.exchange(question, timeout_ms, version)
    except ClientTimeoutError as error:
        raise BrokerHangsError(
            f"{address} accepts connections but does not answer within {timeout_ms} ms; check the port, and "
            "whether the broker is overloaded or stopped",
            retriable=True,
        ) from error
    except ConnectionLostError as error:
        spoken, may = "plain text", "may be stopping"
        if connection.tls is not None:
            spoken, may = "TLS", "may want a certificate of this client (ssl.keystore.location), be stopping"
        raise NotKafkaError(
            f"{address} closed the connection before it answered; check that the port is a listener of a "
            f"broker for {spoken}, and see its log: it {may}, or have reached max.connections.per.ip",
            retriable=True,
        ) from error
    except ProtocolError as error:
        raise NotKafkaError(f"{error}; {CHECK_PORT}") from error
    if answer.error_code != ErrorCode.NONE:
        raise BrokerError(answer.error_code, f"{address} refuses the ApiVersions request")
    connection.agree(answer)
    newest_metadata = connection.offered.get(ApiKey.METADATA, (0, 0))[1]
    if newest_metadata < USED[ApiKey.METADATA][0]:
        raise too_old(address, f"it serves Metadata up to version {newest_metadata}")


async def log_in(connection: PeerConnection, timeout_ms: int) -> None:
    """Log in where the settings say so."""
    if connection.sasl is not None:
        from ottla.peer.authentication import authenticate  # most clients need no login

        await authenticate(connection, connection.sasl, timeout_ms)


def too_old(address: str, why: str) -> BrokerTooOldError:
    """The error of a broker that this client cannot speak with."""
    return BrokerTooOldError(
        f"{address} is a broker older than Apache Kafka 0.11 ({why}), the oldest that this client speaks with; "
        "upgrade the broker"
    )


HANDSHAKES: tuple[Handshake, ...] = (secure, agree_on_versions, log_in)
"""In the order of a new connection."""
