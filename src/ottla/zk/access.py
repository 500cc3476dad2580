"""Access to a ZooKeeper: the client's login and TLS, and the access lists of nodes that it creates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config.properties import PropertiesError, parse_properties
from ottla.config.settings import broker_setting
from ottla.config.values import ConfigError, parse_value
from ottla.env.outgoing import reason_of
from ottla.env.secret_files import read_whole
from ottla.zk.layout.access import AclOfPath, secure_acl

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.security.jaas import Login

MAX_FILE_BYTES = 1024 * 1024
PREFIX = "zookeeper."
ACCESS_SETTINGS = (
    "ottla.zookeeper.jaas.config",
    "zookeeper.set.acl",
    "zookeeper.clientCnxnSocket",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.endpoint.identification.algorithm",
)
"""The settings of the access, by Kafka's names."""
TLS_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"


class AccessError(ValueError):
    """Settings of the access to ZooKeeper that cannot be used; the message names them."""


class ZkAccess(NamedTuple):
    """The login, the context of TLS, and the access lists of new nodes, each where there is one."""

    login: Login | None = None
    tls: SSLContext | None = None
    acl_of: AclOfPath | None = None


def zookeeper_access(settings: Mapping[str, Any]) -> ZkAccess:
    """The access by `zookeeper.ssl.…`, `zookeeper.set.acl` and `ottla.zookeeper.jaas.config`. Raises AccessError."""
    login, tls = _login(settings), _tls(settings)
    if not settings.get("zookeeper.set.acl"):
        return ZkAccess(login, tls)
    if login is None and not (tls and settings.get("zookeeper.ssl.keystore.location")):
        raise AccessError(
            "zookeeper.set.acl is true, but the login to ZooKeeper is missing. Set ottla.zookeeper.jaas.config, or "
            "zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
        )
    return ZkAccess(login, tls, secure_acl)


def _login(settings: Mapping[str, Any]) -> Login | None:
    value = settings.get("ottla.zookeeper.jaas.config")
    if not value:
        return None
    from ottla.security.jaas import JaasError
    from ottla.security.zookeeper_logins import login_to_zookeeper

    try:
        return login_to_zookeeper(value)
    except JaasError as error:
        raise AccessError(f"ottla.zookeeper.jaas.config cannot be read: {error}") from None


def _tls(settings: Mapping[str, Any]) -> SSLContext | None:
    if not settings.get("zookeeper.ssl.client.enable"):
        return None
    from ottla.security.contexts import client_context
    from ottla.security.errors import SecurityError

    socket = settings.get("zookeeper.clientCnxnSocket")
    if socket not in (None, "", TLS_SOCKET):
        raise AccessError(f"zookeeper.clientCnxnSocket={socket} has no TLS; set it to {TLS_SOCKET}, or remove it")
    own = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(f"{PREFIX}ssl.")}
    try:
        return client_context(own)
    except SecurityError as error:
        raise AccessError(re.sub(r"(?<![\w./-])ssl\.", f"{PREFIX}ssl.", str(error))) from None


def access_of_file(path: str) -> ZkAccess:
    """The same of a properties file, whose other settings are ignored. Raises AccessError."""
    values: dict[str, Any] = {}
    try:
        texts = parse_properties(read_whole(path, MAX_FILE_BYTES).decode())
        for name in ACCESS_SETTINGS:
            setting = broker_setting(name)
            assert setting is not None
            values[name] = parse_value(setting, texts.get(name, setting.default))
    except OSError as error:
        raise AccessError(f"{path} cannot be read ({reason_of(error)}); check the path and its mode") from None
    except (UnicodeDecodeError, PropertiesError, ConfigError) as error:
        raise AccessError(f"{path} cannot be read: {error}") from None
    return zookeeper_access(values)
