"""Telling the user which partitions a consumer of a group gets and gives up, and how the user's code is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.client.model import TopicPartition


class ConsumerRebalanceListener:
    """Derive from it, and override what you need; methods may be plain functions or coroutines.

    They are called inside `poll` (and `close`, `unsubscribe`), never at another time, and in this order: what is taken
    away first, what is given afterwards. An error that one of them raises comes out of that `poll`, when the rebalance
    is over.

    Source: Apache Kafka 3.9, `ConsumerRebalanceListener`; KIP-429.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are about to be given up: still this consumer's own, so that offsets can be committed.

        With eager assignors: all of them at the beginning of every rebalance, even if there are none. With cooperative
        ones: those that go to another member, and only if there are some. Not called before a consumer's first join.
        """
        return None

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are new; called at the end of every rebalance, even if there are none. A `seek` here holds."""
        return None

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These were taken away and may be others' already, as the group went on without this consumer.

        Offsets cannot be committed any more. Calls `on_partitions_revoked` if it is not overridden, as in Java.
        """
        return self.on_partitions_revoked(partitions)


UserCall = Callable[..., Awaitable[Any]]
"""Calls a function of the user's with arguments, where the user expects it to run, and gives its result."""


async def call_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in this task; what it returns is awaited if it can be."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result
