"""Authorization of requests (KIP-11): the terms of Kafka's authorizer, and the accesses that a request needs.

Each handler declares, as a function of its request, which operations on which resources the request needs
(`accesses` in its module). Before the handler runs, the dispatcher passes the declaration to the broker's `Authorizer`,
and the handler checks the result with `RequestContext.permits`. Without an authorizer everything is permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from ottla.cluster.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType
from ottla.net.connection import Principal

#: The authorized operations in a response to a request that did not ask for them (`MetadataResponse`).
AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
#: The operations that there are on each type of resource, as bits by their codes.
SUPPORTED_BITS: Final = {kind: sum(1 << each for each in found) for kind, found in SUPPORTED_OPERATIONS.items()}
#: Kafka's own tools may write to internal topics with this client id.
ADMIN_CLIENT_ID: Final = "__admin_client"
#: A request without a replica id, or with a negative one, comes from a client; otherwise it comes from a broker.
CONSUMER_REPLICA_ID: Final = -1
#: Given by tools that read any replica (`ListOffsetsRequest.DEBUGGING_REPLICA_ID`, and the same of Fetch).
DEBUGGING_REPLICA_ID: Final = -2


class Access(NamedTuple):
    """An operation on a resource; without a name on any resource of the type. Its denial is logged."""

    operation: Operation
    resource_type: ResourceType
    name: str | None


class Unlogged(Access):
    """An access whose denial is not logged: others may do in its place, or it only says what an answer has."""


class Fallback(Access):
    """An access that is needed only without another one. Its denial is logged where that one is denied as well.

    It may be needed only with a third access.
    """

    instead_of: Access
    only_with: Access | None = None


#: The accesses that a request needs.
Accesses = Iterable[Access]

#: Required of requests between brokers.
CLUSTER_ACTION: Final = Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class Authorizer(Protocol):
    """Decides which accesses a principal has."""

    def permitted(
        self, principal: Principal, host: str, accesses: Iterable[Access], api_key: int
    ) -> Collection[Access]:
        """Return those of the accesses that the principal has from this host; they are for a request of this API."""

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations on a resource that the principal has from this host, as bits by their codes."""


def on_cluster(operation: Operation) -> Access:
    """An operation on the cluster."""
    return Access(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def on_group(operation: Operation, group_id: str) -> Access:
    """An operation on a group."""
    return Access(operation, ResourceType.GROUP, group_id)


def on_topic(operation: Operation, topic: str) -> Access:
    """An operation on a topic."""
    return Access(operation, ResourceType.TOPIC, topic)


def on_topics(operation: Operation, topics: Iterable[str]) -> Iterator[Access]:
    """An operation on each of some topics."""
    return (on_topic(operation, topic) for topic in topics)


def or_else(access: Access, others: Iterable[Access], *, where: Operation | None = None) -> Iterator[Access]:
    """An access, or without it others, each for a part of the request: for what the client may do `where` with."""
    yield Unlogged(*access)
    for other in others:
        fallback = Fallback(*other)
        fallback.instead_of = access
        if where is not None:
            fallback.only_with = other._replace(operation=where)
        yield fallback


def unlogged(accesses: Iterable[Access]) -> Iterator[Access]:
    """Accesses whose denials are not logged."""
    return (Unlogged(*access) for access in accesses)
