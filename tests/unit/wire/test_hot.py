"""Hand-tuned paths: what the property tests cannot see, slices and parts."""

from __future__ import annotations

import uuid

import pytest

from ottla.wire import codec, hot
from ottla.wire.errors import WireError
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


class FileRange:
    """Stands for a slice of a segment file."""

    def __init__(self, length: int) -> None:
        self.length = length


def produce(*records: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index=i, records=each) for i, each in enumerate(records)]
    return ProduceRequest(acks=-1, timeout_ms=9, topic_data=[TopicProduceData(name="t", partition_data=partitions)])


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("records", [[b"abc"], [b"a" * 126], [b"a" * 127], [b"a" * 70000], [b""], [b"abc", b"def"]])
def test_produced_records_are_writable_slices(version: int, records: list[bytes]) -> None:
    frame = memoryview(bytearray(b"head" + codec.encode(produce(*records), version)))
    request = hot.decode_produce(frame, version, 4)
    assert request == produce(*records)
    for partition in request.topic_data[0].partition_data:
        assert isinstance(partition.records, memoryview)
        if partition.records:
            partition.records[0] = ord("Z")
    assert bytes(frame).count(b"Z") == len([each for each in records if each])


@pytest.mark.parametrize("decode", [hot.decode_produce, hot.decode_fetch, hot.decode_heartbeat])
@pytest.mark.parametrize("frame", [b"", b"\0", b"\xff" * 30, bytes(62), bytes(71)])
@pytest.mark.parametrize("version", [4, 11])
def test_rubbish_is_refused(decode, frame: bytes, version: int) -> None:
    version = min(version, 4) if decode is hot.decode_heartbeat else version
    with pytest.raises(WireError):
        decode(memoryview(frame), version, 0)


@pytest.mark.parametrize("name", ["t", "t" * 126, "t" * 127, "t" * 249, "t" * 32767, "t" * 32768, None])
@pytest.mark.parametrize("version", [4, 5, 7, 8, 9, 11])
def test_produce_response_with_names_of_all_lengths(version: int, name: str) -> None:
    one = PartitionProduceResponse(index=3, error_code=2, base_offset=2**40, log_append_time_ms=5, log_start_offset=6)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=[one])], throttle_time_ms=7
    )
    if name is None or len(name) > 32767:
        with pytest.raises(WireError, match="ProduceResponse version"):
            hot.encode_produce_response(response, version)
    else:
        assert hot.encode_produce_response(response, version) == codec.encode(response, version)


def fetched(*partitions: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", topic_id=uuid.UUID(int=5), partitions=list(partitions))
    return FetchResponse(throttle_time_ms=1, responses=[topic])


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_ranges_of_files_are_parts(version: int) -> None:
    ranges = [FileRange(1000), FileRange(50)]
    response = fetched(*(PartitionData(partition_index=i, records=each) for i, each in enumerate(ranges)))
    parts, length = hot.encode_fetch_response(response, version)
    assert [part for part in parts if isinstance(part, FileRange)] == ranges
    in_memory = b"".join(bytes(part.length) if isinstance(part, FileRange) else part for part in parts)
    assert length == len(in_memory)
    expected = fetched(*(PartitionData(partition_index=i, records=bytes(r.length)) for i, r in enumerate(ranges)))
    assert in_memory == codec.encode(expected, version)


@pytest.mark.parametrize("version", [4, 12, 13, 17])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 5000])
def test_one_partition(version: int, size: int) -> None:
    for aborted in (None, [], [AbortedTransaction(producer_id=1, first_offset=2)]):
        data = PartitionData(high_watermark=9, records=bytes(size), aborted_transactions=aborted)
        parts, length = hot.encode_fetch_response(fetched(data), version)
        assert b"".join(parts) == codec.encode(fetched(data), version)
        assert length == sum(map(len, parts))
        data.records = FileRange(size)
        parts, file_length = hot.encode_fetch_response(fetched(data), version)
        assert file_length == length
        assert any(part is data.records for part in parts)


@pytest.mark.parametrize("version", [12, 13, 17])
@pytest.mark.parametrize("count", [2, 126, 127, 200])
def test_several_partitions(version: int, count: int) -> None:
    response = fetched(
        *(
            PartitionData(
                partition_index=index,
                error_code=index % 2,
                high_watermark=index,
                records=bytes(3000 * (index % 3)),
                aborted_transactions=None if index % 4 else [],
            )
            for index in range(count)
        )
    )
    if version >= 13:
        response.responses *= 2
    for last in (None, EpochEndOffset(epoch=3, end_offset=9)):
        if last is not None:
            response.responses[-1].partitions[-1].diverging_epoch = last
        parts, length = hot.encode_fetch_response(response, version)
        assert b"".join(parts) == codec.encode(response, version)
        assert length == sum(map(len, parts))


def test_a_value_that_does_not_fit_is_reported_as_by_the_codec() -> None:
    with pytest.raises(WireError, match="FetchResponse version 13 cannot be encoded"):
        hot.encode_fetch_response(fetched(PartitionData(high_watermark=2**63, records=b"")), 13)


@pytest.mark.parametrize("version", range(13, 18))
def test_fetch_request_with_nothing_new(version: int) -> None:
    request = FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=3)
    frame = memoryview(b"head" + codec.encode(request, version))
    assert hot.decode_fetch(frame, version, 4) == request


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(version: int) -> None:
    request = HeartbeatRequest(group_id="gruppe-ä", generation_id=5, member_id="m" * 50)
    frame = memoryview(b"head" + codec.encode(request, version))
    assert hot.decode_heartbeat(frame, version, 4) == request
    for size in range(4, len(frame)):
        with pytest.raises(WireError):
            hot.decode_heartbeat(frame[:size], version, 4)
