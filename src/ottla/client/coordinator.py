"""Requests to the broker that coordinates a group or a transactional id; it is found again when it has moved."""

from __future__ import annotations

from typing import Any, ClassVar

from ottla.client.errors import BrokerError
from ottla.client.model import Node
from ottla.peer.arguments import fitting
from ottla.peer.cluster import COORDINATOR, Cluster
from ottla.peer.errors import COORDINATOR_MOVED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.schema import Message


class CoordinatorFinder:
    """The coordinator of one key, cached until it turns out not to be the coordinator (any more)."""

    KEY_TYPE: ClassVar[int]
    KIND: ClassVar[str]
    """What is coordinated, for messages."""
    ABSENT: ClassVar[str | None] = None
    """Cause and cure of a missing coordinator; None for those of its error code."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self._cluster = cluster
        self._key = key
        self._node: Node | None = None

    async def node(self) -> Node:
        """Return the broker that coordinates the key. Raises BrokerError (retriable) while there is none."""
        if self._node is None:
            key = fitting(f"the id of a {self.KIND}", self._key)
            request = FindCoordinatorRequest(key=key, key_type=self.KEY_TYPE)
            answer: FindCoordinatorResponse = await self._cluster.request_any(request)
            if answer.error_code != ErrorCode.NONE:
                detail = self.ABSENT if answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE else None
                raise BrokerError(
                    answer.error_code,
                    f"{self.KIND} {self._key} has no coordinator",
                    answer.error_message or detail,
                )
            self._node = Node(answer.node_id, answer.host, answer.port)
        # A metadata refresh in between may have dropped or changed the broker; the rest of the metadata stays.
        known = self._cluster.metadata.nodes.get(self._node.node_id)
        if known is None or known[:3] != self._node[:3]:
            rack = None if known is None else known.rack
            self._cluster.metadata.nodes[self._node.node_id] = self._node._replace(rack=rack)
        return self._node

    @property
    def known_node_id(self) -> int | None:
        """The broker that was found, None before or after `forget`."""
        return None if self._node is None else self._node.node_id

    def forget(self) -> None:
        """The broker is not the coordinator any more, or unreachable: look it up on the next use."""
        self._node = None

    async def ask(self, request: Message, *, versions: tuple[int, int] | None = None) -> Any:
        """Return the coordinator's response; `versions` as in `Connection.request`."""
        (answer,) = await self.ask_in_a_row(request, versions=versions)
        return answer

    async def ask_in_a_row(self, *requests: Message, versions: tuple[int, int] | None = None) -> list[Any]:
        """Return the responses to requests sent together: the broker handles them directly one after the other."""
        node = await self.node()
        try:
            connection = await self._cluster.connection(node.node_id, COORDINATOR)
            return await connection.request_together(requests, versions)
        except BaseException:
            self._node = None
            raise

    def check(self, code: int, context: str, detail: str | None = None) -> None:
        """Raise BrokerError for anything but NONE; a broker that is not the coordinator is forgotten."""
        if code == ErrorCode.NONE:
            return
        if code in COORDINATOR_MOVED:
            self._node = None
        raise BrokerError(code, f"{self.KIND} {self._key}: {context}", detail)


class GroupCoordinator(CoordinatorFinder):
    """The coordinator of a consumer group."""

    KEY_TYPE = 0
    KIND = "group"


class TransactionalIdCoordinator(CoordinatorFinder):
    """The transaction coordinator of a transactional id."""

    KEY_TYPE = 1
    KIND = "transactional id"
    ABSENT = (
        "The coordinator is not available; if it lasts, see whether the topic __transaction_state exists and its "
        "partitions have leaders; to create it there must be as many brokers as "
        "transaction.state.log.replication.factor says"
    )
