"""Records as rows of named fields, the JSON of `ottla consume` and `ottla produce`, and records made of such rows.

A row that `record_row` makes with the format `auto`, `text`, `hex` or `base64` makes the same record again, byte for
byte.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ottla.client.errors import InvalidArgumentError
from ottla.client.producer.record import ProducerRecord
from ottla.inspection.batch_rows import timestamp_type_name
from ottla.inspection.texts import TextFormat, field_of, header_rows
from ottla.records.consumed import ConsumerRecord

Row = dict[str, Any]
Bytes = bytes | None

_SUFFIXES: Final = ("", "_hex", "_base64")
_OF_KEY_AND_VALUE: Final = frozenset(name + suffix for name in ("key", "value") for suffix in _SUFFIXES)
#: Where a record was read says nothing of where it goes.
_NOT_WRITTEN: Final = frozenset({"topic", "partition", "offset", "timestamp_type"})
_FIELDS: Final = _OF_KEY_AND_VALUE | _NOT_WRITTEN | {"headers", "timestamp"}
#: Of a value that a message quotes.
_SHOWN_CHARS: Final = 60


def record_place(record: ConsumerRecord[Any, Any]) -> str:
    """The place of a record, for messages: `orders-0 offset 42`."""
    return f"{record.topic}-{record.partition} offset {record.offset}"


def record_row(record: ConsumerRecord[Bytes, Bytes], key_format: TextFormat, value_format: TextFormat) -> Row:
    """Row of a record: where it is, when it was written, headers, key and value.

    Bytes that are not in the requested format stand in `key_hex` or `value_hex`; null is null.
    """
    row: Row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_type": timestamp_type_name(record.timestamp_type),
        "timestamp": record.timestamp,
        "headers": header_rows(record.headers),
    }
    row.update((field_of("key", record.key, key_format), field_of("value", record.value, value_format)))
    return row


def record_of_row(
    topic: str, row: object, *, keep_partition: bool = False, as_json: tuple[bool, bool] = (False, False)
) -> ProducerRecord[Bytes, Bytes]:
    """Record that a row describes: `key`, `value`, `headers`, `timestamp` (ms), each of which may be missing.

    A key or value is text, or JSON that is written as such; `key_hex` and `key_base64` are bytes. `headers` are as in
    `record_row`, or an object of names and texts. Its partition counts with `keep_partition` only. `as_json` says
    whether a text of keys, and of values, is written as JSON, too. Raises InvalidArgumentError that names the field.
    """
    if not isinstance(row, dict):
        raise InvalidArgumentError(f"a row is a JSON object with the fields key and value, not {_shown(row)}")
    unknown = sorted(row.keys() - _FIELDS)
    if unknown:
        raise InvalidArgumentError(
            f"{_shown(unknown[0])} is not a field of a record, which has key, value, headers and timestamp; "
            "--format text sends each line as it is"
        )
    return ProducerRecord(
        topic,
        _bytes_of(row, "value", as_json=as_json[1]),
        _bytes_of(row, "key", as_json=as_json[0]),
        _number(row, "partition") if keep_partition else None,
        _number(row, "timestamp"),
        headers_of(row.get("headers")),
    )


def parse_json(line: bytes, cure: str = "; --format text sends each line as it is") -> Any:
    """Value of a JSON text. Raises InvalidArgumentError, whose message ends with the cure."""
    try:
        return json.loads(
            line, parse_constant=_refuse_constant, parse_float=_exact_float, object_pairs_hook=_without_repetition
        )
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise InvalidArgumentError("not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise InvalidArgumentError(f"not JSON: {error}{cure}") from None


def decoded(text: bytes, encoding: TextFormat) -> bytes:
    """Bytes that a text stands for: itself, hexadecimal or base64. Raises InvalidArgumentError."""
    try:
        if encoding is TextFormat.HEX:
            return bytes.fromhex(text.decode())
        if encoding is TextFormat.BASE64:
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        name = "hexadecimal" if encoding is TextFormat.HEX else "base64"
        raise InvalidArgumentError(f"{_shown(text.decode(errors='replace'))} is not {name}") from None
    return text


def json_of(value: Any) -> str:
    """A value as JSON, in the form of all rows."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bytes_of(row: Mapping[str, Any], name: str, *, as_json: bool = False) -> Bytes:
    present = [name + suffix for suffix in _SUFFIXES if name + suffix in row]
    if len(present) > 1:
        raise InvalidArgumentError(f"{present[0]} and {present[1]} are both there; leave one of them out")
    if not present:
        return None
    value = row[present[0]]
    if value is None:
        return None
    if present[0] != name:
        if not isinstance(value, str):
            raise InvalidArgumentError(f"{present[0]} is text, not {_shown(value)}")
        return decoded(value.encode(errors="replace"), TextFormat(present[0].removeprefix(f"{name}_")))
    text = value if isinstance(value, str) and not as_json else json_of(value)
    return _encoded(text, name)


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name} has half of a character (a lone surrogate), which is not UTF-8") from None


def _number(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    unit = " of milliseconds since 1970" if name == "timestamp" else ""
    raise InvalidArgumentError(f"{name} is a whole number{unit}, not {_shown(value)}")


def headers_of(headers: object) -> list[tuple[str, Bytes]]:
    """Headers of a row: a list as `record_row` makes it, an object of names and texts, or None."""
    if headers is None:
        return []
    if isinstance(headers, dict):
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(each, dict) for each in headers):
        raise InvalidArgumentError(f"headers are a list of objects with key and value, not {_shown(headers)}")
    return [(_header_name(each), _bytes_of(each, "value")) for each in headers]


def _header_name(header: Mapping[str, Any]) -> str:
    name = header.get("key")
    if isinstance(name, str):
        _encoded(name, "the name of a header")
        return name
    raise InvalidArgumentError(f"the key of a header is text, not {_shown(name)}")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return repr(text) if len(text) <= _SHOWN_CHARS else repr(text[:_SHOWN_CHARS]) + "…"


def _exact_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or Decimal(text) != Decimal(repr(number)):
        raise ValueError(f"{text:.60} has more digits than are kept; write the value as text, in quotes")
    return number


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(
            f"{next(name for name in found if [each for each, _ in pairs].count(name) > 1)!r} is there twice"
        )
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
