"""The high-level consumer for applications: a connector, and streams to iterate over in threads.

    connector = create_connector({"zookeeper.connect": "127.0.0.1:2181", "group.id": "g"})
    streams = connector.create_message_streams({"clicks": 2})
    for stream in streams["clicks"]:
        threading.Thread(target=lambda stream=stream: [handle(message) for message in stream]).start()
    ...
    connector.shutdown()

Source: Apache Kafka 0.8.2.2, `kafka.consumer.ConsumerConnector`; explicit offsets and the listener are of 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ottla.assign.threads import ConsumerThread
from ottla.client.errors import ConnectError, IllegalStateError, InvalidArgumentError, InvalidConfigError
from ottla.client.loop_thread import LoopThread
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.client.serialization import deserialize_function, make_deserializer
from ottla.env.threads import Lock
from ottla.zk.access import AccessError, ZkAccess, access_of_file
from ottla.zk.address import ZkAddressError
from ottla.zk.client import ZkClient, ZkUnreachableError
from ottla.zk.layout import SubscriptionPattern
from ottla.zkconsumer.arguments import check_listener, check_threads, checked_offsets, checked_streams
from ottla.zkconsumer.async_connector import AsyncConnector, OpenZk
from ottla.zkconsumer.chunk_queue import ChunkQueue
from ottla.zkconsumer.highlevel_config import KIND, HighLevelConsumerConfig, parse_highlevel_config
from ottla.zkconsumer.listener_thread import ListenerThread
from ottla.zkconsumer.streams import Decoders, KafkaStream
from ottla.zkconsumer.topic_filters import TopicFilter

Streams = list[KafkaStream[Any, Any]]


class ZooKeeperUnreachableError(ConnectError):
    """No ZooKeeper answers at `zookeeper.connect`."""


def create_connector(config: Mapping[str, Any] | None = None, /, **settings: Any) -> ConsumerConnector:
    """Connect to ZooKeeper.

    Raises InvalidConfigError with all problems found, ZooKeeperUnreachableError, MissingExtraError.
    """
    return ConsumerConnector(parse_highlevel_config(config, settings), connect)


async def connect(config: HighLevelConsumerConfig) -> ZkClient:
    """A session with the ZooKeeper that the settings name."""
    from ottla.zk.kazoo_client import connect_kazoo

    try:
        return await connect_kazoo(
            config.zookeeper_connect,
            config.zookeeper_session_timeout_ms,
            config.zookeeper_connection_timeout_ms,
            access=access_of_file(config.ottla_zookeeper_config) if config.ottla_zookeeper_config else ZkAccess(),
        )
    except ZkUnreachableError as error:
        raise ZooKeeperUnreachableError(str(error), retriable=True) from error
    except AccessError as error:
        raise InvalidConfigError(KIND, [f"ottla.zookeeper.config: {error}"]) from error
    except ZkAddressError as error:
        raise InvalidConfigError(KIND, [f"zookeeper.connect={config.zookeeper_connect}: {error}"]) from error


class ConsumerConnector:
    """A consumer of a group. Any thread may use it; each stream is for a thread of its own."""

    def __init__(self, config: HighLevelConsumerConfig, open_zk: OpenZk) -> None:
        self.config = config
        self._connector = AsyncConnector(config, open_zk)
        self._created = False
        self._creating = Lock()
        self._listener: ListenerThread | None = None
        self._thread = LoopThread(f"{config.client_id}-connector", self._connector.shutdown)
        try:
            self._thread.run(self._connector.open)
        except BaseException:
            self._thread.finish()
            raise

    @property
    def consumer_id(self) -> str:
        """The consumer's name in ZooKeeper."""
        return self._connector.consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.shutdown()

    def set_rebalance_listener(self, listener: Any) -> None:
        """Set the rebalance listener (see `ConsumerRebalanceListener`), before the streams are created.

        Raises IllegalStateError afterwards, InvalidArgumentError for what has none of its methods.
        """
        if self._created:
            raise IllegalStateError("the rebalance listener is set before the streams are made, and they are")
        check_listener(listener)
        self._listener = ListenerThread(listener, f"{self.config.client_id}-watcher")

    def create_message_streams(
        self, topics: Mapping[str, int], key_decoder: object = None, value_decoder: object = None
    ) -> dict[str, Streams]:
        """Streams by topic, as many as it has threads here; once per connector.

        Decoders are what a consumer's `key.deserializer` may be: a deserializer, its class or name, a function of the
        bytes; None leaves the bytes. Returns when the first rebalance has ended. Where that fails the connector leaves
        its group, since its streams are not returned; make another one.

        Raises ConsumerRebalanceFailedError, IllegalStateError for a second call, InvalidArgumentError,
        ConsumerIdInUseError.
        """
        streams = checked_streams(topics)
        decoders = _decoders(key_decoder, value_decoder)
        queues = {topic: self._queues(count) for topic, count in streams.items()}

        def queue_of(thread: ConsumerThread, topic: str) -> ChunkQueue:
            return queues[topic][thread.thread]

        self._create(streams, "static", [each for of_topic in queues.values() for each in of_topic], queue_of)
        return {topic: self._streams(of_topic, decoders) for topic, of_topic in queues.items()}

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, threads: int = 1, key_decoder: object = None, value_decoder: object = None
    ) -> Streams:
        """Streams of all topics that a `Whitelist` or `Blacklist` takes, now and later; once per connector.

        See `create_message_streams`.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise InvalidArgumentError(f"give Whitelist(pattern) or Blacklist(pattern), not {topic_filter!r}")
        check_threads("", threads)
        decoders = _decoders(key_decoder, value_decoder)
        queues = self._queues(threads)
        self._create(
            {topic_filter.regex: threads}, topic_filter.PATTERN, queues, lambda thread, _topic: queues[thread.thread]
        )
        return self._streams(queues, decoders)

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None, retry_on_failure: bool = True
    ) -> None:
        """Commit these offsets, or for None what was handed out of every partition that is owned.

        An offset is that of the next record to read. Raises OffsetsNotCommittedError when the last of
        `offsets.commit.max.retries` (or the only) attempts failed, InvalidArgumentError.
        """
        wanted = None if offsets is None else checked_offsets(offsets)
        self._thread.run(self._connector.commit, wanted, retry_on_failure)

    def shutdown(self) -> None:
        """Leave the group: streams end, the last offsets are committed (`auto.commit.enable`). From any thread.

        At once, whatever the connector was doing; where ZooKeeper or the coordinator do not answer, the last commit is
        abandoned after three seconds, and the session left to its timeout a second later. A second call does nothing.
        """
        self._thread.finish()

    def _create(
        self, subscription: Mapping[str, int], pattern: SubscriptionPattern, queues: list[ChunkQueue], queue_of: Any
    ) -> None:
        self._thread.check()
        with self._creating:
            if self._created:
                raise IllegalStateError("a connector makes its streams once; make another connector for others")
            self._created = True
        try:
            self._thread.run(self._connector.start, subscription, pattern, queues, queue_of, self._listener)
        except BaseException:
            self.shutdown()
            raise

    def _queues(self, count: int) -> list[ChunkQueue]:
        return [ChunkQueue(self.config.queued_max_message_chunks) for _ in range(count)]

    def _streams(self, queues: list[ChunkQueue], decoders: Decoders) -> Streams:
        config = self.config
        return [KafkaStream(queue, decoders, config.consumer_timeout_ms, config.client_id, self) for queue in queues]


def _decoders(key: object, value: object) -> Decoders:
    return Decoders(
        deserialize_function(make_deserializer(key, {}, is_key=True)),
        deserialize_function(make_deserializer(value, {}, is_key=False)),
    )
