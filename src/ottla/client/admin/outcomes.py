"""Calls about several items: the result of each, and which to retry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    PartlyFailedError,
    UnknownTopicError,
)
from ottla.client.model import TopicPartition
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
G = TypeVar("G")


class AdminCalls:
    """Base of the admin calls about one kind of resource."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def _ask_leaders(
        self,
        what: str,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Any]],
        value: Callable[[Any], V],
        refusal: Callable[[TopicPartition], str],
        timeout_ms: int | None,
    ) -> dict[TopicPartition, V]:
        """Return the `value` of each partition's part of its leader's response to `ask`."""
        outcomes: Outcomes[TopicPartition, V] = Outcomes(what, partitions)

        async def ask_one(leader: int, pending: list[TopicPartition]) -> None:
            answer = await ask(leader, pending)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition, code = TopicPartition(topic.name, result.partition_index), result.error_code
                    if code == ErrorCode.NONE:
                        outcomes.succeed(partition, value(result))
                    else:
                        detail = getattr(result, "error_message", None)
                        outcomes.fail(partition, BrokerError(code, refusal(partition), detail))
            outcomes.check_answered(pending)

        async def attempt(pending: list[TopicPartition]) -> None:
            by_leader: dict[int, list[TopicPartition]] = {}
            topics = await self._cluster.each_topic(list(dict.fromkeys(each.topic for each in pending)))
            for each in pending:
                topic = topics[each.topic]
                if isinstance(topic, BrokerError):
                    outcomes.fail(each, topic)
                    continue
                try:
                    by_leader.setdefault(await self._cluster.leader(each), []).append(each)
                except BrokerError as error:  # no such partition, or no leader
                    outcomes.fail(each, error)
            await outcomes.ask_each(by_leader, ask_one)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)


class Outcomes(Generic[K, V]):
    """The items of one call. Each is pending until it succeeds or fails for good."""

    def __init__(self, what: str, items: Iterable[K]) -> None:
        self.what = what
        self._order = list(dict.fromkeys(items))
        self._open: dict[K, ClientError | None] = dict.fromkeys(self._order)
        self._values: dict[K, V] = {}
        self._errors: dict[K, ClientError] = {}
        #: Items whose request was sent without a response: it may have been executed.
        self.uncertain: set[K] = set()

    @property
    def pending(self) -> list[K]:
        """The items to ask for (again)."""
        return list(self._open)

    def succeed(self, item: K, value: V) -> None:
        """Record the item's success."""
        if item in self._open:
            del self._open[item]
            self._values[item] = value

    def fail(self, item: K, error: ClientError) -> None:
        """Record the item's failure: final, or of this attempt only if the error is retriable."""
        if item not in self._open:
            return
        if isinstance(error, BrokerError) and error.code == ErrorCode.REQUEST_TIMED_OUT:
            self.uncertain.add(item)
        if error.retriable:
            self._open[item] = error
        else:
            del self._open[item]
            self._errors[item] = error

    def check_answered(self, items: Iterable[K]) -> None:
        """Called after an attempt's responses were handled: items missing from them fail."""
        for item in items:
            if item in self._open and self._open[item] is None:
                left_out = f"{self.what}: the broker's answer leaves {item} out"
                self.fail(item, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, left_out))

    async def ask_each(self, groups: Mapping[G, list[K]], ask: Callable[[G, list[K]], Awaitable[None]]) -> None:
        """Call `ask(key, items)` for each group concurrently; if one fails, its error is that of its items only."""
        answers = await asyncio.gather(*(ask(*each) for each in groups.items()), return_exceptions=True)
        for items, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, ClientError):
                for item in items:
                    self.fail(item, answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def work_off(
        self, cluster: Cluster, attempt: Callable[[list[K]], Awaitable[None]], timeout_ms: int | None = None
    ) -> dict[K, V]:
        """Call `attempt` with the pending items until there are none; returns the values in the order of the items.

        Raises the error itself for a single item or if no request could be sent, else PartlyFailedError.
        """

        async def once() -> None:
            for item in self._open:
                self._open[item] = None
            try:
                await attempt(self.pending)
            except (ConnectionLostError, ClientTimeoutError):
                self.uncertain.update(self._open)
                raise
            for error in self._open.values():
                if error is not None:
                    raise error

        if self._open:
            try:
                await cluster.retry(self.what, once, timeout_ms)
            except ClientError as error:
                if len(self._open) == len(self._order):
                    raise
                self._errors.update(dict.fromkeys(self._open, error))
        return self._result()

    def _result(self) -> dict[K, V]:
        if self._errors:
            if len(self._order) == 1:
                raise self._errors[self._order[0]]
            raise PartlyFailedError(
                self.what,
                {item: self._errors[item] for item in self._order if item in self._errors},
                {item: self._values[item] for item in self._order if item in self._values},
            )
        return {item: self._values[item] for item in self._order}


async def topic_error(cluster: Cluster, code: int, topic: str, what: str, detail: str | None = None) -> ClientError:
    """Return the error of a topic; for one that does not exist with the most similar existing name."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(topic, cluster.name, await cluster.nearest_topic(topic))
    return BrokerError(code, f"topic {topic} {what}", detail or None)


def no_such_broker(cluster: Cluster, node_id: int) -> ClientError:
    """Return the error for a broker that is not in the cluster's metadata."""
    known = ", ".join(map(str, sorted(cluster.metadata.nodes)))
    return InvalidArgumentError(f"{cluster.name} has no broker {node_id} at the moment; its brokers are {known}")


def check_controller(cluster: Cluster, code: int) -> None:
    """Raise BrokerError (retriable) if the broker is not the controller any more; the next attempt looks it up."""
    if code == ErrorCode.NOT_CONTROLLER:
        cluster.metadata.controller_id = -1
        raise BrokerError(code, "the controller has moved")
