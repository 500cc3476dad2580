"""The answers of brokers about the health of their cluster. One that does not answer costs its own part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import ConfigEntry, ConfigResource
from ottla.client.errors import ClientError
from ottla.client.model import Node, TopicPartition
from ottla.ops.cluster_status import MIN_ISR, ClusterStatus, PartitionStatus, read_cluster_status
from ottla.ops.record_times import timestamps_at
from ottla.peer.cluster import Cluster
from ottla.peer.versions import Offered
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

MOST_DATED = 200
"""Partitions with lagging replicas that are asked for the time of the first record that is lacked."""
METRICS_PORT, METRICS_HOST = "ottla.metrics.port", "ottla.metrics.host"
ANY_ADDRESS = frozenset(("", "0.0.0.0", "::"))

T = TypeVar("T")
Metrics = Mapping[str, float]
"""Metrics of a broker without labels, by name."""
Scrape = Callable[[str, int], Awaitable[Metrics]]
"""Asks host and port for metrics; nothing where it does not answer."""


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The controller that a broker knows (-1: none), and the brokers that it knows."""

    controller: int
    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """A cluster at one moment, `at_ms` on the monotonic clock. Mappings are by broker, silent ones left out.

    `ages_ms` says how old the first record is that a replica of a partition lacks. `metrics` are there of brokers of
    ottla that serve them where this program can ask for them.
    """

    status: ClusterStatus
    at_ms: float = 0.0
    settings: Mapping[int, Mapping[str, ConfigEntry]] = field(default_factory=dict)
    versions: Mapping[int, Offered] = field(default_factory=dict)
    views: Mapping[int, BrokerView] = field(default_factory=dict)
    metrics: Mapping[int, Metrics] = field(default_factory=dict)
    ages_ms: Mapping[TopicPartition, float] = field(default_factory=dict)


def lagging(each: PartitionStatus) -> list[int]:
    """Brokers whose replica of the partition is alive, not in sync, and not just being added; none without a leader."""
    if each.is_offline:
        return []
    return [
        replica.broker
        for replica in each.replicas
        if not replica.is_in_sync and not replica.is_offline and replica.broker not in each.adding
    ]


async def read_health_facts(
    cluster: Cluster, scrape: Scrape | None = None, configs: Sequence[str] = (MIN_ISR,)
) -> HealthFacts:
    """Ask all brokers; `configs` are the settings of topics. Raises ClientError where none of them answers."""
    status = await read_cluster_status(cluster, configs=configs)
    nodes = [each.node for each in status.brokers if each.problem is None]
    settings, views = await asyncio.gather(
        _of_each(nodes, lambda node: _settings(cluster, node.node_id)),
        _of_each(nodes, lambda node: _view(cluster, node.node_id)),
    )
    versions = await _of_each(nodes, lambda node: _versions(cluster, node.node_id))
    metrics = {} if scrape is None else await _metrics(nodes, settings, scrape)
    return HealthFacts(
        status=status,
        at_ms=cluster.clock.monotonic_ms(),
        settings=settings,
        versions=versions,
        views=views,
        metrics=metrics,
        ages_ms=await _ages(cluster, status),
    )


async def _of_each(nodes: list[Node], ask: Callable[[Node], Awaitable[T]]) -> dict[int, T]:
    async def reply(node: Node) -> T | None:
        try:
            return await ask(node)
        except ClientError:
            return None

    answers = await asyncio.gather(*map(reply, nodes))
    return {node.node_id: each for node, each in zip(nodes, answers, strict=True) if each is not None}


async def _settings(cluster: Cluster, broker: int) -> dict[str, ConfigEntry]:
    resource = ConfigResource.broker(broker)
    return (await ConfigAdmin(cluster).describe_configs([resource]))[resource]


async def _view(cluster: Cluster, broker: int) -> BrokerView:
    answer: MetadataResponse = await cluster.request(broker, MetadataRequest(topics=[]))
    return BrokerView(answer.controller_id, frozenset(each.node_id for each in answer.brokers))


async def _versions(cluster: Cluster, broker: int) -> Offered:
    return (await cluster.connection(broker)).offered


async def _metrics(
    nodes: list[Node], settings: Mapping[int, Mapping[str, ConfigEntry]], scrape: Scrape
) -> dict[int, Metrics]:
    scrapes: dict[int, Awaitable[Metrics]] = {}
    for node in nodes:
        known = settings.get(node.node_id, {})
        port, host = (known[name].value if name in known else None for name in (METRICS_PORT, METRICS_HOST))
        if port is not None and port.isdecimal() and int(port):
            scrapes[node.node_id] = scrape(node.host if host is None or host in ANY_ADDRESS else host, int(port))
    answers = await asyncio.gather(*scrapes.values())
    return {broker: each for broker, each in zip(scrapes, answers, strict=True) if each}


async def _ages(cluster: Cluster, status: ClusterStatus) -> dict[TopicPartition, float]:
    """By partition, how old the first record is that its slowest live replica lacks."""
    positions: dict[TopicPartition, int] = {}
    for each in status.partitions:
        behind = frozenset(lagging(each))
        ends = [replica.log_end_offset for replica in each.replicas if replica.broker in behind and replica.lag]
        known = [end for end in ends if end is not None]
        if known and len(positions) < MOST_DATED:
            positions[each.partition] = min(known)
    if not positions:
        return {}
    found = await timestamps_at(cluster, positions)
    now_ms = cluster.clock.now_ms()
    return {partition: max(0.0, now_ms - at_ms) for partition, at_ms in found.items()}
