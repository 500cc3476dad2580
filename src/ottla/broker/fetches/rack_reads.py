"""Reads from the replica in a consumer's rack (KIP-392), as Kafka's `RackAwareReplicaSelector` chooses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.refusals import RACK_AWARE

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.replicas.partition import Partition
    from ottla.config.broker import BrokerConfig


class RackReads:
    """Whether consumers learn of replicas in their racks, and how much they read from followers here."""

    __slots__ = ("bytes_read", "names_followers", "referred")

    def __init__(self, config: BrokerConfig) -> None:
        #: Whether a leader names followers: `replica.selector.class`.
        self.names_followers = config.get_string_or_none("replica.selector.class") == RACK_AWARE
        #: How often a leader here named a follower.
        self.referred = 0
        #: Bytes of records that consumers read from partitions followed here.
        self.bytes_read = 0


def nearest_follower(context: RequestContext, partition: Partition, rack: str, offset: int) -> int | None:
    """The follower from which a consumer in `rack` should read `offset`; None for the leader, this broker.

    None, too, where the leader is in the rack, or no follower there is alive, in sync, has the offset, and is reached
    on the listener of this client. Of several the most caught up one is taken, then the one with the highest id. A
    lagging follower is never named: the consumer would stay behind with it. Source: Apache Kafka 3.9,
    `ReplicaManager.findPreferredReadReplica`, `RackAwareReplicaSelector`, `ReplicaView.comparator`.
    """
    leader = partition.leader
    if leader is None or leader.is_alone:
        return None
    brokers = context.broker.image.brokers
    own = brokers.get(context.broker.id)
    if own is not None and own.rack == rack:
        return None
    best: tuple[int, float, int] | None = None
    for broker_id, follower in leader.replicas.followers.items():
        broker = brokers.get(broker_id)
        if (
            broker is not None
            and broker.rack == rack
            and broker_id in leader.isr
            and follower.log_start_offset <= offset <= follower.end_offset
            and broker.endpoint(context.listener_name) is not None
        ):
            found = (follower.end_offset, follower.last_caught_up_ms, broker_id)
            if best is None or found > best:
                best = found
    return None if best is None else best[2]
