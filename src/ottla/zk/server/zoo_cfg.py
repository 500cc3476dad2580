"""Settings of a server by ZooKeeper's names, as its `zoo.cfg` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.security.jaas import JaasError

if TYPE_CHECKING:
    from ssl import SSLContext

JAAS = "ottla.zookeeper.server.jaas.config"
HIGHEST_PORT = 65_535
_TLS = {
    "ssl.keyStore.location": "ssl.keystore.location",
    "ssl.keyStore.password": "ssl.keystore.password",
    "ssl.keyStore.type": "ssl.keystore.type",
    "ssl.trustStore.location": "ssl.truststore.location",
    "ssl.trustStore.password": "ssl.truststore.password",
    "ssl.trustStore.type": "ssl.truststore.type",
    "ssl.protocol": "ssl.protocol",
    "ssl.enabledProtocols": "ssl.enabled.protocols",
    "ssl.ciphersuites": "ssl.cipher.suites",
}
_CLIENT_AUTH = {"none": "none", "want": "requested", "need": "required"}
_PLAIN = ("clientPort", "clientPortAddress", "dataDir", "tickTime", "maxClientCnxns")
#: They hold for what the server does anyway.
_ACCEPTED = ("serverCnxnFactory", "authProvider.", "ssl.hostnameVerification", "4lw.commands.whitelist")
#: Leaving them out would leave the server more open than the file says, or another server.
_REFUSED = (
    "server.", "sessionRequireClientSASLAuth", "enforce.auth.", "client.portUnification", "ssl.crl", "ssl.ocsp",
    "ssl.context.supplier.class", "quorum.auth.", "sslQuorum", "digest.enabled",
)  # fmt: skip


class ZooConfigError(ValueError):
    """A setting cannot be honoured; the message names it, the cause and the cure."""


class SecureListener(NamedTuple):
    """The address for TLS, and the context for new connections."""

    host: str
    port: int
    context: Callable[[], SSLContext]


class ZooConfig(NamedTuple):
    """The settings of a file; None for those that it does not have."""

    host: str | None
    port: int | None
    data: str | None
    tick_time_ms: int | None
    max_client_connections: int | None
    users: dict[str, str]
    secure: SecureListener | None
    #: Names that have no effect here.
    ignored: list[str]

    def __repr__(self) -> str:
        return f"ZooConfig(users={list(self.users)})"


def zoo_config(texts: Mapping[str, str]) -> ZooConfig:
    """The settings of a file's values. Raises ZooConfigError."""
    refused = [name for name, text in texts.items() if name.startswith(_REFUSED) and text.lower() != "false"]
    if refused:
        raise ZooConfigError(f"{refused[0]} cannot be honoured here; remove it")
    known = (*_PLAIN, *_TLS, "ssl.clientAuth", "secureClientPort", "secureClientPortAddress", JAAS)
    ignored = [name for name in texts if name not in known and not name.startswith((*_ACCEPTED, *_REFUSED))]
    return ZooConfig(
        texts.get("clientPortAddress"),
        _number(texts, "clientPort", HIGHEST_PORT),
        texts.get("dataDir"),
        _number(texts, "tickTime"),
        _number(texts, "maxClientCnxns"),
        _users(texts),
        _secure(texts),
        ignored,
    )


def _number(texts: Mapping[str, str], name: str, most: int = 2**31 - 1) -> int | None:
    text = texts.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ZooConfigError(f"{name}={text} is not a number from 0 to {most}")
    return int(text)


def _users(texts: Mapping[str, str]) -> dict[str, str]:
    from ottla.security.zookeeper_logins import users_of_zookeeper

    try:
        return users_of_zookeeper(texts[JAAS]) if texts.get(JAAS) else {}
    except JaasError as error:
        raise ZooConfigError(f"{JAAS} cannot be read: {error}") from None


def _secure(texts: Mapping[str, str]) -> SecureListener | None:
    port = _number(texts, "secureClientPort", HIGHEST_PORT)
    if port is None:
        return None
    from ottla.security.contexts import server_context
    from ottla.security.errors import SecurityError

    settings = {ours: texts[name] for name, ours in _TLS.items() if name in texts}
    settings.setdefault("ssl.protocol", "TLSv1.2")
    auth = texts.get("ssl.clientAuth", "need").lower()
    if auth not in _CLIENT_AUTH:
        raise ZooConfigError(f"ssl.clientAuth={auth} is not known; use {', '.join(_CLIENT_AUTH)}")
    settings["ssl.client.auth"] = _CLIENT_AUTH[auth]
    try:
        context = server_context(settings)
    except SecurityError as error:
        text = str(error)
        for name, ours in _TLS.items():
            text = text.replace(ours, name)
        raise ZooConfigError(text) from None
    host = texts.get("secureClientPortAddress", texts.get("clientPortAddress", ""))
    return SecureListener(host, port, lambda: context)
