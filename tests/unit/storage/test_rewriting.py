"""What is appended in place of message sets, and of batches compressed otherwise than the topic wants."""

from __future__ import annotations

import random

import pytest

from ottla.records.batch import LOG_APPEND_TIME_FLAG, check_crc, frame_batch, parse_batch_header
from ottla.records.compression import Compression
from ottla.records.errors import BatchError
from ottla.records.message_set import encode_messages
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.storage.results import AppendRefusal
from ottla.storage.rewriting import SMALL_BYTES, is_small, needs_rewriting, rewrite
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, log_config, records

CODECS = list(Compression)
TYPES = {
    Compression.NONE: "uncompressed",
    Compression.GZIP: "gzip",
    Compression.SNAPPY: "snappy",
    Compression.LZ4: "lz4",
    Compression.ZSTD: "zstd",
}


def rewritten(data: bytes, now_ms: int = NOW_MS, **settings: object) -> bytearray:
    outcome = rewrite(memoryview(data), log_config(**settings), now_ms, "orders-0")
    assert isinstance(outcome, bytearray), outcome
    header = parse_batch_header(outcome)
    assert check_crc(outcome, header)
    assert header.length == len(outcome)
    return outcome


def refused(data: bytes, **settings: object) -> AppendRefusal:
    outcome = rewrite(memoryview(data), log_config(**settings), NOW_MS, "orders-0")
    assert isinstance(outcome, AppendRefusal), outcome
    return outcome


@pytest.mark.spec("L7")
@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompression_changes_nothing_but_the_compression(source: Compression, target: Compression) -> None:
    headers = (("h", b"1"), ("n", None))
    sent = [*records(50, size=100), Record(50, NOW_MS - 5, None, None, headers)]
    data = encode_batch(
        sent, compression=source, producer_id=7, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    out = rewritten(data, compression_type=TYPES[target])
    before, after = parse_batch_header(data), parse_batch_header(out)
    assert decode_batch(out, after) == sent
    assert after.compression == target
    for name in ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "max_timestamp", "last_offset"):
        assert getattr(after, name) == getattr(before, name), name
    assert needs_rewriting(memoryview(data), log_config(compression_type=TYPES[target])) == (source != target)
    assert not needs_rewriting(memoryview(data), log_config())


def test_levels_are_those_of_the_topic() -> None:
    rng = random.Random(4)
    words = [bytes(rng.choices(b"abcdefgh", k=6)) for _ in range(200)]
    sent = [Record(i, NOW_MS, None, b" ".join(rng.choices(words, k=300))) for i in range(60)]
    data = encode_batch(sent)
    for codec, low, high in (("gzip", 1, 9), ("zstd", 1, 19)):
        sizes = [
            len(rewritten(data, **{"compression_type": codec, f"compression_{codec}_level": level}))
            for level in (low, high)
        ]
        assert sizes[1] < sizes[0]


def test_offsets_that_do_not_count_from_zero_are_put_right() -> None:
    sent = [Record(0, NOW_MS, b"a", b"1"), Record(3, NOW_MS + 5, b"b", b"2")]
    data = bytearray(encode_batch(sent, keep_offsets=True))
    header = parse_batch_header(data)
    header.last_offset_delta = 1
    payload = memoryview(data)[61:]
    out = rewritten(frame_batch(payload, header), compression_type="gzip")
    assert [record.offset for record in decode_batch(out, parse_batch_header(out))] == [0, 1]


def test_the_header_reports_the_newest_record_whatever_it_said() -> None:
    data = bytearray(encode_batch(records(3)))
    header = parse_batch_header(data)
    header.max_timestamp = NOW_MS + 999
    out = rewritten(frame_batch(memoryview(data)[61:], header), compression_type="lz4")
    assert parse_batch_header(out).max_timestamp == NOW_MS + 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[:4])
def test_messages_become_one_batch(magic: int, codec: Compression) -> None:
    sent = [Record(3 * i, NOW_MS + i, b"k", b"v%d" % i) for i in range(5)]
    out = rewritten(encode_messages(sent, magic, compression=codec))
    header = parse_batch_header(out)
    assert header.compression == codec
    found = decode_batch(out, header)
    assert [record.offset for record in found] == [0, 1, 2, 3, 4]
    assert [record.value for record in found] == [record.value for record in sent]
    assert {record.timestamp for record in found} == ({-1} if magic == 0 else {NOW_MS + i for i in range(5)})


def test_messages_take_the_topics_compression() -> None:
    out = rewritten(encode_messages(records(5), 1), compression_type="zstd")
    assert parse_batch_header(out).compression == Compression.ZSTD


def test_a_message_that_is_cut_off_is_left_out() -> None:
    data = encode_messages(records(2), 1)
    out = rewritten(data[:-1])
    assert len(decode_batch(out, parse_batch_header(out))) == 1
    one = encode_messages(records(1), 1)
    for length in (0, 5, 16, len(one) - 1):
        assert rewrite(memoryview(one[:length]), log_config(), NOW_MS, "orders-0") is None


@pytest.mark.parametrize(
    ("data", "settings", "error"),
    [
        (encode_messages(records(1), 1)[:-1] + b"?", {}, ErrorCode.CORRUPT_MESSAGE),
        (b"\0" * 8 + b"\0\0\0\x0d" + bytes(30), {}, ErrorCode.CORRUPT_MESSAGE),
        (encode_messages(records(1), 0) + encode_messages(records(1), 1), {}, ErrorCode.INVALID_RECORD),
        (encode_messages(records(1), 1) + encode_batch(records(1)), {}, ErrorCode.INVALID_RECORD),
        (encode_messages(records(2), 1, compression=Compression.GZIP) * 2, {}, ErrorCode.INVALID_RECORD),
        (encode_messages(records(1), 1), {"max_message_bytes": 20}, ErrorCode.MESSAGE_TOO_LARGE),
        (encode_messages(records(30), 0), {"max_message_bytes": 100}, ErrorCode.MESSAGE_TOO_LARGE),
        (  # also where recompression would make it small enough
            encode_messages([Record(0, NOW_MS, None, bytes(1000))], 1),
            {"max_message_bytes": 500, "compression_type": "gzip"},
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        (
            encode_messages([Record(0, NOW_MS, None, b"v")], 1),
            {"cleanup_policy": "compact"},
            ErrorCode.INVALID_RECORD,
        ),
        (
            encode_messages([Record(0, NOW_MS - 100, b"k", b"v")], 1),
            {"message_timestamp_before_max_ms": 99},
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (
            encode_messages([Record(0, NOW_MS + 100, b"k", b"v")], 1),
            {"message_timestamp_after_max_ms": 99},
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ],
)
def test_refusals(data: bytes, settings: dict[str, object], error: ErrorCode) -> None:
    assert refused(data, **settings).error == error


@pytest.mark.parametrize("timestamp", [-2, -(2**62)])
def test_times_that_a_batch_cannot_hold(timestamp: int) -> None:
    sent = [Record(0, 5, b"k", b"v"), Record(1, timestamp, b"k", b"v")]
    for data in (encode_messages(sent, 1), encode_batch(sent)):
        assert refused(data, compression_type="gzip").error == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("timestamps", "fits"), [((-1, 2**63 - 2), True), ((-1, 2**63 - 1), False), ((2**62, 2**62), True)]
)
def test_the_longest_time_within_a_batch(timestamps: tuple[int, int], fits: bool) -> None:
    sent = [Record(at, timestamp, b"k", b"v") for at, timestamp in enumerate(timestamps)]
    outcome = rewrite(memoryview(encode_messages(sent, 1)), log_config(), NOW_MS, "orders-0")
    assert isinstance(outcome, bytearray) == fits


def test_a_batch_with_a_damaged_length_is_refused_and_not_left_out() -> None:
    data = bytearray(encode_batch(records(2)))
    data[8:12] = (10).to_bytes(4, "big")
    assert refused(bytes(data), compression_type="gzip").error == ErrorCode.CORRUPT_MESSAGE


def test_records_without_keys_are_reported_one_by_one() -> None:
    sent = [Record(i, NOW_MS, None if i % 2 else b"k", b"v") for i in range(4)]
    refusal = refused(encode_batch(sent), compression_type="gzip", cleanup_policy="compact")
    assert [index for index, _ in refusal.record_errors] == [1, 3]


def test_stamps_are_the_brokers_to_set() -> None:
    data = bytearray(encode_batch(records(2)))
    header = parse_batch_header(data)
    header.attributes |= LOG_APPEND_TIME_FLAG
    stamped = frame_batch(memoryview(data)[61:], header)
    settings = {"compression_type": "gzip", "message_timestamp_type": "LogAppendTime"}
    assert refused(stamped, **settings).error == ErrorCode.INVALID_TIMESTAMP
    out = rewritten(stamped, compression_type="gzip")
    header = parse_batch_header(out)
    assert not header.attributes & LOG_APPEND_TIME_FLAG
    assert {record.timestamp for record in decode_batch(out, header)} == {NOW_MS + 1}


def test_what_is_worth_a_thread() -> None:
    small, large = encode_messages(records(3), 1), encode_messages(records(3, size=SMALL_BYTES), 1)
    packed = encode_messages(records(3), 1, compression=Compression.GZIP)
    assert is_small(memoryview(small), log_config())
    assert not is_small(memoryview(large), log_config())
    assert not is_small(memoryview(packed), log_config())
    assert not is_small(memoryview(small), log_config(compression_type="zstd"))


def test_damage_is_a_refusal_and_never_more() -> None:
    rng = random.Random(7)
    sources = [encode_messages(records(5), magic, compression=codec) for magic in (0, 1) for codec in CODECS[:4]]
    sources.append(encode_batch(records(5)))
    for _ in range(600):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        try:
            outcome = rewrite(memoryview(cut), log_config(compression_type="gzip"), NOW_MS, "orders-0")
        except BatchError as error:  # pragma: no cover
            raise AssertionError("a refusal is a value") from error
        assert outcome is None or isinstance(outcome, bytearray | AppendRefusal)


@pytest.mark.parametrize(
    ("settings", "looked_into"),
    [
        ({}, False),
        ({"cleanup_policy": "compact"}, True),
        ({"message_timestamp_before_max_ms": 10**12}, True),
        ({"message_timestamp_after_max_ms": 10**12}, True),
        ({"message_timestamp_type": "LogAppendTime"}, False),
    ],
)
def test_settings_that_ask_for_a_look_at_each_record(settings: dict[str, object], looked_into: bool) -> None:
    data = encode_batch(records(3), compression=Compression.GZIP)
    assert needs_rewriting(memoryview(data), log_config(**settings)) == looked_into
    assert log_config(**settings).reads_records or not looked_into
    assert rewritten(data, **settings) == data


def test_several_batches_are_refused_and_a_cut_off_one_is_left_out() -> None:
    one = encode_batch(records(3))
    assert refused(one + one, cleanup_policy="compact").bad_request
    assert rewritten(one + one[:-1], cleanup_policy="compact") == one


def test_a_header_that_lies_about_the_newest_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the records are looked at by compiled code, it is set right, as in Apache Kafka.
    monkeypatch.setattr("ottla.records.walk.COMPILED", False)
    data = bytearray(encode_batch(records(3)))
    header = parse_batch_header(data)
    header.max_timestamp = NOW_MS + 10**9
    lying = frame_batch(memoryview(data)[61:], header)
    assert refused(lying, message_timestamp_after_max_ms=1000).error == ErrorCode.INVALID_TIMESTAMP
