"""Settings of connections to a cluster, by Kafka's names with underscores; times in milliseconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.peer.errors import InvalidArgumentError
from ottla.peer.tls import TlsSettings

if TYPE_CHECKING:
    from ottla.peer.tokens import TokenSource
    from ottla.security.jaas import Login
    from ottla.security.kerberos import KerberosLogin

MAX_PORT = 65535
MAX_INT = 2**31 - 1
CANONICAL = "resolve_canonical_bootstrap_servers_only"
"""A value of `client_dns_lookup`."""
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(slots=True, frozen=True)
class SaslSettings:
    """How to log in: `mechanism` is one of `ottla.security.sasl.MECHANISMS`."""

    mechanism: str
    login: Login | TokenSource | KerberosLogin

    @property
    def shown(self) -> str:
        """The user, or the origin of tokens, for messages."""
        return f"user {self.login.user!r}" if isinstance(self.login, tuple) else f"a token of {self.login.shown}"


@dataclass(slots=True, frozen=True)
class ConnectionSettings:
    """Connections to a cluster: `default_api_timeout_ms` and `retries` bound an operation with all its attempts."""

    bootstrap_servers: str = ""
    """A single connection (`open_connection`) needs none."""
    client_id: str = "ottla"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retries: int = MAX_INT
    socket_connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    unknown_topic_timeout_ms: int = 2_000
    """How long a topic that is not there is looked for: brokers learn of a new one a little after its creation."""
    socket_connection_setup_timeout_max_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    """Sizes of the sockets' buffers; -1 leaves them to the operating system, which adapts them."""
    client_dns_lookup: str = "use_all_dns_ips"
    """Or `CANONICAL`."""
    tls: TlsSettings | None = None
    """TLS of every connection; None without."""
    sasl: SaslSettings | None = None
    """The login of every connection; None where listeners want none."""


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of `host:port,host:port`; `[::1]:9092` for IPv6 addresses. A leading `SSL://` has no meaning.

    Raises InvalidArgumentError that quotes the part which cannot be.
    """
    servers = [_parse_server(part.strip()) for part in text.split(",") if part.strip()]
    if not servers:
        raise InvalidArgumentError("bootstrap_servers is empty; give at least one host:port")
    return servers


def _parse_server(text: str) -> tuple[str, int]:
    protocol, separator, address = text.rpartition("://")
    if separator and protocol.upper() not in SECURITY_PROTOCOLS:
        known = ", ".join(SECURITY_PROTOCOLS)
        raise InvalidArgumentError(f"bootstrap server {text!r}: {protocol} is not known; write one of {known}")
    host, colon, port = address.rpartition(":")
    if "@" in address:
        shown = address.rpartition("@")[2]
        raise InvalidArgumentError(f"bootstrap server ...@{shown}: leave out the user or password before the @")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidArgumentError(f"bootstrap server {text!r}: write an IPv6 address as [address]:port")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise InvalidArgumentError(f"bootstrap server {text!r} is not of the form host:port")
    return host, int(port)


def format_servers(servers: Sequence[tuple[str, int]]) -> str:
    """The servers for a message."""
    return ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)
