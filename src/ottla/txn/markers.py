"""Markers that end a transaction in its partitions: requests to their leaders, and the meaning of the responses.

Each request is about one partition. The shell may send those to one leader as one request; each needs its own outcome.

Source: Apache Kafka 3.9, `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla.txn.events import MarkerToken
from ottla.wire.apis import ApiKey
from ottla.wire.broker_requests import BrokerOutcome, BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class MarkerResult(Enum):
    """The meaning of an outcome."""

    DONE = auto()
    """The partition has the marker, or needs none: it is gone, or its message format has no transactions."""
    RETRY = auto()
    """The marker has to be sent again."""
    FENCED = auto()
    """Another coordinator, or a newer epoch of the producer, has taken over; this coordinator has to stop."""


_NEEDLESS = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def marker_request(token: MarkerToken, is_commit: bool) -> BrokerRequest:
    """The request to write one marker."""
    topic, partition = token.partition
    marker = WritableTxnMarker(
        producer_id=token.producer_id,
        producer_epoch=token.producer_epoch,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=token.coordinator_epoch,
    )
    payload = WriteTxnMarkersRequest(markers=[marker])
    return BrokerRequest(ApiKey.WRITE_TXN_MARKERS, token.partition, payload, token)


def marker_result(outcome: BrokerOutcome) -> MarkerResult:
    """The meaning of the outcome of a `marker_request`.

    UNKNOWN_TOPIC_OR_PARTITION without a response means that the cluster's metadata do not have the partition: it was
    deleted. From a broker the same error means that it does not know its role yet.
    """
    if outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return MarkerResult.DONE
    if outcome.error is not ErrorCode.NONE or not isinstance(outcome.response, WriteTxnMarkersResponse):
        return MarkerResult.RETRY
    errors = {
        partition.error_code
        for marker in outcome.response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
    if not errors.isdisjoint(_FENCED):
        return MarkerResult.FENCED
    is_done = bool(errors) and errors <= {ErrorCode.NONE, *_NEEDLESS}
    return MarkerResult.DONE if is_done else MarkerResult.RETRY
