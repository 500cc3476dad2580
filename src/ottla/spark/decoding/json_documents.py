"""JSON documents to typed rows, one by one, as Spark's `from_json` reads them (PERMISSIVE, partial results on).

This is for the documents that no whole batch can take: wrong types, duplicate names, broken text, maps. Fields that
cannot be converted are null, the others of the document stay. Text that is no JSON gives nulls only.
Spark allows some of Jackson's lenient tokens: NaN, Infinity, 'single quotes'. Source: Spark's `JacksonParser`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json.decoder import JSONDecodeError
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow

from ottla.spark.decoding.times import parse_date, parse_local_timestamp, parse_timestamp

#: Characters of a text that a reason quotes.
QUOTED = 40

_FIELD = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
#: Jackson's, and those that pyarrow's reader takes as well.
_NOT_A_NUMBER = re.compile(r"-?NaN|[+-]?Infinity|[+-]INF|-?Inf")
_WORD = re.compile(r"true|false|null")
#: Possessive, since what may be tried again costs a hundred bytes of memory a character.
_SINGLE = re.compile(r"'((?:[^'\\\x00-\x1f]++|\\.)*+)'")
_BETWEEN_BYTES = re.compile(r"[\x00-\x20]+")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_IDENTIFIER = re.compile(r"[0-9A-Za-z_$]")
_FLOATS = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "+INF": float("inf"),
    "-Infinity": float("-inf"),
    "-INF": float("-inf"),
}
_LENIENT_FLOATS = _FLOATS | {"-NaN": float("nan"), "Inf": float("inf"), "-Inf": float("-inf")}
#: What Jackson's generator escapes in texts.
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
#: Python converts no longer ones by default.
MAX_INT_DIGITS = 4_000
#: Of Java's BigDecimal; and the largest power of ten that its BigInteger holds, by which it divides.
MOST_EXPONENT = (1 << 31) - 1
MOST_POWER = 646_456_993
_WIDE = Context(prec=1_200, Emax=10**9, Emin=-(10**9))
_DECODER: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=len)
#: Goes over a value in C; reads a text after its quote: both of json.decoder, which has no types for them.
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once
_scan_text: Callable[[str, int, bool], tuple[str, int]] = _DECODER.parse_string

#: Reads a value at a position of a text: the value and where it ends. Raises _Wrong, _Broken, IndexError at the end.
_Reader = Callable[[str, int], tuple[Any, int]]


class _Wrong(Exception):
    """A value of another type than its column's."""


class _Broken(Exception):
    """Text that is no JSON."""


class JsonDocuments:
    """Reader of documents with these columns. `zone` is that of timestamps without one."""

    def __init__(self, schema: pyarrow.Schema, zone: ZoneInfo) -> None:
        self._zone = zone
        self._reason: str | None = None
        self._width = len(schema)
        self._root = self._fields([(field.name, self._reader(field.type)) for field in schema])

    def read(self, document: bytes) -> tuple[list[Any] | None, str | None]:
        """The columns of one document, None where all are null, and why it is bad, None where it is good."""
        self._reason = None
        text = _decode(document)
        row: list[Any] = [None] * self._width
        try:
            at = _skip_space(text, 0)
            if at == len(text):
                return None, None
            if text[at] != "{":
                _skip(text, at)
                return None, "not a JSON object"
            self._root(text, at, row)
        except (_Broken, IndexError) as problem:
            return None, "not JSON: " + (str(problem) if isinstance(problem, _Broken) else "it ends too early")
        return row, self._reason

    def _wrong(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason

    def _fields(self, readers: list[tuple[str, _Reader]]) -> Callable[[str, int, list[Any]], int]:
        """Reads an object into a row. Other fields are passed over; of two with one name the last counts."""
        by_name = {name: (index, reader) for index, (name, reader) in enumerate(readers)}

        def read(text: str, at: int, row: list[Any]) -> int:
            at = _skip_space(text, at + 1)
            if text[at] == "}":
                return at + 1
            while True:
                found = _FIELD.match(text, at)
                name, at = (found[1], found.end()) if found is not None else _name(text, at)
                wanted = by_name.get(name)
                if wanted is None:
                    at = _skip(text, at)
                else:
                    index, reader = wanted
                    try:
                        row[index], at = reader(text, at)
                    except _Wrong as problem:
                        self._wrong(f"column {name}: {problem}")
                        at = _skip(text, at)
                at = _skip_space(text, at)
                mark = text[at]
                at += 1
                if mark == "}":
                    return at
                if mark != ",":
                    raise _Broken(f"expected a comma or the object's end at character {at}")

        return read

    def _reader(self, kind: pyarrow.DataType) -> _Reader:
        types = pyarrow.types
        if types.is_struct(kind):
            return self._struct(kind)
        if types.is_map(kind):
            return self._map(self._reader(kind.item_type))
        if types.is_list(kind):
            return self._list(self._reader(kind.value_type))
        if types.is_string(kind):
            return _string
        return _scalar(self._conversion(kind), str(kind))

    def _conversion(self, kind: pyarrow.DataType) -> Callable[[str, str], Any]:
        """Converts a token of `_token`. Raises LookupError, ValueError or InvalidOperation if it is of another type."""
        types = pyarrow.types
        if types.is_boolean(kind):
            return lambda token, text: {"true": True, "false": False}[text] if token == "w" else _unreadable()
        if types.is_integer(kind):
            return _integer(kind.bit_width)
        if types.is_floating(kind):
            return _float if kind.bit_width == 64 else _float32
        if types.is_decimal(kind):
            return _decimal(kind.precision, kind.scale)
        if types.is_binary(kind):
            return _binary
        if types.is_date(kind):
            return lambda token, text: _parsed(parse_date(text)) if token == "s" else _unreadable()
        if kind.tz is None:
            return lambda token, text: _parsed(parse_local_timestamp(text)) if token == "s" else _unreadable()
        return self._timestamp

    def _timestamp(self, token: str, text: str) -> int:
        if token == "s":
            micros = parse_timestamp(text, self._zone)
            if micros is None and "GMT" in text:
                micros = parse_timestamp(text.replace("GMT", "", 1), self._zone)
            return micros if micros is not None else int(_unreadable())
        seconds = int(text) if token == "n" else int(_unreadable())
        if not -(1 << 63) <= seconds < 1 << 63:
            _unreadable()
        # Java's multiplication wraps round.
        return (seconds * 1_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)

    def _struct(self, kind: pyarrow.DataType) -> _Reader:
        names = [kind.field(index).name for index in range(kind.num_fields)]
        fields = self._fields([(name, self._reader(kind.field(name).type)) for name in names])

        def read(text: str, at: int) -> tuple[Any, int]:
            if text[at] != "{":
                return _null_or_wrong(text, at, "an object")
            row: list[Any] = [None] * len(names)
            at = fields(text, at, row)
            return dict(zip(names, row, strict=True)), at

        return read

    def _list(self, item: _Reader) -> _Reader:
        def read(text: str, at: int) -> tuple[Any, int]:
            if text[at] != "[":
                return _null_or_wrong(text, at, "an array")
            at = _skip_space(text, at + 1)
            items: list[Any] = []
            if text[at] == "]":
                return items, at + 1
            while True:
                value, at = item(text, at)
                items.append(value)
                at = _skip_space(text, at)
                mark = text[at]
                at = _skip_space(text, at + 1)
                if mark == "]":
                    return items, at
                if mark != ",":
                    raise _Broken(f"expected a comma or the array's end at character {at}")

        return read

    def _map(self, item: _Reader) -> _Reader:
        def read(text: str, at: int) -> tuple[Any, int]:
            if text[at] != "{":
                return _null_or_wrong(text, at, "an object")
            at = _skip_space(text, at + 1)
            entries: list[tuple[str, Any]] = []
            if text[at] == "}":
                return entries, at + 1
            wrong: _Wrong | None = None
            while True:
                name, at = _name(text, at)
                try:
                    value, at = item(text, at)
                    entries.append((_encodable(name), value))
                except _Wrong as problem:
                    wrong = wrong or problem
                    at = _skip(text, at)
                at = _skip_space(text, at)
                mark = text[at]
                at += 1
                if mark == "}":
                    break
                if mark != ",":
                    raise _Broken(f"expected a comma or the object's end at character {at}")
            if wrong is not None:
                raise wrong
            return entries, at

        return read


def _decode(document: bytes) -> str:
    """The text of UTF-8; what is none becomes U+FFFD, one of them for each surrogate, as Java's reader does it."""
    try:
        return document.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xef\xbf\xbd", document).decode(errors="replace")


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _name(text: str, at: int) -> tuple[str, int]:
    """The name of a field, up to its value."""
    at = _skip_space(text, at)
    if text[at] not in "\"'":
        raise _Broken(f"expected a field's name in quotes at character {at}")
    name, at = _quoted(text, at)
    at = _skip_space(text, at)
    if text[at] != ":":
        raise _Broken(f"expected a colon at character {at}")
    return name, _skip_space(text, at + 1)


def _quoted(text: str, at: int) -> tuple[str, int]:
    if text[at] == "'":
        found = _SINGLE.match(text, at)
        if found is None:
            raise _Broken(f"a text that does not end at character {at}")
        inner = found[1].replace("\\'", "'").replace('"', '\\"')
        try:
            return _scan_text(f'{inner}"', 0, True)[0], found.end()
        except JSONDecodeError as problem:
            raise _Broken(f"{problem.msg} at character {at}") from None
    try:
        return _scan_text(text, at + 1, True)
    except JSONDecodeError as problem:
        raise _Broken(f"{problem.msg} at character {problem.pos}") from None


def _token(text: str, at: int) -> tuple[str, str, int]:
    """A scalar: its kind (n a whole number, f another one, s a text, w a word), its text, and where it ends."""
    mark = text[at]
    if mark in "\"'":
        value, end = _quoted(text, at)
        return "s", value, end
    found = _NUMBER.match(text, at)
    if found is not None:
        return "f" if found[1] or found[2] else "n", found[0], found.end()
    found = _WORD.match(text, at)
    kind = "w"
    if found is None:
        found, kind = _NOT_A_NUMBER.match(text, at), "f"
    if found is None or _IDENTIFIER.match(text, found.end()):
        raise _Broken(f"unexpected {text[at : at + QUOTED]!r} at character {at}")
    return kind, found[0], found.end()


def _skip(text: str, at: int) -> int:
    """Return the end of the value at `at`."""
    try:
        return _scan(text, at)[1]
    except (StopIteration, JSONDecodeError, RecursionError):
        return _walk(text, at, None)  # Jackson's lenient tokens, and deeply nested values.


def _copied(text: str, at: int) -> tuple[str, int]:
    """The value at `at` as Jackson's generator writes it, and where it ends."""
    pieces: list[str] = []
    end = _walk(text, at, pieces)
    return "".join(pieces), end


def _walk(text: str, at: int, copy: list[str] | None) -> int:
    """Goes over one value, without recursion; writes its tokens to `copy`."""
    closing: list[str] = []
    while True:
        mark = text[at]
        if mark in "{[":
            at = _skip_space(text, at + 1)
            end = "}" if mark == "{" else "]"
            if copy is not None:
                copy.append(mark)
            if text[at] != end:
                closing.append(end)
                if mark == "{":
                    at = _walk_name(text, at, copy)
                continue
            at += 1
            if copy is not None:
                copy.append(end)
        else:
            kind, word, at = _token(text, at)
            if copy is not None:
                copy.append(_written(kind, word))
        while closing:
            at = _skip_space(text, at)
            mark = text[at]
            at += 1
            if copy is not None:
                copy.append(mark)
            if mark == ",":
                at = _skip_space(text, at)
                at = _walk_name(text, at, copy) if closing[-1] == "}" else at
                break
            if mark != closing.pop():
                raise _Broken(f"expected a comma or the end of an object or array at character {at}")
        else:
            return at


def _walk_name(text: str, at: int, copy: list[str] | None) -> int:
    name, at = _name(text, at)
    if copy is not None:
        copy += (_written("s", name), ":")
    return at


def _written(kind: str, word: str) -> str:
    """A scalar as Jackson's generator writes it: floats as Java's doubles, NaN and the infinities in quotes."""
    if kind == "s":
        return f'"{_ESCAPED.sub(_escape, word)}"'
    if kind == "n":
        return str(Decimal(word) if len(word) > MAX_INT_DIGITS else int(word))
    if kind == "f":
        number = _LENIENT_FLOATS[word] if word in _LENIENT_FLOATS else float(word)
        return _java_double(number) if isfinite(number) else f'"{_java_double(number)}"'
    return word


def _escape(found: re.Match[str]) -> str:
    """A character outside of the first 65,536 as its two surrogates."""
    known = _ESCAPES.get(found[0])
    units = found[0].encode("utf-16-be", "surrogatepass")
    return known or "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))


def _java_double(number: float) -> str:
    """Double.toString: plain from 0.001 to 10,000,000, with an exponent beyond."""
    if not isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    size = abs(number)
    if size == 0 or 1e-3 <= size < 1e7:
        plain = format(Decimal(repr(number)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def _unreadable() -> Any:
    raise ValueError


def _parsed(value: Any) -> Any:
    return _unreadable() if value is None else value


def _null_or_wrong(text: str, at: int, expected: str) -> tuple[None, int]:
    if text[at] in "[{":
        raise _Wrong(f"{expected} is expected, not {text[at : at + QUOTED]}")
    kind, word, end = _token(text, at)
    if kind == "w" and word == "null":
        return None, end
    raise _Wrong(f"{expected} is expected, not {text[at : min(end, at + QUOTED)]}")


def _scalar(convert: Callable[[str, str], Any], name: str) -> _Reader:
    def read(text: str, at: int) -> tuple[Any, int]:
        if text[at] in "{[":
            raise _Wrong(f"{name} is expected, not {text[at : at + QUOTED]}")
        kind, word, end = _token(text, at)
        if kind == "w" and word == "null":
            return None, end
        try:
            return convert(kind, word), end
        except (ValueError, LookupError, InvalidOperation):
            raise _Wrong(f"{name} is expected, not {text[at : min(end, at + QUOTED)]}") from None

    return read


def _encodable(text: str) -> str:
    """Half a surrogate pair becomes a question mark, as Java encodes it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _string(text: str, at: int) -> tuple[Any, int]:
    """A text; of anything else its JSON."""
    if text[at] in "\"'":
        value, end = _quoted(text, at)
        return _encodable(value), end
    value, end = _copied(text, at)
    return (None if value == "null" else value), end


def _integer(bits: int) -> Callable[[str, str], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(token: str, text: str) -> int:
        value = int(text) if token == "n" else _unreadable()
        if bits == 8 and high < value <= 0xFF:
            # JsonParser.getByteValue takes unsigned bytes, too.
            value -= 1 << 8
        return value if low <= value <= high else int(_unreadable())

    return convert


def _float(token: str, text: str) -> float:
    if token in "nf":
        return _LENIENT_FLOATS[text] if text in _LENIENT_FLOATS else float(text)
    return _FLOATS[text] if token == "s" else float(_unreadable())


def _float32(token: str, text: str) -> float:
    """The nearest float of 32 bits: of a double in between, each would be rounded twice."""
    number = _float(token, text)
    return float(pyarrow.array([text]).cast(pyarrow.float32())[0].as_py()) if isfinite(number) else number


def _decimal(precision: int, scale: int) -> Callable[[str, str], Decimal]:
    unit = Decimal(1).scaleb(-scale)
    limit = Decimal(1).scaleb(precision - scale)

    def convert(token: str, text: str) -> Decimal:
        if token == "w":
            _unreadable()
        if token == "s":
            text = text.replace(",", "")
            if _NUMBER.fullmatch(text.lstrip("+-").lstrip("0") or "0") is None and not re.fullmatch(
                r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text
            ):
                _unreadable()
        elif text in _LENIENT_FLOATS:
            _unreadable()
        number = Decimal(text)
        exponent = int(number.as_tuple().exponent)
        if abs(exponent) > MOST_EXPONENT or (number and (number.adjusted() > precision or exponent < -MOST_POWER)):
            _unreadable()
        number = number.quantize(unit, ROUND_HALF_UP, _WIDE) if number.adjusted() > -precision - 2 else Decimal(0)
        return number if number.copy_abs() < limit else _unreadable()

    return convert


def _binary(token: str, text: str) -> bytes:
    if token != "s":
        _unreadable()
    try:
        return base64.b64decode(_BETWEEN_BYTES.sub("", text).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return bytes(_unreadable())
