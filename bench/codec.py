"""What it costs to encode and decode records: ottla's compiled code, the same code as plain Python, and others'.

    ./run bench codec [--quick] [--write]

One core, no broker. See README.md beside this file for what each row means, and RESULTS.md for the last complete run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# The harness that the other benchmarks start brokers with belongs to the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

BATCH_BYTES = 16 * 1024
#: A record has this many bytes of key and value together.
KEY_BYTES, VALUE_BYTES = 16, 84
RECORD_OVERHEAD = 10
FIRST_TIMESTAMP = 1_700_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]
KINDS: tuple[tuple[str, Headers], ...] = (("", ()), (", a header each", (("trace", b"12345678"),)))
ROWS = 65_536
PARTITIONS = 12
NATIVE = tuple(f"ottla.records.{name}_native" for name in ("_walk", "_building", "_keys"))

COMPILED, PLAIN, AIOKAFKA, KAFKA_PYTHON = "ottla", "ottla, plain Python", "aiokafka", "kafka-python"
CONTESTANTS = (COMPILED, PLAIN, AIOKAFKA, KAFKA_PYTHON)

LEGEND = (
    "Million records per second of CPU time on one core, medians; 16 bytes of key and 84 of value, batches of 16 KiB, "
    "uncompressed. What others cannot do is empty."
)

Load = Callable[[], int]


def key_of(number: int) -> bytes:
    """A key that comes once."""
    return b"%016d" % number


def ottla_loads() -> Iterator[tuple[str, Load]]:
    """What ottla can do; each load gives the number of records."""
    import pyarrow

    from ottla.records.building import murmur2, partitions_for_keys, rows_by_partition
    from ottla.records.from_arrow import strings_of

    for what, headers in KINDS:
        yield from ((f"{load}{what}", made) for load, made in decoding_loads(headers))
        yield from ((f"{load}{what}", made) for load, made in encoding_loads(headers))
    strings = strings_of(pyarrow.array([key_of(at) for at in range(ROWS)], pyarrow.binary()))
    keys = [key_of(at) for at in range(1000)]

    def split() -> int:
        rows_by_partition(partitions_for_keys(strings, PARTITIONS), PARTITIONS)
        return ROWS

    def hash_each() -> int:
        for key in keys:
            murmur2(key)
        return len(keys)

    yield "split a column of keys over partitions", split
    yield "murmur2 of a key, key by key", hash_each


def decoding_loads(headers: Headers) -> Iterator[tuple[str, Load]]:
    """Batches to records and columns."""
    from ottla.records.arrow import ArrowRows
    from ottla.records.batch import parse_batch_header
    from ottla.records.consumed import decode_consumed
    from ottla.records.record import decode_batch

    data = one_batch(headers)
    header = parse_batch_header(data)

    def to_arrow() -> int:
        rows = ArrowRows("clicks", 0, 0, 2**62, rows_per_batch=ROWS, include_headers=bool(headers))
        while not rows.full:
            rows.add(data, header)
        return sum(batch.num_rows for batch in rows.take())

    yield "decode to ConsumerRecord", lambda: len(decode_consumed(data, header, "clicks", 0, 0))
    yield "decode to Record", lambda: len(decode_batch(data, header))
    yield "decode to Arrow", to_arrow


def encoding_loads(headers: Headers) -> Iterator[tuple[str, Load]]:
    """Batches from records and columns."""
    import pyarrow

    from ottla.records.building import RecordsBuilder, finish_batch
    from ottla.records.from_arrow import encode_arrow, source_of

    keys, value = [key_of(at) for at in range(ROWS)], bytes(VALUE_BYTES)
    pairs = pyarrow.array([[{"key": name, "value": text} for name, text in headers]] * ROWS, header_type())
    columns = source_of(
        pyarrow.array([value] * ROWS, pyarrow.binary()),
        pyarrow.array(keys, pyarrow.binary()),
        pyarrow.array(range(ROWS), pyarrow.int64()),
        pairs if headers else None,
    )

    def from_append() -> int:
        builder = RecordsBuilder(BATCH_BYTES)
        append, at = builder.append, 0
        while append(FIRST_TIMESTAMP + at, keys[at], value, headers) >= 0:
            at += 1
        finish_batch(builder)
        return at

    def from_arrow() -> int:
        for _ in encode_arrow(columns, BATCH_BYTES):
            pass
        return ROWS

    yield "encode, record by record", from_append
    yield "encode from Arrow", from_arrow


def one_batch(headers: Headers) -> bytes:
    """A full batch."""
    from ottla.records.record import Record, encode_batch

    value = bytes(VALUE_BYTES)
    count = BATCH_BYTES // (KEY_BYTES + VALUE_BYTES + RECORD_OVERHEAD)
    return encode_batch([Record(0, FIRST_TIMESTAMP + at, key_of(at), value, headers) for at in range(count)])


def header_type() -> Any:
    """What Arrow calls a record's headers."""
    import pyarrow

    return pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def other_loads(records: Any) -> Iterator[tuple[str, Load]]:
    """What aiokafka and kafka-python do, whose modules look alike; their decoders give records, not consumers' ones."""
    for what, headers in KINDS:
        yield from ((f"{load}{what}", made) for load, made in other_loads_of(records, headers))


def other_loads_of(records: Any, headers: Headers) -> Iterator[tuple[str, Load]]:
    """The same of one kind of records."""
    data, value, pairs = one_batch(headers), bytes(VALUE_BYTES), list(headers)
    keys = [key_of(at) for at in range(BATCH_BYTES // VALUE_BYTES)]

    def encode() -> int:
        builder = records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_BYTES)
        at = 0
        while builder.append(at, FIRST_TIMESTAMP + at, keys[at], value, pairs) is not None:
            at += 1
        builder.build()
        return at

    yield "decode to Record", lambda: len(list(records.DefaultRecordBatch(bytearray(data))))
    yield "encode, record by record", encode


def loads_of(contestant: str) -> Iterator[tuple[str, Load]]:
    """The loads of one contestant, imported in this process."""
    if contestant == AIOKAFKA:
        from aiokafka.record import default_records

        return other_loads(default_records)
    if contestant == KAFKA_PYTHON:
        from kafka.record import default_records

        return other_loads(default_records)
    if contestant == PLAIN:
        for name in NATIVE:
            sys.modules[name] = None  # type: ignore[assignment]  # which makes the import fail
    return ottla_loads()


def measure(contestant: str, rounds: int, seconds: float) -> dict[str, float]:
    """Million records per CPU second of each load."""
    found: dict[str, float] = {}
    for what, load in loads_of(contestant):
        load()
        rates = []
        for _ in range(rounds):
            begun, records = time.thread_time(), 0
            while (spent := time.thread_time() - begun) < seconds:
                records += load()
            rates.append(records / spent / 1e6)
        found[what] = statistics.median(rates)
    return found


def rows_of(found: dict[str, dict[str, float]]) -> list[Sequence[str]]:
    """The rows of the table, in the order of ottla's loads."""
    return [
        (what, *(f"{found[name][what]:.3g}" if what in found[name] else "" for name in CONTESTANTS))
        for what in found[COMPILED]
    ]


def main() -> int:
    """Measure each contestant in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    parser.add_argument("--write", action="store_true", help="put the table into bench/RESULTS.md")
    parser.add_argument("--measure", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds, seconds = (3, 0.05) if arguments.quick else (9, 0.25)
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, rounds, seconds)))
        return 0
    if arguments.write and arguments.quick:
        parser.error("--write keeps complete runs only")
    # Not before: with them comes what imports ottla's compiled code.
    import machine
    from report import table, write_section

    begun, bystanders = time.monotonic(), machine.Bystanders()
    found = {}
    for name in CONTESTANTS:
        command = [sys.executable, __file__, "--measure", name, *(["--quick"] if arguments.quick else [])]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600).stdout)
    told, now = " ".join(["./run bench codec", *sys.argv[1:]]), datetime.datetime.now(datetime.UTC)
    head = (
        f"`{told}`, {now:%Y-%m-%d %H:%M} UTC, {time.monotonic() - begun:.0f} s, medians of {rounds} rounds. "
        f"{machine.describe()}. Other processes used {bystanders.share():.0%} of the machine."
    )
    text = "\n\n".join((head, LEGEND, table(["Million records/s", *CONTESTANTS], rows_of(found))))
    print(text)
    if arguments.write:
        write_section("bench/codec.py", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
