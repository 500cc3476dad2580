"""Records whose key or value has a text: with pyarrow a column at a time, without it record by record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import InvalidArgumentError, RecordTimestampError
from ottla.client.sync import Consumer
from ottla.ops.record_decoding import RecordDecoder
from ottla.ops.topic_reading import Records
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.records.headers import Headers

if TYPE_CHECKING:
    import pyarrow

Bytes = bytes | None

#: Rows that are searched at a time.
SEARCHED_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A thing that is searched for: bytes, or a regular expression of text, in keys, in values, or in both."""

    what: bytes | re.Pattern[str]
    in_keys: bool = True
    in_values: bool = True

    def matches(self, record: ConsumerRecord[Bytes, Bytes]) -> bool:
        """Whether the record has it."""
        places = (record.key if self.in_keys else None, record.value if self.in_values else None)
        what = self.what
        if isinstance(what, bytes):
            return any(each is not None and what in each for each in places)
        return any(
            each is not None and what.search(each.decode(errors="surrogateescape")) is not None for each in places
        )


def pattern_of(text: str) -> re.Pattern[str]:
    """Regular expression of text, in which bytes that are not UTF-8 are surrogates.

    Raises InvalidArgumentError with the place where it is wrong.
    """
    try:
        return re.compile(text)
    except re.error as problem:
        at = "" if problem.pos is None else f" at character {problem.pos + 1}"
        raise InvalidArgumentError(f"{text} is not a regular expression{at}: {problem.msg}") from None
    except OverflowError as problem:
        raise InvalidArgumentError(f"{text} is not a regular expression: {problem}") from None
    except RecursionError:
        raise InvalidArgumentError("the regular expression is nested too deeply") from None


def searching_poll(
    consumer: Consumer[Bytes, Bytes], wanted: Wanted, decoder: RecordDecoder | None = None
) -> Callable[[int], Records]:
    """Make a function that polls, and returns only records that have what is wanted, decoded."""

    def poll(timeout_ms: int) -> Records:
        records = consumer.poll(timeout_ms)
        return list(filter(wanted.matches, records if decoder is None else decoder.decoded(records)))

    what = wanted.what
    if not isinstance(what, bytes) or decoder is not None or find_spec("pyarrow") is None:
        return poll

    def poll_columns(timeout_ms: int) -> Records:
        try:
            table = consumer.poll_arrow(timeout_ms, SEARCHED_ROWS, include_headers=True)
        except RecordTimestampError:  # Arrow cannot hold the time of the next record
            return poll(timeout_ms)
        return _found(table, what, [name for name, is_in in _places(wanted) if is_in])

    return poll_columns


def _places(wanted: Wanted) -> tuple[tuple[str, bool], ...]:
    return ("key", wanted.in_keys), ("value", wanted.in_values)


def _found(table: pyarrow.Table, what: bytes, columns: list[str]) -> Records:
    from pyarrow import compute, int64

    if not table.num_rows:
        return []
    # Of null it is not known whether it matches; the filter takes only what is known to.
    has_it = reduce(compute.or_kleene, [compute.match_substring(table[name], what) for name in columns])
    found = table.filter(has_it)
    times = found["timestamp"].cast(int64()).to_pylist()
    rows = found.drop_columns(["timestamp"]).to_pylist()  # Python has no datetime after the year 9999
    return [_record(row, time_us // 1000) for row, time_us in zip(rows, times, strict=True)]


def _record(row: dict[str, Any], timestamp: int) -> ConsumerRecord[Bytes, Bytes]:
    key, value = row["key"], row["value"]
    headers = Headers([(each["key"], each["value"]) for each in row["headers"] or ()])
    sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
    where = (row["topic"], row["partition"], row["offset"])
    return ConsumerRecord(*where, timestamp, TimestampType(row["timestampType"]), key, value, headers, -1, *sizes)
