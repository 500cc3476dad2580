"""A consumer's state of a partition that it owns, and its fetchers. Pure: the rebalance and the simulator use it.

Source: Apache Kafka 0.8.2.2, `kafka.consumer.PartitionTopicInfo` and `ConsumerFetcherManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ottla.assign.threads import ConsumerThread
from ottla.client.model import TopicPartition
from ottla.wire.errors import ErrorCode

INVALID_OFFSET = -1
"""The offset of a partition for which none is kept: `auto.offset.reset` says where its first fetch begins."""


class ChunkSink(Protocol):
    """The destination of the fetched chunks of a thread's partitions: the queue of its stream."""

    @property
    def is_full(self) -> bool:
        """Whether no more should be fetched for now."""
        ...


class PartitionTopicInfo:
    """A partition, its stream's queue, and two offsets that outlive any fetcher it moves through.

    `consumed_offset` is the offset after the last record handed out, `fetched_offset` after the last one in the queue.
    """

    __slots__ = ("consumed_offset", "fetched_offset", "partition", "queue", "refused", "thread")

    def __init__(
        self, partition: TopicPartition, thread: ConsumerThread, queue: ChunkSink, offset: int = INVALID_OFFSET
    ) -> None:
        self.partition = partition
        self.thread = thread
        self.queue = queue
        self.consumed_offset = offset
        self.fetched_offset = offset
        #: The broker's error at the last fetch, if it is one that another attempt does not cure; NONE else.
        self.refused: int = ErrorCode.NONE

    def reset(self, offset: int) -> None:
        """Fetch from this offset on: there was none, or it was not in the log.

        What waits in the queue is still to be handed out, and only then the consumed offset follows.
        """
        if self.consumed_offset == self.fetched_offset:
            self.consumed_offset = offset
        self.fetched_offset = offset

    def __repr__(self) -> str:
        return f"{self.partition}: consumed {self.consumed_offset}, fetched {self.fetched_offset}, by {self.thread}"


class FetchControl(Protocol):
    """The fetchers, as a rebalance needs them."""

    async def stop(self) -> None:
        """Stop all fetchers, and take what they brought out of the streams.

        When it returns, nothing more is handed out, so that the consumed offsets stand still.
        """
        ...

    def start(self, assignments: Mapping[TopicPartition, PartitionTopicInfo]) -> None:
        """Fetch these partitions, each from its `fetched_offset`."""
        ...
