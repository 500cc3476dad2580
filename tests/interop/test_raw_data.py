"""Produce, Fetch and the requests about offsets: every version and every refusal, side by side with Apache Kafka."""

from __future__ import annotations

import struct
import uuid
from functools import partial
from typing import Any

import fastcrc
import pytest

from interop.both_brokers import NO_ID, BrokerPair, topic_id_when_usable
from interop.raw import RawConnection, batch, values_of
from interop.wire_json import Json
from ottla.records import walk
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka]

UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
UNKNOWN_TOPIC_ID = 100

ZSTD, CONTROL, TRANSACTIONAL = 4, 0x20, 0x10
TIMESTAMP = 1_700_000_000_000


def producing(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> Json:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 20_000, "topic_data": data}


def produced(answer: Json) -> Json:
    (topic,) = answer["responses"]
    (partition,) = topic["partition_responses"]
    found: Json = partition
    return found


def produce(pair: BrokerPair, topic: str, records: bytes | None, version: int = 9, **more: Any) -> Json:
    return produced(pair.check_alike("Produce", version, **producing(topic, records, **more)))


def fetching(version: int, name: str, topic_id: Any, partitions: list[Json], **more: Any) -> Json:
    topic: Json = {"partitions": [{"partition_max_bytes": 1 << 20, **one} for one in partitions]}
    topic |= {"topic": name} if version < 13 else {"topic_id": topic_id}
    body: Json = {"max_wait_ms": 0, "min_bytes": 0, "topics": [topic], **more}
    return body if version > 14 else {"replica_id": -1, **body}


def fetched(answer: Json) -> Json:
    (topic,) = answer["responses"]
    (partition,) = topic["partitions"]
    found: Json = partition
    return found


def check_fetch(pair: BrokerPair, version: int, name: str, topic_id: Any = NO_ID, offset: int = 0, **more: Any) -> Json:
    partition = {"partition": 0, "fetch_offset": offset, **more}
    return fetched(pair.check_alike("Fetch", version, **fetching(version, name, topic_id, [partition])))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.spec("L2")
def test_produce_in_every_version(pair: BrokerPair, unique: str, version: int, acks: int) -> None:
    pair.create_topic(unique)
    offsets = [produce(pair, unique, batch([b"a", b"b"]), version, acks=acks)["base_offset"] for _ in range(3)]
    assert offsets == [0, 2, 4]


@pytest.mark.parametrize("version", [3, 9, 11])
def test_no_answer_without_acknowledgement(raw: RawConnection, unique: str, version: int) -> None:
    create(raw, unique)
    raw.send("Produce", version, **producing(unique, batch([b"unanswered"]), acks=0))
    # The answer that comes next belongs to the next request, and sees the record.
    offset = raw.request("ListOffsets", 7, **listing(unique, -1))["topics"][0]["partitions"][0]["offset"]
    assert offset == 1


@pytest.mark.parametrize("bad", [{"crc": 1}, {"attributes": TRANSACTIONAL, "producer_id": 7, "producer_epoch": 0}])
def test_a_refused_produce_without_acknowledgement_closes_the_connection(
    raw: RawConnection, unique: str, bad: dict[str, int]
) -> None:
    create(raw, unique)
    raw.send("Produce", 9, **producing(unique, batch([b"x"], **bad), acks=0))
    assert raw.is_closed_by_broker()


def create(connection: RawConnection, name: str, partitions: int = 1) -> uuid.UUID:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    connection.request("CreateTopics", 7, topics=[topic], timeout_ms=20_000)
    return topic_id_when_usable(connection, name, partitions)


@pytest.mark.parametrize("acks", [2, -2, 100])
@pytest.mark.parametrize("version", [3, 8, 11])
def test_invalid_acks(pair: BrokerPair, unique: str, version: int, acks: int) -> None:
    pair.create_topic(unique)
    assert produce(pair, unique, batch([b"x"]), version, acks=acks)["error_code"] == INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("version", [3, 8, 11])
@pytest.mark.parametrize("acks", [-1, 1, 7])
def test_records_of_a_transaction_without_its_id(pair: BrokerPair, unique: str, version: int, acks: int) -> None:
    """The whole request is refused, before anything else of it is looked at."""
    pair.create_topic(unique)
    of_transaction = batch([b"x"], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    answer = produce(pair, unique, of_transaction, version, acks=acks)
    assert answer["error_code"] == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    both = producing(unique, batch([b"usual"]), acks=acks)
    both["topic_data"] += producing(f"{unique}-none", of_transaction)["topic_data"]
    answers = pair.ask_each("Produce", version, **both)
    for answer in (answers.ours, answers.theirs):
        codes = [partition["error_code"] for topic in answer["responses"] for partition in topic["partition_responses"]]
        assert codes == [TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert check_fetch(pair, 12, unique)["high_watermark"] == 0


def test_the_id_of_a_transaction_without_its_records(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    request = producing(unique, batch([b"x"])) | {"transactional_id": "any"}
    assert produced(pair.check_alike("Produce", 9, **request))["error_code"] == NONE


@pytest.mark.parametrize("version", [3, 8, 11])
def test_produce_to_nowhere(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    for topic, partition in ((unique, 1), (unique, -1), (unique + "-none", 0)):
        answer = produce(pair, topic, batch([b"x"]), version, partition=partition)
        assert answer["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


def patched(records: bytes, position: int, data: bytes) -> bytes:
    return records[:position] + data + records[position + len(data) :]


def with_records(head: bytes, records: bytes, count: int = 2) -> bytes:
    """A batch with the header of another, other bytes for records, and a checksum that is right."""
    made = bytearray(head[:61] + records)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">i", made, 23, count - 1)
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">I", made, 17, fastcrc.crc32.iscsi(bytes(made[21:])))
    return bytes(made)


def with_max_timestamp(head: bytes, timestamp: int) -> bytes:
    made = bytearray(head)
    struct.pack_into(">q", made, 35, timestamp)
    struct.pack_into(">I", made, 17, fastcrc.crc32.iscsi(bytes(made[21:])))
    return bytes(made)


GOOD = batch([b"good", b"better"])
BAD_RECORDS: dict[str, bytes] = {
    "wrong checksum": batch([b"x"], crc=12345),
    "format 1": batch([b"x"], magic=1),
    "format 0": batch([b"x"], magic=0),
    "format 3": batch([b"x"], magic=3),
    "two batches": GOOD + GOOD,
    "a batch and a half": GOOD + GOOD[:40],
    "empty": b"",
    "half a batch": GOOD[:50],
    "a batch less one byte": GOOD[:-1],
    "too few bytes for a header": GOOD[:10],
    "garbage behind it": GOOD + b"\xff" * 40,
    "an unknown format cut off behind it": GOOD + patched(GOOD, 16, b"\x07")[:40],
    "a small piece of the next behind it": GOOD + struct.pack(">qi", 0, 20),
    "length zero": patched(GOOD, 8, struct.pack(">i", 0)),
    "length negative": patched(GOOD, 8, struct.pack(">i", -1)),
    "length absurd": patched(GOOD, 8, struct.pack(">i", 0x7FFFFFFF)),
    "count absurd": patched(GOOD, 57, struct.pack(">i", 0x7FFFFFFF)),
    "count negative": patched(GOOD, 57, struct.pack(">i", -5)),
    "no records": batch([]),
    "control batch": batch([b"x"], attributes=CONTROL, producer_id=5, producer_epoch=0, base_sequence=0),
    "unknown compression": batch([b"x"], attributes=5),
    "too large": batch([b"x" * (1 << 20)]),
    "base offset not zero": batch([b"x"], base_offset=17),
    "one record too few": with_records(GOOD, GOOD[61:], count=3),
    "one record too many": with_records(GOOD, GOOD[61:], count=1),
    "a record longer than the batch": with_records(GOOD, b"\x7e" + GOOD[62:]),
    "a record shorter than it says": with_records(GOOD, b"\x16" + GOOD[62:]),
    "a negative length": with_records(GOOD, b"\x01" + GOOD[62:]),
    "a key beyond the record": with_records(GOOD, GOOD[61:65] + b"\x7e" + GOOD[66:]),
    "a length without an end": with_records(GOOD, b"\xff" * 12),
    "bytes behind the records": with_records(GOOD, GOOD[61:] + b"\0"),
    "nothing in place of records": with_records(GOOD, b""),
    "offsets that do not count up": with_records(GOOD, GOOD[61:64] + b"\x06" + GOOD[65:]),
}


#: What only compiled code finds when a batch is appended.
FOUND_IN_RECORDS = list(BAD_RECORDS)[list(BAD_RECORDS).index("one record too few") :]


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("what", BAD_RECORDS)
def test_bad_records(pair: BrokerPair, unique: str, what: str, version: int) -> None:
    if what in FOUND_IN_RECORDS and not walk.COMPILED:
        pytest.skip("the code for single records is not compiled: ./run setup says why")
    pair.create_topic(unique)
    answers = pair.ask_each("Produce", version, **producing(unique, BAD_RECORDS[what]))
    ours, theirs = produced(answers.ours), produced(answers.theirs)
    if theirs["error_code"] == UNKNOWN_SERVER_ERROR:
        # An exception that Apache Kafka did not expect; the sender is told what it did wrong all the same.
        assert ours["error_code"] != NONE
    else:
        assert ours["error_code"] == theirs["error_code"], (ours, theirs)
    # Whatever was said, the log is the same afterwards (which the fetch compares).
    check_fetch(pair, 12, unique)


@pytest.mark.parametrize("said", [0, TIMESTAMP - 1, TIMESTAMP + 1000, -1])
def test_the_newest_timestamp_is_that_of_the_records(pair: BrokerPair, unique: str, said: int) -> None:
    if not walk.COMPILED:
        pytest.skip("the code for single records is not compiled: ./run setup says why")
    pair.create_topic(unique)
    produce(pair, unique, with_max_timestamp(GOOD, said), 9)
    check_fetch(pair, 12, unique)


def test_null_records_are_refused(ottla_only: OttlaServer, connect: Any, unique: str) -> None:
    # Apache Kafka 3.9.1 never answers this request, and no other one on the connection either.
    raw = connect(ottla_only)
    create(raw, unique)
    assert produced(raw.request("Produce", 9, **producing(unique, None)))["error_code"] != NONE
    assert produced(raw.request("Produce", 9, **producing(unique, batch([b"x"]))))["base_offset"] == 0


def test_zstd_is_refused_in_old_versions(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    records = batch([b"not compressed at all"], attributes=ZSTD)
    assert produce(pair, unique, records, 6)["error_code"] == UNSUPPORTED_COMPRESSION_TYPE


def test_timestamps_out_of_bounds(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for timestamp in (TIMESTAMP, 4_000_000_000_000):
        answers = pair.ask_each("Produce", 9, **producing(unique, batch([b"x"], timestamp=timestamp)))
        told = [produced(side)["error_code"] for side in (answers.ours, answers.theirs)]
        assert told == [INVALID_TIMESTAMP, INVALID_TIMESTAMP]


def test_log_append_time(pair: BrokerPair, unique: str) -> None:
    made = pair.create_topic(unique, message_timestamp_type="LogAppendTime")
    assert produce(pair, unique, batch([b"a", b"b"]), 9)["log_append_time_ms"] > 0
    answers = pair.ask_each("Fetch", 13, **fetching(13, unique, made, [{"partition": 0, "fetch_offset": 0}]))
    for side in (answers.ours, answers.theirs):
        records = fetched(side)["records"]
        assert values_of(records) == [b"a", b"b"]
        (attributes,) = struct.unpack_from(">h", records, 21)
        assert attributes == 8, "the bit of LogAppendTime"


SEQUENCES: dict[str, list[tuple[int, int, int]]] = {
    # What is sent, in order: epoch, first sequence, number of records.
    "in order": [(0, 0, 2), (0, 2, 1), (0, 3, 1)],
    "a duplicate": [(0, 0, 2), (0, 2, 1), (0, 2, 1), (0, 0, 2), (0, 3, 1)],
    "a gap": [(0, 0, 2), (0, 5, 1), (0, 2, 1)],
    "an overlap": [(0, 0, 3), (0, 2, 2)],
    "a duplicate of old": [*((0, number, 1) for number in range(8)), (0, 0, 1), (0, 3, 1), (0, 8, 1)],
    "an old epoch": [(1, 0, 1), (0, 1, 1), (1, 1, 1)],
    "a new epoch": [(0, 0, 1), (1, 0, 1), (1, 1, 1)],
    "a new epoch out of order": [(0, 0, 1), (1, 5, 1), (1, 0, 1)],
    "unknown and not at zero": [(0, 7, 1), (0, 8, 1), (0, 6, 1)],
    "wrapped around": [(0, 0x7FFFFFFE, 2), (0, 0, 2), (0, 2, 1)],
}


@pytest.mark.parametrize("what", SEQUENCES)
@pytest.mark.spec("P5")
def test_idempotent_producers(pair: BrokerPair, unique: str, what: str) -> None:
    pair.create_topic(unique)
    for epoch, sequence, count in SEQUENCES[what]:
        values: list[bytes | None] = [f"{epoch}-{sequence + number}".encode() for number in range(count)]
        records = batch(values, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)
        produce(pair, unique, records)
    check_fetch(pair, 12, unique)


def gives_producer_ids(connection: RawConnection) -> bool:
    answer = connection.request("InitProducerId", 0, transactional_id=None, transaction_timeout_ms=60_000)
    return bool(answer["error_code"] == NONE)


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_out(pair: BrokerPair, version: int) -> None:
    more = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    body: Json = {"transactional_id": None, "transaction_timeout_ms": 60_000, **more}
    for one in (pair.ours, pair.theirs):
        # Apache Kafka fetches its first block of ids when somebody asks.
        wait_until(partial(gives_producer_ids, one), "the first producer id")
    answers = [pair.check_alike("InitProducerId", version, **body) for _ in range(3)]
    assert len({one["producer_id"] for one in answers}) == 3
    assert {one["producer_epoch"] for one in answers} == {0}


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_in_every_version(pair: BrokerPair, unique: str, version: int) -> None:
    made = pair.create_topic(unique)
    for number in range(3):
        produce(pair, unique, batch([f"{number}a".encode(), f"{number}b".encode()]))
    assert values_of(check_fetch(pair, version, unique, made)["records"]) == [b"0a", b"0b", b"1a", b"1b", b"2a", b"2b"]
    # From the middle of a batch the whole batch comes.
    assert values_of(check_fetch(pair, version, unique, made, 3)["records"]) == [b"1a", b"1b", b"2a", b"2b"]
    assert not check_fetch(pair, version, unique, made, 6)["records"]
    assert check_fetch(pair, version, unique, made, 7)["error_code"] == OFFSET_OUT_OF_RANGE
    assert check_fetch(pair, version, unique, made, -1)["error_code"] == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 9, 12])
def test_fetch_from_nowhere(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    assert check_fetch(pair, version, unique + "-none")["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    for number in (1, -1):
        body = fetching(version, unique, NO_ID, [{"partition": number, "fetch_offset": 0}])
        assert fetched(pair.check_alike("Fetch", version, **body))["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [13, 17])
def test_fetch_of_an_unknown_id(pair: BrokerPair, version: int) -> None:
    assert check_fetch(pair, version, "", uuid.UUID(int=1 << 90))["error_code"] == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("epoch", "error"), [(0, NONE), (-1, NONE), (7, UNKNOWN_LEADER_EPOCH), (-5, NONE)])
def test_fetch_with_an_epoch(pair: BrokerPair, unique: str, epoch: int, error: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"x"]))
    assert check_fetch(pair, 12, unique, current_leader_epoch=epoch)["error_code"] == error


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_fetch_with_a_last_fetched_epoch(pair: BrokerPair, unique: str, epoch: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"x"]))
    check_fetch(pair, 12, unique, offset=1, last_fetched_epoch=epoch)


@pytest.mark.parametrize("limit", [1, 69, 70, 71, 200, 100_000])
def test_limits_of_a_fetch(pair: BrokerPair, unique: str, limit: int) -> None:
    pair.create_topic(unique, partitions=2)
    for partition in (0, 1):
        for _ in range(3):
            produce(pair, unique, batch([b"x"]), partition=partition)
    partitions = [{"partition": number, "fetch_offset": 0} for number in (0, 1)]
    # At least one batch comes, however small the limit; the second partition gets what is left of it.
    pair.check_alike("Fetch", 12, **fetching(12, unique, NO_ID, partitions, max_bytes=limit))
    partitions = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": limit} for number in (0, 1)]
    pair.check_alike("Fetch", 12, **fetching(12, unique, NO_ID, partitions))


@pytest.mark.parametrize("isolation", [0, 1])
def test_isolation_levels_without_transactions(pair: BrokerPair, unique: str, isolation: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"x"]))
    body = fetching(12, unique, NO_ID, [{"partition": 0, "fetch_offset": 0}], isolation_level=isolation)
    assert values_of(fetched(pair.check_alike("Fetch", 12, **body))["records"]) == [b"x"]


def test_a_fetch_waits_for_data_and_no_longer(raw: RawConnection, connect: Any, broker: Any, unique: str) -> None:
    create(raw, unique)
    body = fetching(12, unique, NO_ID, [{"partition": 0, "fetch_offset": 0}], max_wait_ms=20_000, min_bytes=1)
    raw.socket.settimeout(0.3)
    raw.send("Fetch", 12, **body)
    with pytest.raises(TimeoutError):
        raw.receive_frame()
    raw.socket.settimeout(10)
    connect(broker).request("Produce", 9, **producing(unique, batch([b"at last"])))
    assert values_of(fetched(raw.receive("Fetch", 12))["records"]) == [b"at last"]


def test_a_fetch_waits_for_enough_data(raw: RawConnection, connect: Any, broker: Any, unique: str) -> None:
    create(raw, unique)
    body = fetching(12, unique, NO_ID, [{"partition": 0, "fetch_offset": 0}], max_wait_ms=20_000, min_bytes=160)
    raw.send("Fetch", 12, **body)
    other = connect(broker)
    for number in range(3):
        other.request("Produce", 9, **producing(unique, batch([b"%d" % number])))
    # Two batches are 138 bytes, three are enough.
    assert values_of(fetched(raw.receive("Fetch", 12))["records"]) == [b"0", b"1", b"2"]


def test_a_fetch_without_data_ends_with_its_time(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    body = fetching(12, unique, NO_ID, [{"partition": 0, "fetch_offset": 0}], max_wait_ms=200, min_bytes=1)
    assert not fetched(pair.check_alike("Fetch", 12, **body))["records"]


def listing(topic: str, timestamp: int, *, partition: int = 0, **more: Any) -> Json:
    partitions = [{"partition_index": partition, "timestamp": timestamp, **more}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.spec("C1")
def test_offsets_are_listed_in_every_version(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    for timestamp in (-1, -2, TIMESTAMP):
        pair.check_alike("ListOffsets", version, **listing(unique, timestamp))
    for step in (0, 1000, 500, 3000):
        produce(pair, unique, batch([b"a", b"b"], timestamp=TIMESTAMP + step))
    special = [-1, -2, *([-3] if version >= 7 else []), *([-4] if version >= 8 else [])]
    times = [TIMESTAMP + step for step in (-1, 0, 1, 500, 501, 1000, 1001, 2999, 3000, 3001)]
    for timestamp in special + times:
        pair.check_alike("ListOffsets", version, **listing(unique, timestamp))


@pytest.mark.parametrize("version", range(1, 10))
def test_special_timestamps_that_a_version_does_not_know(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"a"]))
    for timestamp in (-3, -4, -5, -6, -100):
        pair.check_alike("ListOffsets", version, **listing(unique, timestamp))


@pytest.mark.parametrize("version", [0])
def test_offsets_in_the_oldest_version(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"a"]))
    for timestamp in (-1, -2):
        for count in (1, 2):
            pair.check_alike("ListOffsets", version, **listing(unique, timestamp, max_num_offsets=count))


@pytest.mark.parametrize("version", [1, 4, 9])
def test_offsets_of_nowhere(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    for topic, partition in ((unique, 3), (unique + "-none", 0)):
        ours = pair.check_alike("ListOffsets", version, **listing(topic, -1, partition=partition))
        assert ours["topics"][0]["partitions"][0]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("epoch", [-1, 0, 3, -4])
def test_offsets_with_an_epoch(pair: BrokerPair, unique: str, epoch: int) -> None:
    pair.create_topic(unique)
    pair.check_alike("ListOffsets", 7, **listing(unique, -1, current_leader_epoch=epoch))


def test_the_same_partition_listed_twice(pair: BrokerPair, unique: str) -> None:
    pair.create_topic(unique)
    body = listing(unique, -1)
    body["topics"][0]["partitions"] *= 2
    pair.check_alike("ListOffsets", 7, **body)


@pytest.mark.parametrize("version", range(5))
def test_the_end_of_an_epoch(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    produce(pair, unique, batch([b"a", b"b"]))
    for partition, epoch in ((0, 0), (0, 1), (0, -1), (5, 0)):
        one = {"partition": partition, "leader_epoch": epoch}
        body: Json = {"topics": [{"topic": unique, "partitions": [one]}]}
        if version >= 3:
            body["replica_id"] = -1
        pair.check_alike("OffsetForLeaderEpoch", version, **body)


@pytest.mark.parametrize("current", [-1, 0, 5, -4])
def test_the_end_of_an_epoch_for_a_stale_client(pair: BrokerPair, unique: str, current: int) -> None:
    pair.create_topic(unique)
    one = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": current}
    pair.check_alike("OffsetForLeaderEpoch", 4, replica_id=-1, topics=[{"topic": unique, "partitions": [one]}])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.spec("L4")
def test_records_are_deleted(pair: BrokerPair, unique: str, version: int) -> None:
    pair.create_topic(unique)
    for _ in range(3):
        produce(pair, unique, batch([b"a", b"b"]))
    for partition, offset in ((0, 3), (0, 1), (0, 99), (0, -2), (4, 0), (0, -1)):
        one = {"name": unique, "partitions": [{"partition_index": partition, "offset": offset}]}
        pair.check_alike("DeleteRecords", version, topics=[one], timeout_ms=20_000)
        pair.check_alike("ListOffsets", 7, **listing(unique, -2))
        check_fetch(pair, 12, unique, offset=3)
        check_fetch(pair, 12, unique, offset=1)


def test_records_of_an_unknown_topic_are_not_deleted(pair: BrokerPair, unique: str) -> None:
    one = {"name": unique, "partitions": [{"partition_index": 0, "offset": 0}]}
    pair.check_alike("DeleteRecords", 2, topics=[one], timeout_ms=20_000)
