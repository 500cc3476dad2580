"""Authorization of requests (KIP-11): the terms of Kafka's authorizer, and the accesses that a request needs.

Each handler declares, as a function of its request, which operations on which resources the request needs
(`accesses` in its module). Before the handler runs, the dispatcher passes the declaration to the broker's `Authorizer`,
and the handler checks the result with `RequestContext.permits`. Without an authorizer everything is permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.net.connection import Principal


class Operation(IntEnum):
    """Kafka's AclOperation codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ResourceType codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


#: The name of the only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
#: The authorized operations in a response to a request that did not ask for them (`MetadataResponse`).
AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
#: Kafka's own tools may write to internal topics with this client id.
ADMIN_CLIENT_ID: Final = "__admin_client"
#: A request without a replica id, or with a negative one, comes from a client; otherwise it comes from a broker.
CONSUMER_REPLICA_ID: Final = -1
#: Given by tools that read any replica (`ListOffsetsRequest.DEBUGGING_REPLICA_ID`, and the same of Fetch).
DEBUGGING_REPLICA_ID: Final = -2


class Access(NamedTuple):
    """An operation on a resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


#: The accesses that a request needs.
Accesses = Iterable[Access]

#: Required of requests between brokers.
CLUSTER_ACTION: Final = Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class Authorizer(Protocol):
    """Decides which accesses a principal has."""

    def permitted(self, principal: Principal, host: str, accesses: Iterable[Access]) -> Collection[Access]:
        """Return those of the accesses that the principal has from this host."""


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
