"""What the codec accepts, refuses and says about it."""

from __future__ import annotations

import tracemalloc
import uuid

import pytest

from ottla.wire import codec
from ottla.wire.codec import WireError, decode, decode_prefix, encode
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=5, member_id="mm")


def test_bytes_of_a_version_with_fixed_lengths() -> None:
    assert encode(HEARTBEAT, 3) == bytes.fromhex("0001 67 00000005 0002 6d6d ffff")
    assert decode(HeartbeatRequest, encode(HEARTBEAT, 3), 3) == HEARTBEAT


def test_bytes_of_a_flexible_version() -> None:
    assert encode(HEARTBEAT, 4) == bytes.fromhex("02 67 00000005 03 6d6d 00 00")
    assert decode(HeartbeatRequest, encode(HEARTBEAT, 4), 4) == HEARTBEAT


def test_tagged_fields_are_written_when_they_differ() -> None:
    plain = FetchRequest(max_wait_ms=1)
    tagged = FetchRequest(max_wait_ms=1, cluster_id="c", replica_state=ReplicaState(replica_id=2, replica_epoch=3))
    assert encode(plain, 17)[-1:] == b"\0"
    assert encode(tagged, 17)[-20:] == bytes.fromhex("02 00 02 0263 01 0d 00000002 0000000000000003 00")
    assert decode(FetchRequest, encode(tagged, 17), 17) == tagged


def test_unknown_tagged_fields_survive_in_the_order_of_their_tags() -> None:
    data = bytes.fromhex("02 67 00000005 03 6d6d 00 02 05 01 aa 8001 02 bbbb")
    read = decode(HeartbeatRequest, data, 4)
    assert read.unknown_tagged_fields == {5: b"\xaa", 128: b"\xbb\xbb"}
    assert encode(read, 4) == data
    with pytest.raises(WireError, match="cannot be expressed in version 3"):
        encode(read, 3)


def test_unknown_and_known_tags_together() -> None:
    request = FetchRequest(cluster_id="c")
    request.unknown_tagged_fields = {9: b"\x01"}
    assert encode(request, 12)[-8:] == bytes.fromhex("02 00 02 0263 09 01 01")
    assert decode(FetchRequest, encode(request, 12), 12) == request


def test_null_where_it_is_allowed_and_where_it_is_not() -> None:
    assert decode(MetadataRequest, encode(MetadataRequest(topics=None), 1), 1).topics is None
    with pytest.raises(WireError, match="MetadataRequest version 0 cannot be encoded"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(WireError, match=r"topics is null or has a negative length \(-1\)"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
    with pytest.raises(WireError, match=r"topics is null or has a negative length \(-2\)"):
        decode(MetadataRequest, b"\xff\xff\xff\xfe\0", 1)
    with pytest.raises(WireError, match="group_id is null"):
        decode(HeartbeatRequest, b"\0" + encode(HEARTBEAT, 4)[2:], 4)


def test_fields_that_a_version_does_not_have() -> None:
    """Ignorable ones are dropped, others have to have their default."""
    reason = JoinGroupRequest(reason="because")
    assert encode(reason, 7) == encode(JoinGroupRequest(), 7)
    with pytest.raises(WireError, match="group_instance_id is set and cannot be expressed in version 2"):
        encode(HeartbeatRequest(group_instance_id="i"), 2)
    with pytest.raises(WireError, match="topics is set and cannot be expressed in version 5"):
        encode(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 5)
    assert decode(JoinGroupResponse, encode(JoinGroupResponse(protocol_type="c"), 6), 6).protocol_type is None


def test_versions_out_of_range() -> None:
    with pytest.raises(WireError, match="HeartbeatRequest has the versions 0 to 4, not 5"):
        encode(HEARTBEAT, 5)
    with pytest.raises(WireError, match="not -1"):
        decode(HeartbeatRequest, b"", -1)


@pytest.mark.parametrize("version", [3, 4])
def test_every_truncation_is_refused(version: int) -> None:
    data = encode(HEARTBEAT, version)
    for size in range(len(data)):
        with pytest.raises(WireError, match=f"HeartbeatRequest version {version}"):
            decode(HeartbeatRequest, data[:size], version)


def test_trailing_bytes_are_refused_but_for_prefixes() -> None:
    data = encode(HEARTBEAT, 3) + b"xx"
    with pytest.raises(WireError, match="HeartbeatRequest version 3 is followed by 2 bytes too many"):
        decode(HeartbeatRequest, data, 3)
    assert decode_prefix(HeartbeatRequest, data, 3) == (HEARTBEAT, len(data) - 2)
    assert decode_prefix(HeartbeatRequest, memoryview(b"..." + data), 3, 3) == (HEARTBEAT, len(data) + 1)


def test_newer_subscription_is_read_by_its_known_prefix() -> None:
    known = ConsumerProtocolSubscription(topics=["t"], user_data=None, generation_id=4, rack_id="r")
    assert decode_prefix(ConsumerProtocolSubscription, encode(known, 3) + b"what comes later", 3)[0] == known


def test_strings_have_to_be_utf8() -> None:
    with pytest.raises(WireError, match="ListGroupsRequest version 4 has a string that is not UTF-8"):
        decode(ListGroupsRequest, bytes.fromhex("02 02 ff 00"), 4)
    with pytest.raises(WireError, match="cannot be encoded"):
        encode(ListGroupsRequest(states_filter=["\ud800"]), 4)


def test_strings_have_a_limit_in_both_forms() -> None:
    longest, longer = "x" * 32767, "x" * 32768
    for version in (3, 4):
        request = HeartbeatRequest(group_id=longest)
        assert decode(HeartbeatRequest, encode(request, version), version) == request
        with pytest.raises(WireError, match="cannot be encoded"):
            encode(HeartbeatRequest(group_id=longer), version)
    too_long = bytes.fromhex("818002") + longer.encode() + bytes.fromhex("00000005 01 00 00")
    with pytest.raises(WireError, match="a string has 32768 bytes"):
        decode(HeartbeatRequest, too_long, 4)


def test_tagged_field_that_goes_beyond_the_data() -> None:
    data = encode(HEARTBEAT, 4)[:-1]
    with pytest.raises(WireError, match="a tagged field of 3 bytes, 2 are there"):
        decode_prefix(HeartbeatRequest, data + bytes.fromhex("01 05 03 aabb"), 4)
    fetch = encode(FetchRequest(), 12)[:-1]
    with pytest.raises(WireError, match="a tagged field has 3 bytes, 2 are there"):
        decode_prefix(FetchRequest, fetch + bytes.fromhex("01 05 03 aabb"), 12)


def test_more_tagged_fields_than_the_bytes_can_hold() -> None:
    for cls, version in ((HeartbeatRequest, 4), (FetchRequest, 12)):
        data = encode(cls(), version)[:-1]
        with pytest.raises(WireError, match="100 elements of at least 2 bytes announced, 5 bytes are there"):
            decode_prefix(cls, data + bytes.fromhex("64 05 03 aabbcc"), version)


def test_tagged_field_whose_content_does_not_fill_it() -> None:
    fetch = encode(FetchRequest(), 12)[:-1]
    assert decode(FetchRequest, fetch + bytes.fromhex("01 00 02 0263"), 12).cluster_id == "c"
    for content in ("03 0263 ff", "02 03 6364"):
        with pytest.raises(WireError, match="the tagged field cluster_id does not have the size"):
            decode_prefix(FetchRequest, fetch + bytes.fromhex("01 00" + content), 12)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 1, "7fffffff"),
        (MetadataRequest, 12, "ffffffff07 00"),
        (ListGroupsRequest, 4, "ffffffff07 00"),
        (HeartbeatRequest, 4, "ffffffff07 00"),
        (HeartbeatRequest, 4, "01 00000000 01 00 ffffffff07"),
        (HeartbeatRequest, 4, "01 00000000 01 00 01 00 ffffffff07"),
        (FetchRequest, 12, encode(FetchRequest(), 12)[:-1].hex() + "ffffffff07"),
        (ProduceRequest, 3, "ffff 0001 00000001 00000001 0001 78 00000001 00000000 7fffffff"),
        (ConsumerProtocolSubscription, 1, "00000000 7fffffff"),
        (ConsumerProtocolSubscription, 1, "00000000 ffffffff 00000001 0001 78 7fffffff"),
    ],
)
def test_absurd_lengths_allocate_nothing(cls, version: int, data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(WireError):
        decode(cls, raw, version)  # compiles
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(cls, raw, version)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_records_are_writable_slices_of_the_frame() -> None:
    partition = PartitionProduceData(index=0, records=b"records")
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    for version in (3, 9):
        frame = memoryview(bytearray(b"header" + encode(request, version)))
        read = decode(ProduceRequest, frame, version, 6)
        records = read.topic_data[0].partition_data[0].records
        records[:] = b"RECORDS"
        assert b"RECORDS" in bytes(frame)


def test_bytes_are_copies() -> None:
    request = JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="r", metadata=b"meta")])
    frame = bytearray(encode(request, 9))
    read = decode(JoinGroupRequest, memoryview(frame), 9)
    frame[:] = bytes(len(frame))
    assert read.protocols[0].metadata == b"meta"
    assert type(read.protocols[0].metadata) is bytes


def test_uuids() -> None:
    topic_id = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    assert topic_id.bytes in encode(request, 12)
    assert decode(MetadataRequest, encode(request, 12), 12).topics == request.topics


@pytest.mark.parametrize(
    "wrong",
    [
        HeartbeatRequest(group_id=7),  # type: ignore[arg-type]
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(generation_id="5"),  # type: ignore[arg-type]
        HeartbeatRequest(member_id=None),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit(wrong: HeartbeatRequest) -> None:
    for version in (3, 4):
        with pytest.raises(WireError, match=f"HeartbeatRequest version {version} cannot be encoded"):
            encode(wrong, version)


def test_parts_keep_large_things_apart() -> None:
    records = memoryview(b"r" * 100)
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    assert any(part is records for part in codec.encode_parts(request, 9))


@pytest.mark.parametrize("version", [1, 7])
@pytest.mark.parametrize("name", ["t" * 32_768, "\u00e9" * 16_384])
def test_a_string_that_is_too_long_is_named(version, name):
    request = MetadataRequest(topics=[MetadataRequestTopic(name="short"), MetadataRequestTopic(name=name)])
    with pytest.raises(
        WireError, match=f"MetadataRequest version {version} cannot be encoded: name has 32768 bytes, and a"
    ):
        encode(request, version)
    longest = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 32_767)])
    assert decode(MetadataRequest, encode(longest, version), version) == longest
