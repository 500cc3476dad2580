"""The records of a profile, made many at a time from prepared rows; and their ids, found again when they are read.

A value is JSON of a fixed length that begins with its id: the producer's number and the record's sequence number. All
rows are prepared once; a chunk gets its ids and its time, and no Python runs for a single record. numpy and pyarrow are
imported where they are used.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ottla.profiles.workload import ProfileError, Workload

if TYPE_CHECKING:
    import numpy
    import pyarrow

    Numbers = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
    Octets = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]

CHUNK_ROWS: Final = 16_384
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""A chunk has fewer rows where they are large."""
PREPARED_CHUNKS: Final = 4
"""Chunks come from this many in turn, which differ in accounts, amounts, users, pages and text."""
PRODUCER_DIGITS: Final = 4
SEQUENCE_DIGITS: Final = 12
SEQUENCES: Final = 10**SEQUENCE_DIGITS
ID_DIGITS: Final = PRODUCER_DIGITS + SEQUENCE_DIGITS
TIME_DIGITS: Final = 13
ACCOUNTS: Final = 1_000_000
PAGES: Final = 10_000
MOST_CENTS: Final = 1_000_000
#: Pages are chosen with this exponent of a Zipf distribution.
PAGE_SKEW: Final = 1.2

_START: Final = b'{"id":"'
_GROUP: Final = 4
_TEMPLATES: Final = {
    True: b'{"id":"%s","at":%s,"account":"@@@@@@@@@@@@","to":"############","amount":"$$$$$$$$","text":"'
    % (b"0" * ID_DIGITS, b"1" * TIME_DIGITS),
    False: b'{"id":"%s","at":%s,"user":"@@@@@@@@@@@@","page":"/####","text":"' % (b"0" * ID_DIGITS, b"1" * TIME_DIGITS),
}
_END: Final = b'"}'
_TIME_AT: Final = len(_START) + ID_DIGITS + len(b'","at":')
_ACCOUNT_DIGITS: Final = 12


def least_record_bytes(workload: Workload) -> int:
    """The bytes of a value without any text in it."""
    return len(_TEMPLATES[workload.has_keys]) + len(_END)


class RecordMaker:
    """Makes the records of one producer. Raises ProfileError for a size that its records do not fit in."""

    def __init__(self, workload: Workload, producer: int, record_bytes: int, *, chunk_rows: int = CHUNK_ROWS) -> None:
        import numpy

        least = least_record_bytes(workload)
        if record_bytes < least:
            raise ProfileError(f"a record of {workload.name} has {least} bytes at least, not {record_bytes}")
        self.rows = max(1, min(chunk_rows, CHUNK_BYTES // record_bytes))
        self._producer = producer
        self._size = record_bytes
        self._groups = _digit_groups()
        random = numpy.random.default_rng(producer)
        self._prepared = [self._prepare(workload, random) for _ in range(PREPARED_CHUNKS)]
        self._offsets = numpy.arange(self.rows + 1, dtype=numpy.int64) * record_bytes
        self._key_offsets = numpy.arange(self.rows + 1, dtype=numpy.int64) * _ACCOUNT_DIGITS
        self._chunks = 0

    def _prepare(self, workload: Workload, random: numpy.random.Generator) -> tuple[Octets, Octets | None]:
        """Rows with everything but id and time in them, and their keys."""
        import numpy

        template = _TEMPLATES[workload.has_keys]
        rows = numpy.empty((self.rows, self._size), numpy.uint8)
        rows[:, : len(template)] = numpy.frombuffer(template, numpy.uint8)
        rows[:, len(template) : -len(_END)] = random.integers(
            ord("a"), ord("z") + 1, (self.rows, self._size - len(template) - len(_END)), numpy.uint8
        )
        rows[:, -len(_END) :] = numpy.frombuffer(_END, numpy.uint8)
        at = template.index(b"@")
        self._write(rows, at, _ACCOUNT_DIGITS, random.integers(0, ACCOUNTS, self.rows))
        other = template.index(b"#")
        if not workload.has_keys:
            self._write(rows, other, _GROUP, random.zipf(PAGE_SKEW, self.rows) % PAGES)
            return rows, None
        self._write(rows, other, _ACCOUNT_DIGITS, random.integers(0, ACCOUNTS, self.rows))
        self._write(rows, template.index(b"$"), 2 * _GROUP, random.integers(0, MOST_CENTS, self.rows))
        return rows, numpy.ascontiguousarray(rows[:, at : at + _ACCOUNT_DIGITS])

    def _write(self, rows: Octets, at: int, digits: int, numbers: Numbers) -> None:
        """Write numbers with `digits` digits, a multiple of four, from column `at` on."""
        for place in range(at + digits - _GROUP, at - 1, -_GROUP):
            rows[:, place : place + _GROUP] = self._groups[numbers % len(self._groups)]
            numbers = numbers // len(self._groups)

    def chunk(self, first: int, count: int, now_ms: int) -> pyarrow.RecordBatch:
        """The records with the sequence numbers from `first` on, `rows` of them at most; valid until `rows` are reused.

        The rows are used again after `PREPARED_CHUNKS` calls.
        """
        import numpy
        import pyarrow

        rows, keys = self._prepared[self._chunks % PREPARED_CHUNKS]
        self._chunks += 1
        numbers = numpy.arange(first, first + count, dtype=numpy.int64) + self._producer * SEQUENCES
        self._write(rows[:count], len(_START), ID_DIGITS, numbers)
        rows[:count, _TIME_AT : _TIME_AT + TIME_DIGITS] = numpy.frombuffer(b"%013d" % now_ms, numpy.uint8)
        columns = {"value": _binary(rows, self._offsets, count)}
        if keys is not None:
            columns["key"] = _binary(keys, self._key_offsets, count)
        return pyarrow.record_batch(columns)

    def alone_per_s(self, seconds: float) -> float:
        """Records that a core makes in a second and does nothing with, measured for `seconds` of CPU time."""
        made, began = 0, time.thread_time()
        while (taken_s := time.thread_time() - began) < seconds:
            self.chunk(made, self.rows, 0)
            made += self.rows
        return made / taken_s


def read_ids(values: pyarrow.Array, record_bytes: int) -> tuple[Numbers, Numbers, int]:
    """Producers and sequence numbers of values, in their order, and how many values have no id and are left out."""
    import numpy
    import pyarrow.compute

    is_whole = pyarrow.compute.equal(pyarrow.compute.binary_length(values), record_bytes).fill_null(False)
    whole = pyarrow.compute.sum(is_whole).as_py() or 0
    strange = len(values) - whole
    if strange:
        values = values.filter(is_whole)
    if not whole:
        nothing = numpy.empty(0, numpy.int64)
        return nothing, nothing, strange
    starts = numpy.frombuffer(values.buffers()[1], numpy.int32)
    octets = numpy.frombuffer(
        values.buffers()[2], numpy.uint8, count=whole * record_bytes, offset=int(starts[values.offset])
    ).reshape(whole, record_bytes)
    halves = numpy.ascontiguousarray(octets[:, len(_START) : len(_START) + ID_DIGITS]).view("<u8")
    is_id = (octets[:, : len(_START)] == numpy.frombuffer(_START, numpy.uint8)).all(axis=1) & _are_digits(halves).all(
        axis=1
    )
    numbers = _eight_digits(halves).astype(numpy.int64)
    ids = numbers[:, 0] * 10**8 + numbers[:, 1]
    if not is_id.all():
        strange += int(len(ids) - is_id.sum())
        ids = ids[is_id]
    return ids // SEQUENCES, ids % SEQUENCES, strange


def _binary(octets: Octets, offsets: Numbers, count: int) -> pyarrow.Array:
    """Rows of equal length as a binary column, without a copy."""
    import pyarrow

    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(octets)]
    return pyarrow.LargeBinaryArray.from_buffers(pyarrow.large_binary(), count, buffers)


def _digit_groups() -> Octets:
    """The digits of 0 to 9999."""
    import numpy

    numbers = numpy.arange(10**_GROUP)[:, None] // 10 ** numpy.arange(_GROUP - 1, -1, -1) % 10
    return (numbers + ord("0")).astype(numpy.uint8)


def _are_digits(words: Any) -> Any:
    """Whether all eight bytes of each word are digits."""
    import numpy

    high = numpy.uint64(0xF0F0F0F0F0F0F0F0)
    beyond = (words + numpy.uint64(0x0606060606060606)) & high
    return ((words & high) | (beyond >> numpy.uint64(4))) == numpy.uint64(0x3333333333333333)


def _eight_digits(words: Any) -> Any:
    """The number in each word of eight digits: pairs of digits first, then of pairs, then of fours."""
    import numpy

    word = numpy.uint64
    words = ((words & word(0x0F0F0F0F0F0F0F0F)) * word(10 * 256 + 1)) >> word(8)
    words = ((words & word(0x00FF00FF00FF00FF)) * word(100 * 2**16 + 1)) >> word(16)
    return ((words & word(0x0000FFFF0000FFFF)) * word(10_000 * 2**32 + 1)) >> word(32)
