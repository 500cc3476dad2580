"""The connector within its event loop: a high-level consumer, started and ended as a whole.

Source: Apache Kafka 0.8.2.2, `kafka.consumer.ZookeeperConsumerConnector`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple
from uuid import uuid4

from ottla.assign.threads import ConsumerThread
from ottla.client.errors import ClientError, IllegalStateError
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.env.clock import Clock, SystemClock
from ottla.env.network import host_name
from ottla.zk.client import ZkClient
from ottla.zk.layout import ConsumerRegistration, SubscriptionPattern
from ottla.zk.tree import ZkError
from ottla.zkconsumer.brokers import ZkBrokers
from ottla.zkconsumer.chunk_queue import ChunkQueue
from ottla.zkconsumer.commits import OffsetCommits
from ottla.zkconsumer.counters import RebalanceCounters
from ottla.zkconsumer.fetcher import FetcherSettings
from ottla.zkconsumer.fetcher_manager import FetcherManager
from ottla.zkconsumer.group_member import HighLevelMember
from ottla.zkconsumer.highlevel_config import HighLevelConsumerConfig
from ottla.zkconsumer.listener_thread import ListenerThread
from ottla.zkconsumer.offset_stores import DualOffsets, KafkaOffsets, OffsetStore, ZooKeeperOffsets
from ottla.zkconsumer.rebalancer import RebalanceSettings
from ottla.zkconsumer.registration import consumer_name

_log = logging.getLogger("ottla.zkconsumer")

TASKS_S = 0.3
"""How long `shutdown` waits for its tasks."""
LAST_COMMIT_S = 3.0
"""How long it waits for the last commit."""
LEAVE_S = 1.0
"""How long it waits for ZooKeeper, which is left in the background after that."""

OpenZk = Callable[[HighLevelConsumerConfig], Awaitable[ZkClient]]


class _Services(NamedTuple):
    """Connections and what works with them, made by `open`."""

    zk: ZkClient
    brokers: ZkBrokers
    manager: FetcherManager
    commits: OffsetCommits


class AsyncConnector:
    """Open it, start its streams once, shut it down."""

    def __init__(self, config: HighLevelConsumerConfig, open_zk: OpenZk, clock: Clock | None = None) -> None:
        self.counters = RebalanceCounters()
        self.config = config
        self._open_zk = open_zk
        self._clock = clock or SystemClock()
        self._opened: _Services | None = None
        self._member: HighLevelMember | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._queues: Collection[ChunkQueue] = ()
        self._listener: ListenerThread | None = None
        self._closed = False
        self.consumer = consumer_name(
            config.group_id, config.consumer_id, host_name(), self._clock.now_ms(), uuid4().hex[:8]
        )

    async def open(self) -> None:
        """Connect to ZooKeeper; brokers are connected to when they are needed."""
        config = self.config
        zk = await self._open_zk(config)
        brokers = ZkBrokers(zk, config.group_id, config.client_settings)
        settings = FetcherSettings(
            config.fetch_message_max_bytes, config.fetch_min_bytes, config.fetch_wait_max_ms, config.auto_offset_reset
        )
        manager = FetcherManager(brokers, settings, config.num_consumer_fetchers, config.refresh_leader_backoff_ms)
        commits = OffsetCommits(
            self._store(zk, brokers),
            config.offsets_commit_max_retries,
            config.offsets_channel_backoff_ms,
            asyncio.sleep,
        )
        self._opened = _Services(zk, brokers, manager, commits)

    @property
    def _services(self) -> _Services:
        if self._opened is None:
            raise IllegalStateError("the connector is not open")
        return self._opened

    def _store(self, zk: ZkClient, brokers: ZkBrokers) -> OffsetStore:
        config = self.config
        in_zookeeper = ZooKeeperOffsets(zk, config.group_id)
        if config.offsets_storage == "zookeeper":
            return in_zookeeper
        in_kafka = KafkaOffsets(brokers.group_offsets, config.offsets_channel_socket_timeout_ms)
        return DualOffsets(in_kafka, in_zookeeper) if config.dual_commit_enabled else in_kafka

    async def start(
        self,
        subscription: Mapping[str, int],
        pattern: SubscriptionPattern,
        queues: Collection[ChunkQueue],
        queue_of: Callable[[ConsumerThread, str], ChunkQueue],
        listener: ListenerThread | None,
    ) -> None:
        """Register, watch, commit from time to time; returns when the first rebalance has ended. Raises its error."""
        config, services = self.config, self._services
        self._queues = queues
        services.manager.add_queues(queues)
        self._member = member = HighLevelMember(
            services.zk,
            RebalanceSettings(
                config.group_id,
                self.consumer,
                config.partition_assignment_strategy,
                config.rebalance_max_retries,
                config.rebalance_backoff_ms,
                config.auto_commit_enable,
                config.exclude_internal_topics,
            ),
            ConsumerRegistration(subscription, pattern, self._clock.now_ms()),
            services.manager,
            services.commits,
            queue_of,
            asyncio.sleep,
            self.counters,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            always_watch_brokers=config.ottla_watch_brokers == "always",
        )
        self._listener = member.rebalancer.hooks = listener
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(member.watch()))
        if config.auto_commit_enable:
            self._tasks.append(loop.create_task(self._auto_commit()))
        await member.rebalance_now()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, retry_on_failure: bool) -> None:
        """Commit these offsets, or what was consumed of all that is owned. OffsetsNotCommittedError."""
        commits = self._services.commits
        if offsets is not None:
            await commits.commit_all(offsets, retry_on_failure=retry_on_failure)
        elif self._member is not None:
            await commits.commit(self._member.rebalancer.consumed_offsets, retry_on_failure=retry_on_failure)

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self.config.auto_commit_interval_ms / 1000)
            try:
                await self.commit(None, retry_on_failure=False)
            except ClientError as error:
                _log.warning("auto-commit: %s", error)

    async def shutdown(self) -> None:
        """End everything: the streams end, the last offsets are committed, the consumer leaves its group.

        At once, whatever it was doing, but for what ZooKeeper and the coordinator take to answer; what they do not
        answer in time is left to ZooKeeper's session timeout.
        """
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TASKS_S)
        if self._opened is not None:
            await self._opened.manager.stop()
        for queue in self._queues:
            await queue.end()
        if self._listener is not None:
            self._listener.stop()
        if self._member is not None:
            self._member.end()
            if self.config.auto_commit_enable:
                await _in_time("the last commit", self.commit(None, retry_on_failure=False), LAST_COMMIT_S)
        if self._opened is not None:
            await _in_time("taking leave of ZooKeeper", self._opened.zk.close(), LEAVE_S)
            await self._opened.brokers.close()


async def _in_time(what: str, work: Awaitable[None], limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await work
    except TimeoutError:
        _log.warning("%s took more than %d ms and was abandoned", what, limit_s * 1000)
    except (ClientError, ZkError) as error:
        _log.warning("%s failed: %s", what, error)
