"""A consumer's name, and its node under `ids`, by which the group knows it.

Source: Apache Kafka 0.8.2.2, `ZookeeperConsumerConnector.registerConsumerInZK`, `ZkUtils`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.client.errors import ClientError
from ottla.zk.client import ZkClient
from ottla.zk.layout import ConsumerIdZnode, ConsumerRegistration
from ottla.zk.tree import NodeExistsError
from ottla.zkconsumer.znodes import make_node

POLL_S = 0.5
"""Pause between two looks whether the node of an earlier session has gone."""

Sleep = Callable[[float], Awaitable[object]]


class ConsumerIdInUseError(ClientError):
    """Another consumer of the group is registered by the same `consumer.id`."""


def consumer_name(group: str, consumer_id: str | None, host: str, now_ms: int, random_hex: str) -> str:
    """The consumer's name in ZooKeeper: `group_host-ms-hex8`, or `group_consumer.id` where that is given."""
    return f"{group}_{consumer_id or f'{host}-{now_ms}-{random_hex}'}"


async def register(
    zk: ZkClient, group: str, consumer: str, registration: ConsumerRegistration, sleep: Sleep, patience_ms: int
) -> None:
    """Make the consumer's node in the session that is now.

    The node of an earlier session of the same name is waited for, since ZooKeeper takes a session timeout
    (`patience_ms`) to notice that it is over; ConsumerIdInUseError where it stays. Raises `ZkError`s, too.
    """
    path = ConsumerIdZnode.path(group, consumer)
    data = ConsumerIdZnode.encode(registration)
    waited_s = 0.0
    while True:
        try:
            await make_node(zk, path, data, ephemeral=True)
            return
        except NodeExistsError:
            stat = await zk.exists(path)
        if stat is None:
            continue
        if stat.ephemeral_owner == zk.session_id:
            return  # made by an attempt whose answer was lost
        if waited_s * 1000 > patience_ms:
            raise ConsumerIdInUseError(
                f"a consumer called {consumer} is registered at {path} by another session; stop it, or give this one "
                "another consumer.id (or none)"
            )
        await sleep(POLL_S)
        waited_s += POLL_S
