"""Values of JSON written as Avro.

A union takes the first of its types that fits, of a whole number those that are such before others; `{"TYPE": value}`,
as Avro's JSON has it, names the type. A field that is left out gets its default.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

from ottla.decoding.avro_decimals import decimal_of
from ottla.decoding.avro_schemas import AvroNode
from ottla.decoding.avro_values import avro_node
from ottla.decoding.registry import SchemaText
from ottla.decoding.values import BYTES_AS_TEXT, UnfitError
from ottla.records.varint import encode_varint

#: Types that are tried for the unions in one value: types within each other can fit in very many ways.
MAX_TRIES: Final = 1_000_000
#: Characters of a value that a message quotes.
_SHOWN_CHARS: Final = 60
_BITS: Final = {"int": 32, "long": 64}
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EXPECTED: Final = {
    "null": "null",
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "float": "a number of 32 bits",
    "double": "a number of 64 bits",
    "bytes": "bytes: a text with a character up to U+00FF for each",
    "string": "a text",
    "array": "a list",
    "map": "an object",
    "record": "an object",
}


class AvroEncoder:
    """Writes values of one schema. `takes_text` says whether a text is such a value."""

    def __init__(self, schema: SchemaText) -> None:
        """Raises AvroSchemaError."""
        self._node = avro_node(schema)
        types = {self._node.type, *(each.type for each in self._node.branches)}
        # Beside types that are objects or lists, one that does not fit must not become a text.
        self.takes_text = "string" in types and not types & {"record", "map", "array"}

    def encode(self, value: Any) -> bytes:
        """The value as Avro. Raises UnfitError, which names the field."""
        out = bytearray()
        try:
            _Writing(out).write(self._node, value, "")
        except RecursionError:
            raise UnfitError("it is nested too deep") from None
        return bytes(out)


class _TooManyTriesError(UnfitError):
    pass


class _Writing:
    """One value on its way into `out`."""

    def __init__(self, out: bytearray) -> None:
        self._out = out
        self._tries = 0
        #: Whether a default is written, in which decimals are texts of bytes.
        self._in_default = False

    def write(self, node: AvroNode, value: Any, path: str) -> None:
        kind = node.type
        if kind == "union":
            self._union(node, value, path)
        elif kind == "record" and isinstance(value, dict):
            self._record(node, value, path)
        elif (kind == "array" and isinstance(value, list)) or (kind == "map" and isinstance(value, dict)):
            self._items(node, value, path)
        elif (found := _primitive(node, value, in_default=self._in_default)) is not None:
            self._out += found
        else:
            raise _unfit(path, value, _expected(node))

    def _record(self, node: AvroNode, value: dict[str, Any], path: str) -> None:
        names = [each.name for each in node.fields]
        if unknown := sorted(value.keys() - set(names)):
            raise UnfitError(f"{_place(path, unknown[0])} is not a field of {node.name}, which has {', '.join(names)}")
        for each in node.fields:
            place = _place(path, each.name)
            if each.name not in value and not each.has_default:
                raise UnfitError(f"{place} is missing, and has no default")
            was_in_default = self._in_default
            self._in_default = was_in_default or each.name not in value
            try:
                self.write(each.node, value.get(each.name, each.default), place)
            finally:
                self._in_default = was_in_default

    def _items(self, node: AvroNode, value: list[Any] | dict[str, Any], path: str) -> None:
        if value:
            self._out += encode_varint(len(value))
        if isinstance(value, dict):
            for name, each in value.items():
                self._out += _octets(_utf8(name, path))
                self.write(node.item, each, _place(path, name))
        else:
            for at, each in enumerate(value):
                self.write(node.item, each, f"{path}[{at}]")
        self._out += encode_varint(0)

    def _union(self, node: AvroNode, value: Any, path: str) -> None:
        numbered = list(enumerate(node.branches))
        if isinstance(value, int):
            numbered.sort(key=lambda each: each[1].type not in _BITS)
        problems = []
        for at, branch in numbered:
            if (problem := self._try(at, branch, value, path)) is None:
                return
            if branch.type != "null":
                problems.append(problem)
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for at, branch in numbered:
                if name in (branch.name or branch.type, branch.name.rpartition(".")[2]):
                    if (problem := self._try(at, branch, inner, path)) is None:
                        return
                    raise problem
        if len(problems) == 1 and value is not None and isinstance(value, dict | list):
            raise problems[0]
        raise _unfit(path, value, " or ".join(_expected(each) for each in node.branches))

    def _try(self, at: int, branch: AvroNode, value: Any, path: str) -> UnfitError | None:
        """Write a value as one of a union's types; where it does not fit, nothing of it stays. Returns the cause."""
        self._tries += 1
        if self._tries > MAX_TRIES:
            raise _TooManyTriesError(f'{path or "the value"} fits in too many ways; name types, as {{"TYPE": …}}')
        start = len(self._out)
        self._out += encode_varint(at)
        try:
            self.write(branch, value, path)
        except _TooManyTriesError:
            raise
        except UnfitError as problem:
            del self._out[start:]
            return problem
        return None


def _primitive(node: AvroNode, value: Any, *, in_default: bool) -> bytes | None:
    """The bytes of a value that has no others in it; None where it does not fit. Raises UnfitError."""
    kind = node.type
    if isinstance(value, bool) or value is None:
        if kind == "boolean" and value is not None:
            return bytes([value])
        return b"" if kind == "null" and value is None else None
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        return encode_varint(value) if isinstance(value, int) and -limit <= value < limit else None
    if kind in ("float", "double"):
        return _floating(kind, value)
    if not in_default and (decimal := decimal_of(node)) is not None:
        octets = decimal.octets(value)
        return _octets(octets) if octets is not None and decimal.size is None else octets
    if not isinstance(value, str):
        return None
    if kind == "string":
        return _octets(_utf8(value, ""))
    if kind == "enum":
        return encode_varint(node.symbols.index(value)) if value in node.symbols else None
    try:
        data = value.encode(BYTES_AS_TEXT)
    except UnicodeEncodeError:
        return None
    if kind == "fixed":
        return data if len(data) == node.size else None
    return _octets(data) if kind == "bytes" else None


def _floating(kind: str, value: Any) -> bytes | None:
    number = _NOT_FINITE.get(value) if isinstance(value, str) else value
    if not isinstance(number, int | float):
        return None
    try:
        if kind == "double" and isinstance(number, int) and float(number) != number:
            return None
        return struct.pack("<f" if kind == "float" else "<d", float(number))
    except OverflowError:
        return None


def _octets(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnfitError(f"{path or 'a text'} has half of a character (a lone surrogate), which is not UTF-8") from None


def _expected(node: AvroNode) -> str:
    if node.type == "enum":
        return " or ".join(node.symbols)
    if (decimal := decimal_of(node)) is not None:
        return f"a decimal of at most {decimal.precision} digits, {decimal.scale} of them behind the point,"
    if node.type == "fixed":
        return f"{node.size} {_EXPECTED['bytes']}"
    return _EXPECTED[node.type]


def _place(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unfit(path: str, value: Any, expected: str) -> UnfitError:
    text = json.dumps(value, ensure_ascii=False)
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return UnfitError(f"{path or 'the value'} is {shown}; the schema has {expected} there")
