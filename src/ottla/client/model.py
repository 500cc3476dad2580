"""Plain data of arguments and results of clients; the data of connections is in `ottla.peer.model`."""

from __future__ import annotations

from typing import NamedTuple

from ottla.peer.model import EARLIEST as EARLIEST
from ottla.peer.model import LATEST as LATEST
from ottla.peer.model import MAX_TIMESTAMP as MAX_TIMESTAMP
from ottla.peer.model import NO_OFFSET as NO_OFFSET
from ottla.peer.model import Node as Node
from ottla.peer.model import PartitionMetadata as PartitionMetadata
from ottla.peer.model import TopicMetadata as TopicMetadata
from ottla.peer.model import TopicPartition as TopicPartition
from ottla.peer.model import by_topic as by_topic


class RecordMetadata(NamedTuple):
    """The place of a written record; `offset` is -1 if the broker did not return it. `timestamp` is in milliseconds.

    Sizes are bytes, -1 for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or committed: that of the next record to read.

    `metadata` is free text of the application; `leader_epoch` is that of the last record read, -1 if unknown
    (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record with a timestamp (ms) or a later one; `leader_epoch` is -1 if the broker does not return it."""

    offset: int
    timestamp: int
    leader_epoch: int = -1
