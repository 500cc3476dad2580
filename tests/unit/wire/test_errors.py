"""Error codes: numbers, texts, what may be retried."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode


def test_codes_are_ints_with_kafkas_names() -> None:
    assert ErrorCode.NONE == 0
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.REBALANCE_IN_PROGRESS.name == "REBALANCE_IN_PROGRESS"
    assert [int(code) for code in sorted(ErrorCode)] == list(range(-1, 128))


def test_messages_are_those_of_apache_kafka() -> None:
    assert ErrorCode.TOPIC_ALREADY_EXISTS.message == "Topic with this name already exists."
    assert ErrorCode.CORRUPT_MESSAGE.message == (
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, "
        "or is otherwise corrupt."
    )
    assert all(code.message and "  " not in code.message for code in ErrorCode)


def test_retriable_as_in_apache_kafka() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.REBALANCE_IN_PROGRESS.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.UNKNOWN_SERVER_ERROR.retriable
