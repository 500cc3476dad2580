"""Which refusals count as failed: those that Apache Kafka's broker counts."""

from __future__ import annotations

import pytest

from ottla.broker.replicas.traffic import TopicTraffic
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("U3")


@pytest.mark.parametrize(
    ("error", "is_failed", "rejected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, 1, 0),
        (ErrorCode.INVALID_RECORD, 1, 0),
        (ErrorCode.MESSAGE_TOO_LARGE, 0, 10),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 0, 10),
        (ErrorCode.CORRUPT_MESSAGE, 0, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, 0, 0),
    ],
)
def test_appends_that_are_refused(error: ErrorCode, is_failed: int, rejected: int) -> None:
    traffic = TopicTraffic()
    traffic.refused_early(error, 10)
    assert (traffic.appends, traffic.failed_appends, traffic.bytes_rejected) == (1, is_failed, rejected)
