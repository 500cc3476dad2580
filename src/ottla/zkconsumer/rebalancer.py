"""The rebalance that every consumer of a group does by itself, step by step. It has no clock: time is `sleep`.

A try stops the fetchers, commits, releases what is owned, reads the group, computes everybody's assignment, fetches
the offsets of its own part, claims that part and starts the fetchers. Where a claim fails, as another consumer has not
released yet, or a node vanished in between, everything is rolled back and tried again after a pause.

Source: Apache Kafka 0.8.2.2, `ZookeeperConsumerConnector.ZKRebalancerListener`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ottla.assign.threads import ConsumerThread, ThreadAssignments
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.zk.client import ConnectionLossError, ZkClient
from ottla.zk.tree import ZkError
from ottla.zkconsumer.context import read_context
from ottla.zkconsumer.counters import RebalanceCounters, RebalanceStep
from ottla.zkconsumer.listeners import Listeners
from ottla.zkconsumer.ownership import PartitionOwnership
from ottla.zkconsumer.partition_info import ChunkSink, FetchControl, PartitionTopicInfo

_log = logging.getLogger("ottla.zkconsumer")

Owned = dict[str, set[int]]
GlobalAssignment = dict[str, dict[int, str]]
"""The thread that each partition goes to, by topic and partition."""


class ConsumerRebalanceFailedError(ClientError):
    """All tries of a rebalance failed; the consumer owns nothing until the next event. The cause is the last one's."""


class SessionOverError(ClientError):
    """The session ended in the middle of a rebalance: the consumer has to register again first."""


class Offsets(Protocol):
    """The store of the group's offsets, with the retries that belong to it."""

    async def fetch(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of each partition, -1 where none is kept."""
        ...

    async def commit(self, consumed: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Commit the offsets that `consumed()` returns. Raises ClientError where that fails."""
        ...

    @property
    def standing_still(self) -> asyncio.Lock:
        """While it is held no commit is under way."""
        ...


class RebalanceHooks(Protocol):
    """The application's actions around a rebalance; the rebalance waits for them."""

    async def before_releasing_partitions(self, owned: Owned) -> None:
        """The partitions that were owned are about to be released; nothing more of them is handed out."""
        ...

    async def before_starting_fetchers(self, consumer: str, assignment: GlobalAssignment) -> None:
        """Everything of this consumer's is claimed, and about to be fetched."""
        ...


class RebalanceSettings(NamedTuple):
    """The settings that a rebalance needs."""

    group: str
    consumer: str
    strategy: str = "range"
    max_retries: int = 4
    backoff_ms: int = 2000
    auto_commit: bool = True
    exclude_internal_topics: bool = True


class Rebalancer:
    """One consumer's part in the rebalances of its group. `rebalance` is called by one task only."""

    def __init__(
        self,
        zk: ZkClient,
        settings: RebalanceSettings,
        listeners: Listeners,
        fetching: FetchControl,
        offsets: Offsets,
        queue_of: Callable[[ConsumerThread, str], ChunkSink],
        sleep: Callable[[float], Awaitable[object]],
        counters: RebalanceCounters,
        hooks: RebalanceHooks | None = None,
    ) -> None:
        self._zk = zk
        self._settings = settings
        self._listeners = listeners
        self._fetching = fetching
        self._offsets = offsets
        self._queue_of = queue_of
        self._sleep = sleep
        self._counters = counters
        self._ownership = PartitionOwnership(zk, settings.group, counters)
        self._session_is_over = False
        #: What was owned when the rebalance under way began.
        self._had: set[TopicPartition] = set()
        self.hooks = hooks
        #: The partitions that are owned, replaced as a whole.
        self.registry: Mapping[TopicPartition, PartitionTopicInfo] = {}

    def consumed_offsets(self) -> dict[TopicPartition, int]:
        """How far each owned partition was read, but for those of which nothing is known yet."""
        return {each: info.consumed_offset for each, info in self.registry.items() if info.consumed_offset >= 0}

    def session_over(self) -> None:
        """The session has expired: a rebalance under way ends with SessionOverError."""
        self._session_is_over = True

    async def begin_session(self) -> None:
        """A new session has begun; what was owned in the old one is not any more, so nothing more of it is handed out.

        How far it was read is committed (`auto_commit`), unless another consumer has come further since. `ZkError`s.
        """
        self._session_is_over = False
        if not self.registry:
            return
        await self._fetching.stop()
        if self._settings.auto_commit:
            try:
                stored = await self._offsets.fetch(self.registry)
                ahead = {each: read for each, read in self.consumed_offsets().items() if read > stored[each]}
                await self._commit(lambda: ahead)
            except ClientError as error:
                _log.warning("what was read before the session expired is not committed: %s", error)
        self.registry = {}

    async def rebalance(self) -> None:
        """Try until it succeeds, `max_retries` times; tries that fail for want of a connection do not count.

        Raises ConsumerRebalanceFailedError, SessionOverError.
        """
        settings = self._settings
        self._counters.rebalances += 1
        failed = 0
        problem: Exception | None = None
        self._had = set()
        while failed < settings.max_retries:
            self._counters.tries += 1
            try:
                self._check_session()
                if await self._try():
                    return
                failed += 1
            except SessionOverError:
                raise
            except ConnectionLossError as error:
                problem = error
                _log.warning("%s cannot rebalance without ZooKeeper: %s", settings.consumer, error)
            except Exception as error:  # listeners and decoders of the user's, and whatever ZooKeeper holds
                failed, problem = failed + 1, error
                _log.info("try %d of %s to rebalance failed: %r", failed, settings.consumer, error)
            self._check_session()
            await self._fetching.stop()
            await self._sleep(settings.backoff_ms / 1000)
        self._counters.failed += 1
        await self._let_go()
        why = f"the last time since {problem}" if problem else "as other consumers did not release their partitions"
        raise ConsumerRebalanceFailedError(
            f"{settings.consumer} could not rebalance in {settings.max_retries} tries (rebalance.max.retries), {why}; "
            "it owns nothing until the group, a topic or an owner changes"
        ) from problem

    async def _try(self) -> bool:
        """One try; False where a partition is held by another consumer. True, too, where it is to wait for a broker."""
        settings = self._settings
        if not await self._listeners.broker_is_alive():
            _log.warning("%s waits for a broker: none is alive", settings.consumer)
            return True
        await self._release()
        self._begin(RebalanceStep.READ_CONTEXT)
        context = await read_context(
            self._zk, settings.group, settings.consumer, exclude_internal_topics=settings.exclude_internal_topics
        )
        if missing := [topic for topic, numbers in context.partitions.items() if not numbers]:
            _log.warning("%s waits for topics that do not exist (yet): %s", settings.consumer, ", ".join(missing))
        self._begin(RebalanceStep.ASSIGN)
        self._counters.decides(context.consumers, context.partitions)
        assignments = context.assign(settings.strategy)
        decision = context.mine(assignments)
        self._begin(RebalanceStep.FETCH_OFFSETS)
        offsets = await self._offsets.fetch(decision) if decision else {}
        self._begin(RebalanceStep.CLAIM)
        if not await self._ownership.claim_all(decision):
            return False
        # Who had a partition until its claim may have committed after the look at the offsets.
        gained = decision.keys() - self._had
        if gained:
            offsets = {**offsets, **await self._offsets.fetch(gained)}
        self._check_session()
        if self.hooks is not None:
            await self.hooks.before_starting_fetchers(settings.consumer, _global(assignments))
        self._begin(RebalanceStep.START_FETCHERS)
        self.registry = {
            partition: PartitionTopicInfo(
                partition, thread, self._queue_of(thread, partition.topic), offsets.get(partition, -1)
            )
            for partition, thread in decision.items()
        }
        self._fetching.start(self.registry)
        self._counters.rebalanced(len(self.registry))
        return True

    async def _release(self) -> None:
        """Stop reading, keep how far it came, and let go of everything."""
        self._begin(RebalanceStep.STOP_FETCHERS)
        await self._fetching.stop()
        if self._settings.auto_commit:
            self._begin(RebalanceStep.COMMIT)
            await self._commit(self.consumed_offsets)
        if self.hooks is not None:
            owned: Owned = {}
            for topic, partition in self.registry:
                owned.setdefault(topic, set()).add(partition)
            await self.hooks.before_releasing_partitions(owned)
        self._begin(RebalanceStep.RELEASE)
        async with self._offsets.standing_still:
            await self._ownership.release()
            self._had |= self.registry.keys()
            self.registry = {}

    async def _commit(self, consumed: Callable[[], Mapping[TopicPartition, int]]) -> None:
        try:
            await self._offsets.commit(consumed)
        except ClientError as error:
            _log.warning("offsets are not committed before a rebalance, so records will be read again: %s", error)

    async def _let_go(self) -> None:
        """The rebalance has failed: others must not wait for what this consumer does not read."""
        try:
            await self._ownership.release()
            self.registry = {}
            # Its owner may have been slow, and may not change the group any more when it lets go.
            await self._listeners.watch_releases(self._ownership.in_conflict)
        except ZkError as error:
            _log.warning("%s could not release its partitions: %s", self._settings.consumer, error)

    def _begin(self, step: RebalanceStep) -> None:
        self._check_session()
        self._counters.step(step)

    def _check_session(self) -> None:
        if self._session_is_over:
            raise SessionOverError("the session with ZooKeeper has expired in the middle of a rebalance")


def _global(assignments: ThreadAssignments) -> GlobalAssignment:
    by_topic: GlobalAssignment = {}
    for thread, topics in assignments.items():
        for topic, partitions in topics.items():
            by_topic.setdefault(topic, {}).update(dict.fromkeys(partitions, str(thread)))
    return by_topic
