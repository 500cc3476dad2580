"""The rebalance listener, and how the user's functions are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.client.model import TopicPartition


class ConsumerRebalanceListener:
    """Base class: override the methods you need; they may be plain functions or coroutines.

    They are called inside `poll` (and `close`, `unsubscribe`), never at another time, revocation before assignment.
    An error in one of them is raised by that `poll`, after the rebalance is complete.

    Source: Apache Kafka 3.9, `ConsumerRebalanceListener`; KIP-429.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to be revoked: still owned, so that offsets can be committed.

        With eager assignors: all of them at the beginning of every rebalance, even if there are none. With cooperative
        ones: those that move to another member, and only if there are some. Not called before a consumer's first join.
        """
        return None

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new; called after every rebalance, even if there are none. `seek` is possible here."""
        return None

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were lost and may have other owners already, as this consumer fell out of the group.

        Offsets cannot be committed any more. The default calls `on_partitions_revoked`, as in Java.
        """
        return self.on_partitions_revoked(partitions)


UserCall = Callable[..., Awaitable[Any]]
"""Calls a user function with arguments, where the user expects it to run, and returns its result."""


async def call_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in this task; awaits the result if it is awaitable."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result
