"""Large messages step by step: equal to the codec's, lazily made, counted before anything is made."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from ottla.wire.apis import API
from ottla.wire.codec import decode, encode
from ottla.wire.errors import TooManyElementsError, WireError
from ottla.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.wire.sliced import (
    LAZY_ELEMENTS,
    GrowingArray,
    LazyArray,
    Sliced,
    decode_in_slices,
    encode_in_slices,
    encoded_array,
    joined,
    mapped,
)

LIMIT = 1_000_000


def finish(steps: Sliced[Any]) -> tuple[Any, int]:
    """Runs steps to their end: the result and how many there were."""
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        return end.value, count


def commit(partitions: int, topics: int = 1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=f"topic-{topic}",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="m")
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def plain(value: Any) -> Any:
    """A message with all lazy arrays made."""
    if isinstance(value, (list, LazyArray)):
        return [plain(item) for item in value]
    if hasattr(value, "SCHEMA"):
        return [plain(getattr(value, field.name)) for field in value.SCHEMA.fields]
    return value


@pytest.mark.parametrize("version", [2, 8])
@pytest.mark.parametrize(("partitions", "topics"), [(0, 0), (3, 2), (LAZY_ELEMENTS + 1, 3), (2, 500), (300, 100)])
def test_a_request_is_decoded_as_the_codec_does(version: int, partitions: int, topics: int) -> None:
    request = commit(partitions, topics)
    data = encode(request, version)
    (decoded, end), _ = finish(decode_in_slices(OffsetCommitRequest, memoryview(b"??" + data), version, 2, LIMIT))
    assert end == len(data) + 2
    assert plain(decoded) == plain(decode(OffsetCommitRequest, data, version))
    assert plain(decoded) == plain(decoded), "it can be iterated again"


def test_long_arrays_are_not_kept() -> None:
    data = memoryview(encode(commit(100_000), 8))
    tracemalloc.start()
    (decoded, _), steps = finish(decode_in_slices(OffsetCommitRequest, data, 8, 0, LIMIT))
    held = sum(partition.committed_offset for topic in decoded.topics for partition in topic.partitions)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held == sum(range(100_000))
    assert peak < 200_000, "the objects of a few elements at a time"
    assert steps > 100_000 / 20


def test_too_many_elements_are_refused_before_they_are_read() -> None:
    data = memoryview(encode(commit(1_000, 3), 8))
    finish(decode_in_slices(OffsetCommitRequest, data, 8, 0, 3_003))
    walk = decode_in_slices(OffsetCommitRequest, data, 8, 0, 3_002)
    with pytest.raises(TooManyElementsError, match="at most 3002"):
        finish(walk)
    names = MetadataRequest(topics=[MetadataRequestTopic(name="x")] * 100_000)
    walk = decode_in_slices(MetadataRequest, memoryview(encode(names, 12)), 12, 0, 99_999)
    with pytest.raises(TooManyElementsError):
        next(walk)


@pytest.mark.parametrize("version", [2, 8])
def test_a_damaged_request_fails_as_with_the_codec(version: int) -> None:
    data = encode(commit(80, 2), version)
    chance = random.Random(5)
    for _ in range(300):
        damaged = bytearray(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)
        for _ in range(chance.randrange(3)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        expected: Any = None
        try:
            expected = plain(decode(OffsetCommitRequest, bytes(damaged), version))
        except WireError as error:
            if "bytes too many" in str(error):
                continue
        found: Any = None
        with suppress(WireError):
            found = plain(finish(decode_in_slices(OffsetCommitRequest, memoryview(damaged), version, 0, LIMIT))[0][0])
        assert found == expected


def test_a_response_is_encoded_as_the_codec_does_with_elements_made_meanwhile() -> None:
    def topics(make: Any) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=make(
                range(3),
                lambda topic: OffsetForLeaderTopicResult(
                    topic=f"t{topic}",
                    partitions=make(range(5_000), lambda index: EpochEndOffset(partition=index, end_offset=index)),
                ),
            )
        )

    expected = encode(topics(lambda items, make: [make(item) for item in items]), 4)
    (parts, size), steps = finish(encode_in_slices(topics(mapped), 4))
    assert b"".join(parts) == expected
    assert size == len(expected)
    assert steps > 15_000 / 20
    assert encode(topics(mapped), 4) == expected, "the codec takes such arrays, too"


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("value_bytes", [10, 100])
def test_an_array_is_encoded_once_for_many_uses(version: int, value_bytes: int) -> None:
    """The settings of a topic, about 1 KB, are in the parts of a long response as one object."""
    configs = [DescribeConfigsResourceResult(name=f"setting.{index}", value="v" * value_bytes) for index in range(40)]
    shared = encoded_array(DescribeConfigsResponse, "configs", configs, version)
    response = DescribeConfigsResponse(
        results=mapped(range(1_000), lambda index: DescribeConfigsResult(resource_name=str(index), configs=shared))
    )
    (parts, size), _ = finish(encode_in_slices(response, version))
    (data,) = shared.parts
    assert len(data) > 1_000
    assert len({id(part) for part in parts if len(part) >= len(data)}) == 1
    assert sum(map(len, parts)) - 1_000 * len(data) < 1_000 * 40
    spelled = DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_name=str(index), configs=configs) for index in range(1_000)]
    )
    assert b"".join(parts) == encode(spelled, version)
    assert size == sum(map(len, parts))


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_an_array_is_encoded_while_its_elements_come(version: int, count: int) -> None:
    """Without objects that stay, in the bytes that the codec writes."""
    results = [
        CreatePartitionsTopicResult(name=f"topic-{index}", error_code=3, error_message="m" * (index % 700))
        for index in range(count)
    ]
    growing = GrowingArray(CreatePartitionsResponse, "results", version)
    for result in results:
        growing.add(result)
    response = CreatePartitionsResponse(results=growing.encoded())
    (parts, size), _ = finish(encode_in_slices(response, version))
    assert b"".join(parts) == encode(CreatePartitionsResponse(results=results), version)
    assert size == sum(map(len, parts))


def test_an_element_that_cannot_be_encoded_is_named() -> None:
    growing = GrowingArray(CreatePartitionsResponse, "results", 0)
    with pytest.raises(WireError, match="results of CreatePartitionsResponse version 0 cannot be encoded"):
        growing.add(CreatePartitionsTopicResult(name="x" * 40_000, error_code=3))


@pytest.mark.parametrize("key", sorted(API))
def test_every_message_of_every_version_can_be_read_and_written_in_steps(key: int) -> None:
    api = API[key]
    for version in range(api.min_version, api.max_version + 1):
        for cls in (api.request, api.response):
            data = encode(cls(), version)
            (decoded, end), _ = finish(decode_in_slices(cls, memoryview(data), version, 0, LIMIT))
            assert end == len(data)
            assert plain(decoded) == plain(decode(cls, data, version))
            (parts, _), _ = finish(encode_in_slices(decoded, version))
            assert b"".join(parts) == data


@pytest.mark.parametrize("version", [0, 4])
def test_joined_arrays_are_encoded_as_one(version: int) -> None:
    def partition(index: int) -> EpochEndOffset:
        return EpochEndOffset(error_code=0, partition=index, leader_epoch=1, end_offset=2)

    def response(partitions: Any) -> OffsetForLeaderEpochResponse:
        topics = [OffsetForLeaderTopicResult(topic="t", partitions=partitions)]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    whole = response([partition(index) for index in range(100)])
    several = response(joined([partition(0)], mapped(range(1, 99), partition), [], [partition(99)]))
    (parts, length), _ = finish(encode_in_slices(several, version))
    assert b"".join(parts) == encode(whole, version)
    assert length == len(encode(whole, version))
