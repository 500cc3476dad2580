"""Faults on the way to a cluster: its bootstrap servers, and the addresses that its brokers advertise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address

from ottla.client.errors import ClientError
from ottla.client.model import Node
from ottla.env.environment import Environment
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.peer.connection import open_connection
from ottla.peer.diagnosis import Found, diagnose
from ottla.peer.errors import (
    AuthenticationError,
    BrokerHangsError,
    BrokerTooOldError,
    ConnectError,
    ConnectTimeoutError,
    HandshakeFault,
    NotKafkaError,
    SecurityMismatchError,
    UnresolvableHostError,
)
from ottla.peer.settings import ConnectionSettings, format_servers, parse_bootstrap_servers
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

Address = tuple[str, int]
ADDRESSES_AT_A_TIME = 16
"""Brokers that are connected to at the same time."""
_NAMES = "Check the spelling, and that DNS or /etc/hosts of this machine knows the name."
_BROKERS = "Give the address of a broker's listener, 9092 by default."
#: Of TLS and logins; the errors name their cures.
OF_HANDSHAKES: Mapping[HandshakeFault | None, FaultKind] = {
    None: FaultKind.TLS_OR_LOGIN,
    **{each: FaultKind[each.name] for each in HandshakeFault},
}
CURES: Mapping[FaultKind, str] = {
    FaultKind.CONNECTION_REFUSED: "Start the broker, or give the host and port of its `listeners`.",
    FaultKind.UNKNOWN_HOST: _NAMES,
    FaultKind.NO_ANSWER: "Check address, network and firewall; if the process is there and hangs, restart it.",
    **dict.fromkeys(
        OF_HANDSHAKES.values(),
        "Give the address of a listener that fits security.protocol, ssl.*, sasl.* of --cluster.",
    ),
    FaultKind.WEB_SERVER: _BROKERS,
    FaultKind.ZOOKEEPER: f"{_BROKERS} Clients have not needed ZooKeeper's address since Apache Kafka 0.9.",
    FaultKind.OLD_BROKER: "Upgrade the broker to Apache Kafka 0.11 or newer.",
    FaultKind.NOT_KAFKA: f"{_BROKERS} If it is one, its log says why it hangs up.",
}
_ADVERTISED = "Set advertised.listeners of broker {broker} to an address that clients reach, and restart it."


@dataclass(slots=True)
class SeenServer:
    """The answer of an address: the cluster's id and brokers, or the fault; and whether it is this machine's own."""

    address: Address
    cluster_id: str | None = None
    is_loopback: bool = False
    nodes: Sequence[Node] = ()
    fault: DoctorFault | None = None


@dataclass(slots=True)
class SeenAddresses:
    """The faults of addresses; `reached` are the brokers that answered at the address that they advertise."""

    faults: list[DoctorFault] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)
    advertised: set[int] = field(default_factory=set)


async def look_at_addresses(settings: ConnectionSettings, environment: Environment) -> SeenAddresses:
    """Connect to each bootstrap server, then to each broker that they name. Raises InvalidArgumentError."""
    turns = asyncio.Semaphore(ADDRESSES_AT_A_TIME)

    async def look(address: Address) -> SeenServer:
        async with turns:
            return await _look(address, settings, environment)

    seen = SeenAddresses()
    servers = await asyncio.gather(*map(look, parse_bootstrap_servers(settings.bootstrap_servers)))
    seen.faults += [each.fault for each in servers if each.fault is not None]
    first = next((each for each in servers if each.fault is None), None)
    if first is None:
        return seen
    seen.faults += different_clusters(servers)
    wrong = {node.node_id: each for node, each in senseless_addresses(first.nodes)}
    seen.faults += wrong.values()
    nodes = [node for node in first.nodes if node.node_id not in wrong]
    seen.advertised = {node.node_id for node in first.nodes}
    for node, found in zip(nodes, await asyncio.gather(*(look((each.host, each.port)) for each in nodes)), strict=True):
        if problem := advertised_fault(node, found, first):
            seen.faults.append(problem)
        else:
            seen.reached.add(node.node_id)
    return seen


def different_clusters(servers: Sequence[SeenServer]) -> Iterator[DoctorFault]:
    """Bootstrap servers of different clusters."""
    by_cluster: dict[str, list[Address]] = {}
    for each in servers:
        if each.cluster_id is not None:
            by_cluster.setdefault(each.cluster_id, []).append(each.address)
    if len(by_cluster) > 1:
        shown = "; ".join(f"{format_servers(several)} of {name}" for name, several in by_cluster.items())
        yield fault(
            FaultKind.TWO_CLUSTERS,
            "bootstrap servers",
            f"they belong to different clusters: {shown}",
            "Name brokers of one cluster only: clients take any of them.",
        )


def senseless_addresses(nodes: Sequence[Node]) -> Iterator[tuple[Node, DoctorFault]]:
    """Brokers that advertise no address."""
    for node in nodes:
        if _is(node.host, "is_unspecified"):
            what = f"it advertises {node.host}:{node.port}"
            yield (
                node,
                fault(
                    FaultKind.ADVERTISED_ANY, f"broker {node.node_id}", what, _ADVERTISED.format(broker=node.node_id)
                ),
            )


def advertised_fault(node: Node, found: SeenServer, first: SeenServer) -> DoctorFault | None:
    """The fault of the address that a broker advertises, None where the cluster of the `first` server is there."""
    where, address = f"broker {node.node_id}", format_servers([(node.host, node.port)])
    cure = _ADVERTISED.format(broker=node.node_id)
    is_elsewhere = None not in (first.cluster_id, found.cluster_id) and found.cluster_id != first.cluster_id
    if found.is_loopback and not first.is_loopback and (found.fault or is_elsewhere):
        what = f"it advertises {address}, which is this machine, and answered at {first.address[0]}"
        return fault(FaultKind.ADVERTISED_LOOPBACK, where, what, cure)
    if found.fault is not None:
        if found.fault.fault == FaultKind.UNKNOWN_HOST.slug:
            return fault(FaultKind.ADVERTISED_UNKNOWN_HOST, where, f"it advertises {address}: {found.fault.what}", cure)
        what = f"it advertises {address}, which cannot be reached from here: {found.fault.what}"
        return fault(FaultKind.ADVERTISED_UNREACHABLE, where, what, f"{cure} If it is down, start it.")
    if is_elsewhere:
        what = f"it advertises {address}, where cluster {found.cluster_id} is, and not {first.cluster_id}"
        return fault(FaultKind.ADVERTISED_ELSEWHERE, where, what, cure)
    return None


def _is(address: str, what: str) -> bool:
    """Whether an address is one of `is_loopback` or `is_unspecified`; names are neither."""
    try:
        return bool(getattr(ip_address(address), what))
    except ValueError:
        return False


async def _is_loopback(address: Address, environment: Environment) -> bool:
    """Whether all addresses of a host are of the loopback interface."""
    try:
        found = await environment.network.addresses(*address)
    except OSError:
        return False
    return bool(found) and all(_is(each, "is_loopback") for each in found)


async def _look(address: Address, settings: ConnectionSettings, environment: Environment) -> SeenServer:
    seen = SeenServer(address, is_loopback=await _is_loopback(address, environment))
    try:
        connection = await open_connection(*address, settings, environment)
        try:
            answer: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
        finally:
            connection.close()
    except ClientError as error:
        kind = await _kind(address, error, environment)
        what, _, cure = str(error).partition("; ")
        if not cure or kind not in OF_HANDSHAKES.values():
            cure = CURES[kind]
        seen.fault = fault(kind, format_servers([address]), what, f"{cure[0].upper()}{cure[1:].rstrip('.')}.")
        return seen
    seen.cluster_id = answer.cluster_id
    seen.nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
    return seen


async def _kind(address: Address, error: ClientError, environment: Environment) -> FaultKind:
    """The fault that is behind an error of a first contact."""
    if isinstance(error, UnresolvableHostError):
        return FaultKind.UNKNOWN_HOST
    if isinstance(error, BrokerTooOldError):
        return FaultKind.OLD_BROKER
    if isinstance(error, ConnectError) and (
        error.why is not None or isinstance(error, SecurityMismatchError | AuthenticationError)
    ):
        return OF_HANDSHAKES[error.why]
    if isinstance(error, NotKafkaError):
        found = error.found or await diagnose(environment.network, *address)
        by_found: Mapping[Enum, FaultKind] = {
            Found.WEB_SERVER: FaultKind.WEB_SERVER,
            Found.ZOOKEEPER: FaultKind.ZOOKEEPER,
        }
        return by_found.get(found, FaultKind.NOT_KAFKA)
    if isinstance(error, ConnectTimeoutError | BrokerHangsError) or not isinstance(error, ConnectError):
        return FaultKind.NO_ANSWER
    return FaultKind.CONNECTION_REFUSED
