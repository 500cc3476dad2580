"""Message sets and the conversions to and from them against Apache Kafka's classes.

`message_sets.txt` is what `MessageSets.java write` prints; `OTTLA_RECORD=1 ./run test tests/golden/records` records it
again.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from ottla.records.batch import MAGIC_AT, TimestampType, parse_batch_header, patch_batch
from ottla.records.compression import Compression
from ottla.records.errors import UnsupportedCompressionError
from ottla.records.message_set import (
    check_message_crc,
    decode_message,
    encode_messages,
    parse_message_header,
)
from ottla.records.record import Record, decode_batch
from ottla.storage.down_conversion import down_convert
from ottla.storage.rewriting import rewrite
from ottla.storage.validation import stamp
from support.java import java_command
from support.processes import run_tool
from support.storage_logs import log_config

PROGRAM = Path(__file__).with_name("MessageSets.java")
RECORDED = Path(__file__).with_name("message_sets.txt")
T = 1_700_000_000_000
LIMIT = 1 << 20
#: Only these come out byte for byte as Java's: the others compress with another library.
SAME_BYTES = {"none"}
HEADERS = (("trace", b"1"), ("größe", None))


@cache
def recorded() -> dict[str, bytes]:
    lines = (line.split(" ") for line in RECORDED.read_text().splitlines())
    return {name: bytes.fromhex(content) for name, content in lines}


def named(prefix: str) -> list[str]:
    return [name for name in recorded() if name.startswith(prefix)]


def expected(name: str, magic: int | None = None) -> list[Record]:
    """The records that `MessageSets.java` puts into a set of this name (`magic-codec-type-variant`)."""
    own_magic, _, kind, variant = name.split("-")
    magic = int(own_magic) if magic is None else magic
    records = []
    for i, offset in enumerate((5, 6, 9)):
        key: bytes | None = b"key-%d" % i
        value: bytes | None = b"value " * (i + 1)
        if variant == "nullkey" or (variant == "mixed" and i == 1):
            key = None
        if variant == "nullvalue" or (variant == "mixed" and i == 2):
            value = None
        if variant == "empty":
            key, value = b"", b""
        timestamp = T + 99 if kind == "append" else T + 1000 - 10 * i
        if magic == 0 or own_magic == "0" or (variant == "notime" and kind == "create"):
            timestamp = -1
        headers = HEADERS if variant == "headers" and magic == 2 else ()
        records.append(Record(offset, timestamp, key, value, headers))
    return records


def decoded(data: bytes) -> list[Record]:
    """All records of a set or batch, checksums checked."""
    if data[MAGIC_AT] == 2:
        return decode_batch(data, parse_batch_header(data))
    records = []
    position = 0
    while position < len(data):
        header = parse_message_header(data, position)
        assert check_message_crc(data, header)
        records += decode_message(data, header, LIMIT)
        position = header.end_position
    return records


@pytest.mark.spec("L7")
@pytest.mark.parametrize("name", named("set-"))
def test_we_read_kafkas_sets(name: str) -> None:
    assert decoded(recorded()[name]) == expected(name.removeprefix("set-"))


@pytest.mark.spec("L7")
@pytest.mark.parametrize("name", named("set-0-") + named("set-1-"))
def test_our_sets_are_kafkas(name: str) -> None:
    magic, codec, kind, variant = name.removeprefix("set-").split("-")
    append = kind == "append"
    records = expected(f"{magic}-{codec}-create-{variant}")
    ours = encode_messages(
        records,
        int(magic),
        compression=Compression[codec.upper()],
        timestamp_type=TimestampType.LOG_APPEND_TIME if append else TimestampType.CREATE_TIME,
        log_append_time_ms=T + 99 if append else -1,
    )
    if codec in SAME_BYTES:
        assert ours == recorded()[name]
    assert decoded(ours) == expected(name.removeprefix("set-"))


@pytest.mark.spec("L7")
@pytest.mark.parametrize("name", named("down-"))
def test_down_conversion_is_kafkas(name: str) -> None:
    source, _, rest = name.removeprefix("down-").partition("-to-")
    magic, first_offset = int(rest[0]), int(rest.rpartition("-")[2])
    data = memoryview(recorded()[f"set-{source}"])
    ours = b"".join(down_convert(one, magic, first_offset) for one in split(data))
    theirs = recorded()[name]
    if source.split("-")[1] in SAME_BYTES:
        assert ours == theirs
    assert decoded(ours) == decoded(theirs)
    assert [(one[16], one[17]) for one in split(memoryview(ours))] == [
        (one[16], one[17]) for one in split(memoryview(theirs))
    ]


def split(data: memoryview) -> list[memoryview]:
    found = []
    while data:
        length = int.from_bytes(data[8:12], "big") + 12
        found.append(data[:length])
        data = data[length:]
    return found


@pytest.mark.spec("L7")
@pytest.mark.parametrize("name", named("up-"))
def test_up_conversion_is_kafkas(name: str) -> None:
    source, _, kind = name.removeprefix("up-").partition("-to-")
    append = kind == "append"
    config = log_config(message_timestamp_type="LogAppendTime" if append else "CreateTime")
    ours = rewrite(memoryview(recorded()[f"set-{source}"]), config, T + 5000, "t-0")
    assert isinstance(ours, bytearray)
    header = parse_batch_header(ours)
    patch_batch(ours, 0, 100, 9)
    if append:
        stamp(memoryview(ours), header, True, T + 5000)
    theirs = recorded()[name]
    if source.split("-")[1] in SAME_BYTES:
        assert bytes(ours) == theirs
    assert decoded(bytes(ours)) == decoded(theirs)
    assert bytes(ours[21:61]) == theirs[21:61]


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_has_no_place_in_old_formats(magic: int) -> None:
    with pytest.raises(UnsupportedCompressionError):
        down_convert(memoryview(recorded()["set-2-zstd-create-plain"]), magic, 0)


def oracle(*arguments: str, stdin: str = "") -> list[str]:
    return run_tool(java_command(str(PROGRAM), *arguments), stdin=stdin).stdout.splitlines()


@pytest.mark.needs_kafka
def test_the_recorded_bytes_are_still_kafkas() -> None:
    lines = oracle("write")
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text("".join(f"{line}\n" for line in lines))
    told = dict(line.split(" ") for line in lines)
    assert {name: bytes.fromhex(content) for name, content in told.items()} == recorded()


@pytest.mark.needs_kafka
@pytest.mark.spec("L7")
def test_kafka_reads_what_we_write() -> None:
    sets = [
        encode_messages(
            [Record(50 + 3 * i, T + i, None if i % 3 else b"k", b"v" * (i % 2000)) for i in range(count)],
            magic,
            compression=codec,
            timestamp_type=kind,
            log_append_time_ms=T + 9,
        )
        for count in (1, 300)
        for magic in (0, 1)
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
        for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
    ]
    assert oracle("read", stdin="\n".join(one.hex() for one in sets)) == [as_kafka_prints(one) for one in sets]


def as_kafka_prints(data: bytes) -> str:
    kinds = {
        TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
        TimestampType.CREATE_TIME: "CreateTime",
        TimestampType.LOG_APPEND_TIME: "LogAppendTime",
    }
    told = []
    for one in split(memoryview(data)):
        header = parse_message_header(one)
        told.append(
            f"set {header.magic} {header.offset} {header.compression.name.lower()} {kinds[header.timestamp_type]} "
            f"{header.timestamp}"
        )
        for record in decode_message(one, header, 1 << 24):
            key = "-" if record.key is None else f"k{record.key.hex()}"
            value = "-" if record.value is None else f"v{record.value.hex()}"
            told[-1] += f";{record.offset} {record.timestamp} {key} {value}"
    return "".join(f"{one}|" for one in told)
