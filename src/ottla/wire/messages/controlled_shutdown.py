"""ControlledShutdown (key 7): a broker asks the controller to move its leaderships away before it stops.

Versions: 0 has a request header without a client id; 2 broker epoch (KIP-380); 3 flexible.
"""

from __future__ import annotations

from ottla.wire.schema import INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 3), flexible_since=3, api_key=7)
class ControlledShutdownRequest(Message):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1, ignorable=True)


@struct
class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message(versions=(0, 3), flexible_since=3, api_key=7)
class ControlledShutdownResponse(Message):
    """The partitions that could not be moved."""

    error_code: int = field(INT16)
    remaining_partitions: list[RemainingPartition] = field(array(RemainingPartition))
