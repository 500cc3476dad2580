"""Listeners: parsing of `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

The checks and their words are Apache Kafka's (KafkaConfig, SocketServerConfigs).
"""

from __future__ import annotations

import re
from typing import NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(r"([^:/]*)://(\[[0-9a-zA-Z:%._-]*\]|[^\[\]:/]*):(-?[0-9]{1,10})\Z")
_IPV4 = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}\Z")
_HIGHEST_PORT = 65535


class Endpoint(NamedTuple):
    """One address of one listener. An empty host means every interface (or, where it is advertised, this machine)."""

    listener_name: str
    security_protocol: str
    host: str
    port: int

    def with_port(self, port: int) -> Endpoint:
        """The same endpoint with the port that the system chose for port 0."""
        return self._replace(port=port)

    def with_host(self, host: str) -> Endpoint:
        """The same endpoint at another host."""
        return self._replace(host=host)

    @property
    def connection_string(self) -> str:
        """`NAME://host:port`, an IPv6 address in brackets, as it stands in ZooKeeper."""
        return f"{self.listener_name}://{self.address}"

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 address in brackets, as clients are given it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def uses_tls(self) -> bool:
        """Whether clients have to speak TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients have to authenticate by SASL."""
        return self.security_protocol.startswith("SASL_")

    @property
    def is_any_address(self) -> bool:
        """Whether the host stands for every interface of this machine."""
        return self.host in ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class ListenerError(ValueError):
    """Invalid listeners; the message says why, in Kafka's words."""


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` as a mapping from listener name to security protocol. Raises `ListenerError`."""
    protocols: dict[str, str] = {}
    for entry in _comma_separated(text):
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ListenerError(
                f"Error parsing configuration property 'listener.security.protocol.map': '{entry}' is not of the form "
                "LISTENER_NAME:SECURITY_PROTOCOL"
            )
        if protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ListenerError(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_endpoints(text: str, protocols: dict[str, str], *, require_distinct_ports: bool) -> list[Endpoint]:
    """The endpoints of a `listeners` or `advertised.listeners` value, checked. Raises `ListenerError`."""
    endpoints = [_parse_endpoint(entry, text, protocols) for entry in _comma_separated(text)]
    names = [endpoint.listener_name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ListenerError(f"Each listener must have a different name, listeners: {text}")
    if require_distinct_ports:
        _check_ports(endpoints, text)
    return endpoints


def _comma_separated(text: str) -> list[str]:
    return [entry for entry in (part.strip() for part in text.split(",")) if entry]


def _parse_endpoint(entry: str, whole: str, protocols: dict[str, str]) -> Endpoint:
    match = _ENDPOINT.match(entry)
    if match is None:
        raise ListenerError(
            f"Error creating broker listeners from '{whole}': Unable to parse {entry} to a broker endpoint"
        )
    name = match.group(1).upper()
    if name not in protocols:
        raise ListenerError(
            f"Error creating broker listeners from '{whole}': No security protocol defined for listener {name}"
        )
    port = int(match.group(3))
    if not 0 <= port <= _HIGHEST_PORT:
        raise ListenerError(
            f"Error creating broker listeners from '{whole}': the port of {entry} must be between 0 and {_HIGHEST_PORT}"
        )
    return Endpoint(name, protocols[name], match.group(2).strip("[]"), port)


def _check_ports(endpoints: list[Endpoint], text: str) -> None:
    """No two listeners on one port, but for one IPv4 and one IPv6 address (KIP-797)."""
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for same in by_port.values():
        if len(same) == 1:
            continue
        versions = sorted(_ip_version(endpoint.host) for endpoint in same)
        if 0 in versions:
            raise ListenerError(f"Each listener must have a different port, listeners: {text}")
        if versions != [4, 6]:
            raise ListenerError(
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {text}, port: {same[0].port}"
            )


def _ip_version(host: str) -> int:
    if ":" in host:
        return 6
    return 4 if _IPV4.match(host) else 0


def check_advertised(listeners: list[Endpoint], advertised: list[Endpoint], inter_broker_listener_name: str) -> None:
    """Check the listeners against those that are advertised. Raises `ListenerError`."""
    names = [endpoint.listener_name for endpoint in listeners]
    advertised_names = [endpoint.listener_name for endpoint in advertised]
    if not advertised:
        raise ListenerError("There must be at least one broker advertised listener.")
    if inter_broker_listener_name not in advertised_names:
        raise ListenerError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(advertised_names)}"
        )
    if any(name not in names for name in advertised_names):
        raise ListenerError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {','.join(advertised_names)}. "
            f"The valid options based on the current configuration are {','.join(names)}"
        )
    if any(endpoint.host == "0.0.0.0" for endpoint in advertised):
        raise ListenerError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )


def connections_of_hosts(text: str) -> dict[str, int]:
    """Most connections by address, of `address:count,...`. Raises ValueError for anything else."""
    entries = [entry for entry in text.split(",") if entry.strip()]
    if not entries:
        return {}
    from ipaddress import ip_address  # not at the start of every broker: it takes a millisecond

    limits = {}
    for entry in entries:
        address, _, number = entry.strip().rpartition(":")
        limits[str(ip_address(address.strip("[]")))] = int(number)
    return limits
