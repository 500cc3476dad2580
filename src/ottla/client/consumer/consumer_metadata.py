"""Keeps the metadata of subscribed topics fresh: leader changes, added partitions, new and recreated topics."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

from ottla.client.consumer.subscription_state import LeaderAndEpoch, OffsetReset, SubscriptionState, SubscriptionType
from ottla.client.errors import BrokerError, ClientError, UnknownTopicError, as_client_error
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.peer.metadata import NO_NODE
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

REFUSALS = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
MAX_NAMED = 5
"""Limit of overdue topics that are logged by name, with a similar name, at one time."""


class ConsumerMetadata:
    """Requests metadata when it is old, expired or incomplete; one request at a time, with backoff after failures.

    Use it from one event loop. `version` grows with every response; `error` is a fatal failure, which the
    caller raises and clears.
    """

    def __init__(
        self,
        cluster: Cluster,
        subscriptions: SubscriptionState,
        on_update: Callable[[], None],
        *,
        allow_auto_topic_creation: bool = True,
    ) -> None:
        self.version = 0
        self.error: ClientError | None = None
        #: Why the last request failed; None after one that succeeded.
        self.problem: ClientError | None = None
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._on_update = on_update
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requested_at_ms = float("-inf")
        self._updated_at_ms = float("-inf")
        self._backoff_ms = 0.0
        self._complete = False
        self._leaderless = False
        self._leaderless_known: tuple[int, frozenset[str]] = (-1, frozenset())
        self._closed = False
        #: Topics to read that do not exist.
        self.unknown = UnknownTopics(cluster)
        self._recreated = RecreatedTopics(cluster, subscriptions.default_reset)

    async def close(self) -> None:
        """Stop requesting metadata."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.unknown.close()

    def request_update(self) -> None:
        """Metadata turned out to be stale: refresh it as soon as the backoff allows."""
        self._cluster.metadata.expire(self._subscriptions.metadata_topics())
        self.check()

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        """The partition's leader as far as it is known."""
        topic = self._cluster.metadata.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return LeaderAndEpoch()
        found = topic.partitions[partition.partition]
        return LeaderAndEpoch(found.leader, found.leader_epoch)

    def check(self) -> None:
        """Request metadata if something is missing or old, now or when it is due."""
        if self._closed or self._task is not None or self._subscriptions.has_no_subscription_or_user_assignment:
            return
        now = self._cluster.clock.monotonic_ms()
        due = max(self._due_ms(), self._requested_at_ms + self._backoff_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due <= now:
            self._requested_at_ms = now
            self._task = asyncio.get_running_loop().create_task(self._refresh())
        elif due != float("inf"):
            self._timer = asyncio.get_running_loop().call_later((due - now) / 1000, self.check)

    def _due_ms(self) -> float:
        settings, metadata = self._cluster.settings, self._cluster.metadata
        topics = self._subscriptions.metadata_topics()
        if self._wants_all and not self._complete:
            return float("-inf")
        missing = [] if metadata.are_fresh(topics) else [topic for topic in topics if not metadata.is_fresh(topic)]
        # A response about all topics contains no errors: a topic that it left out does not exist.
        knows_all = self._wants_all and self._complete
        if any(each not in metadata.errors and (each in metadata.topics or not knows_all) for each in missing):
            return float("-inf")
        if missing or self._is_leaderless(topics):
            return self._requested_at_ms + settings.retry_backoff_max_ms
        return self._updated_at_ms + settings.metadata_max_age_ms

    def _is_leaderless(self, topics: frozenset[str]) -> bool:
        """Whether a partition of these known topics has no leader; checked when something has changed."""
        known = (self._cluster.metadata.version, topics)
        if known != self._leaderless_known:
            described = [self._cluster.metadata.topics[topic] for topic in topics]
            self._leaderless = any(NO_NODE in (each.leader for each in topic.partitions) for topic in described)
            self._leaderless_known = known
        return self._leaderless

    def _note_refusals(self) -> None:
        """Record topics that cannot be read, fatally: invalid name, missing permission."""
        metadata = self._cluster.metadata
        for topic in self._subscriptions.metadata_topics():
            code = metadata.errors.get(topic, ErrorCode.NONE)
            if code in REFUSALS:
                self.error = self.problem = BrokerError(code, f"topic {topic} cannot be read")

    @property
    def _wants_all(self) -> bool:
        return self._subscriptions.type is SubscriptionType.PATTERN

    async def _refresh(self) -> None:
        settings = self._cluster.settings
        topics = None if self._wants_all else sorted(self._subscriptions.metadata_topics())
        try:
            await self._cluster.refresh(topics, allow_auto_topic_creation=self._allow_auto_topic_creation)
        except Exception as error:  # whatever it is: a poll raises it instead of waiting
            failed = as_client_error("metadata cannot be asked for", error)
            self.problem = failed
            if not failed.retriable:
                self.error = failed
            self._backoff_ms = min(max(self._backoff_ms * 2, settings.retry_backoff_ms), settings.retry_backoff_max_ms)
        else:
            self.problem = None
            self._note_refusals()
            self.unknown.note([] if topics is None else self._subscriptions.metadata_topics())
            self._recreated.note(self._subscriptions.metadata_topics())
            self.version += 1
            self._complete = topics is None
            self._backoff_ms = settings.retry_backoff_ms
            self._updated_at_ms = self._cluster.clock.monotonic_ms()
        finally:
            self._task = None
        self._on_update()
        self.check()


class UnknownTopics:
    """Topics to read that do not exist: logged once each, and reported by `health`.

    Call `note` after each metadata response for the topics to read, from one event loop.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since_ms: dict[str, float] = {}
        #: The logged topics, each with the most similar existing one.
        self._logged: dict[str, str | None] = {}
        self._logging: asyncio.Task[None] | None = None

    @property
    def errors(self) -> dict[str, UnknownTopicError]:
        """Return an error for each such topic, by name."""
        name = self._cluster.name
        return {each: UnknownTopicError(each, name, self._logged.get(each)) for each in self._since_ms}

    def note(self, topics: Iterable[str]) -> None:
        """Find those that do not exist by the metadata; log them once they are missing for long.

        Before `unknown_topic_timeout_ms` the topic may be about to be created, or the broker may have just started.
        """
        now_ms, known = self._cluster.clock.monotonic_ms(), self._cluster.metadata.errors
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in topics if known.get(each) in UNKNOWN}
        self._logged = {each: nearest for each, nearest in self._logged.items() if each in self._since_ms}
        missing_before_ms = now_ms - self._cluster.settings.unknown_topic_timeout_ms
        overdue = [
            each
            for each, since_ms in self._since_ms.items()
            if each not in self._logged and since_ms <= missing_before_ms
        ]
        if overdue and self._logging is None:
            self._logging = asyncio.get_running_loop().create_task(self._log(overdue))

    async def close(self) -> None:
        """Stop the search for similar names."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    async def _log(self, topics: list[str]) -> None:
        try:
            nearest = await self._cluster.nearest_topics(topics[:MAX_NAMED])
        except ClientError:
            nearest = {}
        finally:
            self._logging = None
        self._logged.update({each: nearest.get(each) for each in topics})
        for each in topics[:MAX_NAMED]:
            error = UnknownTopicError(each, self._cluster.name, nearest.get(each))
            log.warning("%s; it is read as soon as it exists", error)
        if len(topics) > MAX_NAMED:
            log.warning("%d more topics to read do not exist", len(topics) - MAX_NAMED)


class RecreatedTopics:
    """Logs topics that were deleted and created again while a consumer reads them: their id shows it.

    Call `note` after each metadata response for the topics to read.

    As in Java's consumer, positions stay. They are validated when leader or epoch differ (KIP-320), and are reset where
    the new log ends before them.
    """

    def __init__(self, cluster: Cluster, default_reset: OffsetReset) -> None:
        self._cluster = cluster
        self._default_reset = default_reset
        #: The last id of each topic to read, also while it does not exist.
        self._ids: dict[str, uuid.UUID] = {}

    def note(self, topics: Iterable[str]) -> None:
        """Compare the ids with those of the last responses that had the topics; log what changed."""
        before, self._ids = self._ids, {}
        for name in topics:
            known = self._cluster.metadata.topics.get(name)
            former = before.get(name)
            topic_id = former if known is None or known.topic_id is None else known.topic_id
            if topic_id is None:
                continue
            self._ids[name] = topic_id
            if former is not None and topic_id != former:
                log.warning(
                    "topic %s was deleted and created again (its id was %s and is %s). The positions of this consumer "
                    "and the offsets it commits are still those of the deleted topic: new records before them are not "
                    "read, and where the new log ends before them auto.offset.reset=%s decides. Call "
                    "seek_to_beginning() to read the new topic from its beginning",
                    name,
                    former,
                    topic_id,
                    self._default_reset.value,
                )
