"""Errors go to other processes and come back as they were: multiprocessing and process pools pickle them."""

from __future__ import annotations

import copy
import pickle

import pytest

from ottla.client.errors import (
    BrokerError,
    ClientError,
    ClientTimeoutError,
    DeliveryError,
    DeserializationOrigin,
    ForkedError,
    InvalidConfigError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRange,
    PartlyFailedError,
    RecordDeserializationError,
    RecordTooLargeError,
    UnknownTopicError,
)
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.wire.errors import ErrorCode

PARTITION = TopicPartition("t", 0)
RECORD = ConsumerRecord("t", 0, 1, 2, TimestampType.CREATE_TIME, b"k", None, (), -1, 1, -1)
ERRORS = [
    ClientTimeoutError("late", retriable=True),
    UnknownTopicError("t", "here", "u"),
    OffsetOutOfRange("t", 0, 1, 2, 3),
    BrokerError(ErrorCode.NOT_CONTROLLER, "asking"),
    BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "asking"),
    RecordTooLargeError("t", 1, "that"),
    PartlyFailedError("asking", {1: ClientError("no")}, {2: 3}),
    InvalidConfigError("producer", ["a", "b"]),
    ForkedError("client"),
    NoOffsetForPartitionError([PARTITION]),
    LogTruncationError({PARTITION: OffsetAndMetadata(1)}, {}),
    RecordDeserializationError(PARTITION, RECORD, DeserializationOrigin.KEY, ValueError("x")),
    DeliveryError("left", 3, [ValueError("x")]),
]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_are_copied_as_they_are(error, again):
    other = again(error)
    assert (type(other), str(other)) == (type(error), str(error))
    assert {name: repr(value) for name, value in vars(other).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }
