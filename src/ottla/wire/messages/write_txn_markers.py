"""WriteTxnMarkers (key 27): a coordinator has markers written that end transactions. Version 1 is flexible."""

from __future__ import annotations

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, field, message, struct


@struct
class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@struct
class WritableTxnMarker(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)  # Whether it commits.
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)


@message(versions=(0, 1), flexible_since=1, api_key=27)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult))


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))


@message(versions=(0, 1), flexible_since=1, api_key=27)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
