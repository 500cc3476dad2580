"""Reads from the replica in a consumer's rack (KIP-392): whether leaders name followers, and how much is read there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.refusals import RACK_AWARE

if TYPE_CHECKING:
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
