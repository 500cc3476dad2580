"""Records made of named fields, the rows of CSV and Parquet files, and rows of CSV made of records."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ottla.client.errors import InvalidArgumentError
from ottla.client.producer.record import ProducerRecord
from ottla.inspection.batch_rows import timestamp_type_name
from ottla.inspection.texts import TextFormat, header_rows
from ottla.ops.record_lines import MOST_LINE_BYTES, RecordFormat
from ottla.ops.record_rows import decoded, headers_of, json_of, parse_json, record_place
from ottla.ops.record_templates import as_text
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None

#: Columns that are fields of a record; every other one is a field of its value, a JSON object.
RECORD_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestamp_type")
CSV_COLUMNS: Final = ("key", "value", "headers", "partition", "offset", "timestamp")


def csv_rows(chunks: Iterator[list[bytes]]) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the rows of CSV, each with the line that it ends on, a list for the lines that arrived at a time.

    A row whose end has yet to come waits for it, and so does what arrived with it. Raises InvalidArgumentError.
    """
    others_limit = csv.field_size_limit(MOST_LINE_BYTES)  # of the whole process
    feed = _Lines(chunks)
    reader = csv.reader(feed, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            if row:
                rows.append((reader.line_num, row))
            if rows and feed.is_empty:
                yield rows
                rows = []
    except csv.Error as problem:
        if rows:
            yield rows
        raise InvalidArgumentError(f"line {reader.line_num} is not CSV: {problem}") from None
    finally:
        csv.field_size_limit(others_limit)
    if rows:
        yield rows


class _Lines:
    """Lines of text, of chunks of lines."""

    def __init__(self, chunks: Iterator[list[bytes]]) -> None:
        self._chunks = chunks
        self._lines: Iterator[bytes] = iter(())
        self._left = 0
        self._is_first = True

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while not self._left:
            chunk = next(self._chunks)
            self._lines, self._left = iter(chunk), len(chunk)
        self._left -= 1
        line = next(self._lines)
        if self._is_first:
            self._is_first, line = False, line.removeprefix(b"\xef\xbb\xbf")  # the mark that spreadsheets write
        return line.decode(errors="surrogateescape") + "\n"

    @property
    def is_empty(self) -> bool:
        """Whether the next line has yet to come."""
        return self._left == 0


class FieldFormat:
    """How the fields of a row become a record.

    `columns` are RECORD_COLUMNS, and names of fields of the value, which then is a JSON object. Text is what
    `lines` says: null, hexadecimal, base64. `key_column` is the column that is the key, of the value's or `key`. With
    `is_typed` a text of the value's that is a number, true, false or null in JSON is such. Raises InvalidArgumentError.
    """

    def __init__(
        self, lines: RecordFormat, columns: Sequence[str], key_column: str | None = None, *, is_typed: bool = False
    ) -> None:
        self._lines = lines
        self._columns = tuple(columns)
        self._key_column = key_column or "key"
        self._is_typed = is_typed
        self._of_value = [each for each in columns if each not in RECORD_COLUMNS]
        there_are = f"the columns are {', '.join(columns)}"
        if len(set(columns)) < len(columns) or "" in columns:
            raise InvalidArgumentError(f"each column has a name of its own; {there_are}")
        if "value" in columns and self._of_value:
            raise InvalidArgumentError(
                f"value and {self._of_value[0]} are both there; {there_are}. A record has either a column value, or "
                "columns that are fields of its value"
            )
        if key_column is not None and key_column not in columns:
            raise InvalidArgumentError(f"a column {key_column} is not there; {there_are}")
        self._check_none_is_lost(there_are)

    def _check_none_is_lost(self, there_are: str) -> None:
        """Raise InvalidArgumentError where fields of a row would be neither the record's nor its value's."""
        if not self._of_value and "value" not in self._columns:
            raise InvalidArgumentError(f"no column is the value, or a field of it; {there_are}")
        lost = {"key"}
        if self._of_value:
            lost |= {"topic", "offset", "timestamp_type"} | (set() if self._lines.keep_partition else {"partition"})
        for name in self._columns:
            if name in lost and name != self._key_column:
                why = f"the key is {self._key_column}" if name == "key" else "a record that is written has its own"
                cure = ", or --keep-partition writes to it" if name == "partition" else ""
                raise InvalidArgumentError(
                    f"column {name} would be lost: it is not a field of the value, and {why}; rename it or leave it "
                    f"out{cure}"
                )

    def record(self, fields: Sequence[Any]) -> ProducerRecord[Bytes, Bytes]:
        """Record of a row: texts, bytes, or what Parquet has."""
        if len(fields) != len(self._columns):
            raise InvalidArgumentError(f"{len(fields)} fields, where the first row names {len(self._columns)} columns")
        lines = self._lines
        row = dict(zip(self._columns, fields, strict=True))
        value = (
            self._object(row)
            if self._of_value
            else self._octets("value", row.get("value"), lines.value_encoding, as_json=lines.as_json[1])
        )
        key = self._octets(self._key_column, row.get(self._key_column), lines.key_encoding, as_json=lines.as_json[0])
        partition = _number("partition", row.get("partition")) if lines.keep_partition else None
        return ProducerRecord(
            lines.topic,
            value,
            lines.key if key is None else key,
            lines.partition if partition is None else partition,
            _number("timestamp", row.get("timestamp")),
            [*lines.headers, *headers_of(_headers(row.get("headers")))],
        )

    def _octets(self, name: str, field: Any, encoding: TextFormat, *, as_json: bool) -> Bytes:
        if field is None or isinstance(field, bytes):
            return field
        if not isinstance(field, str):
            if name == "value":
                raise InvalidArgumentError(f"value is text or bytes, not {field!r:.60}")
            field, as_json = _key_text(field), False
        text = field.encode(errors="surrogateescape")
        if text == self._lines.null:
            return None
        return json_of(field).encode(errors="surrogateescape") if as_json else decoded(text, encoding)

    def _object(self, row: dict[str, Any]) -> bytes:
        found = {name: self._field(name, row[name]) for name in self._of_value}
        try:
            text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
            return text.encode()
        except (TypeError, ValueError) as problem:
            raise InvalidArgumentError(f"its fields are not JSON: {problem}") from None

    def _field(self, name: str, field: Any) -> Any:
        if not isinstance(field, str):
            return field
        if field.encode(errors="surrogateescape") == self._lines.null:
            return None
        if self._is_typed:
            try:
                found = parse_json(field.encode(errors="surrogateescape"))
            except InvalidArgumentError:
                return field
            return field if isinstance(found, (str, list, dict)) else found
        return field


def _key_text(field: Any) -> str:
    """Text of a key that is a number, a time, or as JSON a list or an object."""
    if isinstance(field, float):
        return str(field).removesuffix(".0")
    if not isinstance(field, bool | list | dict):
        return _plain(field)
    try:
        return json.dumps(field, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except TypeError as problem:
        raise InvalidArgumentError(f"the key is not JSON: {problem}") from None


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError("bytes are not text")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _number(name: str, field: Any) -> int | None:
    if field is None or field == "":
        return None
    if isinstance(field, int):
        return field
    text = str(field)
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < len(str(2**63)):
        return int(text)
    unit = " of milliseconds since 1970" if name == "timestamp" else ""
    raise InvalidArgumentError(f"{name} is a whole number{unit}, not {text!r:.60}")


def _headers(field: Any) -> Any:
    if isinstance(field, dict):
        field = list(field.items())
    if isinstance(field, list):  # those of Parquet, whose values are bytes
        return [_header(each) for each in field]
    if not isinstance(field, str):
        return field
    return parse_json(field.encode(errors="surrogateescape")) if field else None


def _header(each: Any) -> dict[str, Any]:
    """Row of a header: of an object with key and value, or of a pair, as maps have them."""
    if isinstance(each, tuple) and len(each) == len(("key", "value")):
        name, value = each
    elif isinstance(each, dict) and each.keys() == {"key", "value"}:
        name, value = each["key"], each["value"]
    else:
        raise InvalidArgumentError(f"headers are a map, or a list of structs of key and value, not of {each!r:.60}")
    if isinstance(value, bytes):
        return {"key": name, "value_hex": value.hex()}
    if value is None or isinstance(value, str | int | float):
        return {"key": name, "value": value}
    raise InvalidArgumentError(f"the value of a header is text or bytes, not {value!r:.60}")


def csv_row(fields: Sequence[str]) -> bytes:
    """A line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(fields)  # what the end consists of is put in quotes
    return text.getvalue().removesuffix("\r\n").encode(errors="surrogateescape") + b"\n"


def csv_shower(
    columns: Sequence[str], null: str, key_format: TextFormat, value_format: TextFormat
) -> Callable[[ConsumerRecord[Bytes, Bytes]], bytes]:
    """Make a function that shows a record as a line of CSV, with `null` for what is null or not there.

    The function raises InvalidArgumentError for a value that has no fields, where columns want them.
    """

    def shown(data: Bytes, wanted: TextFormat) -> str:
        return null if data is None else as_text(data, wanted).decode(errors="surrogateescape")

    fields: dict[str, Callable[[ConsumerRecord[Bytes, Bytes]], str]] = {
        "key": lambda record: shown(record.key, key_format),
        "value": lambda record: shown(record.value, value_format),
        "headers": lambda record: json.dumps(header_rows(record.headers)) if record.headers else "",
        "topic": lambda record: record.topic,
        "partition": lambda record: str(record.partition),
        "offset": lambda record: str(record.offset),
        "timestamp": lambda record: str(record.timestamp),
        "timestamp_type": lambda record: timestamp_type_name(record.timestamp_type),
    }
    of_value = [each for each in columns if each not in fields]

    def show(record: ConsumerRecord[Bytes, Bytes]) -> bytes:
        found = _fields_of(record) if of_value else {}
        return csv_row([fields[each](record) if each in fields else _cell(found.get(each), null) for each in columns])

    return show


def _fields_of(record: ConsumerRecord[Bytes, Bytes]) -> dict[str, Any]:
    if record.value is None:
        return {}
    try:
        found = json.loads(record.value)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise InvalidArgumentError(
        f"{record_place(record)}: its value is not a JSON object, which has fields; "
        "leave --columns out, or such records by --filter"
    )


def _cell(value: Any, null: str) -> str:
    if value is None:
        return null
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace").decode()  # half of a character, which JSON may have, is an escape
