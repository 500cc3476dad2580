"""Records as rows, and back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import InvalidArgumentError
from ottla.inspection.texts import TextFormat
from ottla.ops.record_rows import parse_json, record_of_row, record_row
from ottla.records.batch import TimestampType
from ottla.records.consumed import ConsumerRecord
from ottla.records.headers import Headers

pytestmark = pytest.mark.spec("U2")

Bytes = bytes | None
some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)


def consumed(key: Bytes, value: Bytes, headers: list[tuple[str, Bytes]] | None = None) -> ConsumerRecord[Bytes, Bytes]:
    sizes = [-1 if each is None else len(each) for each in (key, value)]
    return ConsumerRecord("t", 2, 7, 1_000, TimestampType.CREATE_TIME, key, value, Headers(headers or []), 0, *sizes)


@given(some_bytes, some_bytes, some_headers, st.sampled_from([TextFormat.AUTO, TextFormat.BASE64]))
def test_a_row_makes_the_same_record_again(
    key: Bytes, value: Bytes, headers: list[tuple[str, Bytes]], wanted: TextFormat
) -> None:
    row = json.dumps(record_row(consumed(key, value, headers), wanted, wanted))
    again = record_of_row("u", parse_json(row.encode()), keep_partition=True)
    assert again == ("u", value, key, 2, 1_000, headers)


def test_null_and_empty_differ() -> None:
    row = record_row(consumed(None, b""), TextFormat.AUTO, TextFormat.AUTO)
    assert (row["key"], row["value"]) == (None, "")
    assert record_of_row("t", {})[1:4] == (None, None, None)


def test_values_of_json_are_written_as_json() -> None:
    record = record_of_row("t", {"key": 5, "value": {"name": "Åse", "n": [1, None]}, "headers": {"a": "b", "c": None}})
    assert (record.key, record.value) == (b"5", '{"name":"Åse","n":[1,null]}'.encode())
    assert record.headers == [("a", b"b"), ("c", None)]
    assert record.partition is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "a row is a JSON object with the fields key and value, not '[1]'"),
        ({"kye": "x"}, "'kye' is not a field of a record"),
        ({"key": "x", "key_hex": "00"}, "key and key_hex are both there"),
        ({"value_hex": "0g"}, "'0g' is not hexadecimal"),
        ({"value_hex": 1}, "value_hex is text, not '1'"),
        ({"value_base64": "%"}, "'%' is not base64"),
        ({"value": "\ud800"}, "value has half of a character"),
        ({"timestamp": 1.5}, "timestamp is a whole number of milliseconds since 1970, not '1.5'"),
        ({"timestamp": True}, "timestamp is a whole number"),
        ({"headers": "x"}, "headers are a list of objects with key and value, not 'x'"),
        ({"headers": {"\ud800": "x"}}, "the name of a header has half of a character"),
        ({"headers": [{"key": None}]}, "the key of a header is text, not 'null'"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(row: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        record_of_row("t", row, keep_partition=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"value": {"n": 1e400}}', "1e400 has more digits than are kept"),
        (b'{"value": 123456789012345678.90}', "has more digits than are kept"),
        (b'{"value": "a", "value": "b"}', "'value' is there twice"),
    ],
)
def test_what_json_would_change_is_refused(line: bytes, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_json(line)
    assert parse_json(b"[1.10, 1e3, 12345678901234567890]") == [1.1, 1000.0, 12345678901234567890]


@pytest.mark.parametrize("line", [b"{", b"", b'{"value": NaN}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        parse_json(line)
