"""The leaders that a response names to a client that asked another broker, or in an old leader epoch (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.broker.context import RequestContext
from ottla.cluster.image import NO_LEADER
from ottla.wire.errors import ErrorCode

#: The errors with which a response names the leader.
ERRORS_WITH_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
NO_EPOCH = -1

E = TypeVar("E")


class CurrentLeaders(Generic[E]):
    """Looks up leaders for the errors of one response, and collects where they are reached on the client's listener.

    `make_endpoint` is the response's struct `NodeEndpoint`. The endpoints are the last field
    of a response: the leaders of partitions that are made while it is encoded are among them.
    """

    def __init__(self, context: RequestContext, make_endpoint: Callable[..., E]) -> None:
        self._context = context
        self._make_endpoint = make_endpoint
        #: Each leader that was found, once.
        self.endpoints: list[E] = []
        self._named: set[int] = set()

    def find(self, topic: str, index: int) -> tuple[int, int]:
        """The id and epoch of the partition's leader, -1 where it has none; from this broker's replica if it has one.

        Source: Apache Kafka 3.9, `KafkaApis.getCurrentLeader`.
        """
        image = self._context.broker.image
        partition = self._context.broker.partitions.get(topic, index)
        if partition is not None and partition.leader_id is not None:
            leader_id, epoch = partition.leader_id, partition.leader_epoch
        elif image.has_partition(topic, index):
            state = image.topics[topic].partitions[index]
            leader_id, epoch = state.leader, state.leader_epoch
        else:
            return NO_LEADER, NO_EPOCH
        if leader_id not in self._named:
            self._named.add(leader_id)
            broker = image.brokers.get(leader_id)
            endpoint = broker.endpoint(self._context.listener_name) if broker is not None else None
            if broker is not None and endpoint is not None:
                self.endpoints.append(
                    self._make_endpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                )
        return leader_id, epoch
