"""A run of a profile: a topic is made, produced to by several processes, read back and checked, and deleted."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Final, Protocol

from ottla.client.admin import Admin
from ottla.client.configs.admin import parse_admin_config
from ottla.client.errors import ClientError
from ottla.client.model import LATEST, TopicPartition
from ottla.client.sync import Client
from ottla.profiles.checker import Checked, Checker, Sent
from ottla.profiles.producer_processes import ProducerProcesses
from ottla.profiles.producing import ProducerResult, ProducerTask
from ottla.profiles.result import ProfileResult, result_of
from ottla.profiles.workload import MOST_RECORDS, ProfileError, ProfileLoad
from ottla.records.extras import require_extra

CHECKED_ROWS: Final = 65_536
#: The longest wait until a new topic is led everywhere, or partitions cease to grow.
SETTLE_TIMEOUT_S: Final = 120.0
SETTLED_S: Final = 0.5
#: Where fewer records are there than were acknowledged, more may come for this time.
MISSING_S: Final = 5.0
POLL_S: Final = 0.1


class DisturbedCluster(Protocol):
    """A cluster whose processes the caller can reach."""

    async def kill_and_restart(self) -> None:
        """Kill a broker, and start it again; returns when it is ready."""

    def cpu_seconds(self) -> float | None:
        """Processor time of its processes so far; None where the system does not say."""


Say = Callable[[str], None]


async def run_profile(
    load: ProfileLoad,
    servers: str,
    say: Say,
    cluster: DisturbedCluster | None = None,
    *,
    client_settings: Mapping[str, str] = MappingProxyType({}),
) -> ProfileResult:
    """Produce, check, and return the figures; the topic is deleted unless the caller owns the cluster.

    `client_settings` are those of all clients of the run, by Kafka's names.
    Raises ProfileError, ClientError, MissingExtraError (numpy, pyarrow).
    """
    require_extra("a profile", "profiles", "numpy", "pyarrow")
    timeout_ms = round(load.timeout_s * 1000)
    settings = {"client.id": "ottla-profile", **client_settings, "bootstrap.servers": servers}
    timeouts = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    async with Admin(settings | timeouts) as admin:
        topic, replicas = await _make_topic(admin, load)
        load = replace(load, replication_factor=replicas)
        try:
            return await _measure(load, settings, topic, admin, say, cluster)
        finally:
            if cluster is None:
                with suppress(ClientError):
                    await admin.delete_topics([topic])


async def _make_topic(admin: Admin, load: ProfileLoad) -> tuple[str, int]:
    """Make the topic and wait until all replicas are in sync; returns its name, and how many replicas partitions have.

    Raises ProfileError for too few brokers.
    """
    replicas = load.replicas_on(len((await admin.describe_cluster()).nodes))
    topic = f"profile-{load.workload.name}-{secrets.token_hex(4)}"
    await admin.create_topic(topic, load.partitions, replicas, load.workload.topic_settings)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        (described,) = (await admin.describe_topics([topic])).values()
        if all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in described.partitions):
            return topic, replicas
        await asyncio.sleep(POLL_S)
    raise ProfileError(f"the replicas of topic {topic} are not in sync after {SETTLE_TIMEOUT_S:g} s")


def tasks_of(load: ProfileLoad, settings: Mapping[str, str], topic: str) -> list[ProducerTask]:
    """Make each producer's task; `settings` are those of its client."""
    per_s = None if load.per_s is None else load.per_s / load.producers
    return [
        ProducerTask(
            settings,
            topic,
            str(load.workload.name),
            number,
            load.partitions,
            load.record_bytes,
            load.share_of(number),
            load.seconds,
            per_s,
            MOST_RECORDS // load.producers,
        )
        for number in range(load.producers)
    ]


async def _measure(
    load: ProfileLoad,
    settings: Mapping[str, str],
    topic: str,
    admin: Admin,
    say: Say,
    cluster: DisturbedCluster | None,
) -> ProfileResult:
    processes = ProducerProcesses()
    disturbing: list[asyncio.Task[None]] = []
    try:
        await processes.start(tasks_of(load, settings, topic))
        say(f"producing to {topic}")
        cpu_s = None if cluster is None else cluster.cpu_seconds()
        began_s = time.monotonic()

        def halfway() -> None:
            if load.is_disturbed and cluster is not None:
                disturbing.append(asyncio.create_task(cluster.kill_and_restart()))

        def is_half(acknowledged: int) -> bool:
            if load.records is not None:
                return acknowledged >= load.records / 2
            return load.seconds is not None and time.monotonic() - began_s >= load.seconds / 2

        results = await processes.produce(halfway, is_half)
        await asyncio.gather(*disturbing)
        if load.is_disturbed and not disturbing:
            raise ProfileError("all was produced before a broker could be killed; give more --records or --seconds")
        spent_s = None if cluster is None or cpu_s is None else _difference(cluster.cpu_seconds(), cpu_s)
    finally:
        for each in disturbing:
            each.cancel()
        await processes.stop()
    ends = await _settled_ends(admin, load, topic, sum(each.acknowledged for each in results))
    say(f"reading {sum(ends.values()):,} records back")
    began_s = time.monotonic()
    checked = await _check(load, settings, results, ends)
    return result_of(load, results, checked, check_s=time.monotonic() - began_s, brokers_cpu_s=spent_s)


def _difference(after: float | None, before: float) -> float | None:
    return None if after is None else after - before


async def _settled_ends(admin: Admin, load: ProfileLoad, topic: str, acknowledged: int) -> Mapping[TopicPartition, int]:
    """Return the partitions' ends, once they no longer grow: with acks=1 records become visible after their answers."""
    wanted = {TopicPartition(topic, number): LATEST for number in range(load.partitions)}
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    total, since_s = -1, 0.0
    while True:
        ends = {partition: found.offset for partition, found in (await admin.list_offsets(wanted)).items()}
        now_s = time.monotonic()
        if sum(ends.values()) != total:
            total, since_s = sum(ends.values()), now_s
        if now_s - since_s >= (SETTLED_S if total >= acknowledged else MISSING_S) or now_s > deadline:
            return ends
        await asyncio.sleep(POLL_S)


async def _check(
    load: ProfileLoad,
    settings: Mapping[str, str],
    results: Sequence[ProducerResult],
    ends: Mapping[TopicPartition, int],
) -> Checked:
    """Read all of it back, in a thread that ends soon where this is cancelled."""
    connections = parse_admin_config(settings, {}).client_settings
    sent = [Sent(each.number, each.handed_over, each.uncertain) for each in results]
    is_over = threading.Event()

    def read() -> Checked:
        checker = Checker(sent, load.partitions, load.record_bytes)
        with Client(**{each.name: getattr(connections, each.name) for each in fields(connections)}) as client:
            for partition, end in ends.items():
                for batch in client.read_range_arrow(partition, 0, end, CHECKED_ROWS, timestamp_unit=None):
                    if is_over.is_set():
                        return checker.result()
                    checker.add(partition.partition, batch.column("value"))
        return checker.result()

    try:
        return await asyncio.to_thread(read)
    finally:
        is_over.set()
