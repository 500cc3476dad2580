"""Avro values read one by one, resolved from the schema that they were written with to that of the columns.

Each pair of types becomes a function once. As in Avro's `Resolver` and `ResolvingGrammarGenerator` a pair that does not
fit is an error of the values that reach it, not of the schema: another branch of the union may fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.decoding.avro_decimals import AvroDecimal, decimal_of
from ottla.decoding.avro_schemas import PRIMITIVES, AvroNode, NodeField

#: Reads a value at a position: the value and where it ends. Raises AvroValueError, IndexError at the end.
Read = Callable[[bytes, int], tuple[Any, int]]
#: Passes over a value: where it ends.
Skip = Callable[[bytes, int], int]

#: An array's items that take no bytes, of which any number could be in two bytes.
MAX_EMPTY_ITEMS = 10_000
_INT = range(-(1 << 31), 1 << 31)
_LONGEST_LONG = 10
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
#: Defaults of bytes and fixed are texts of as many characters.
_BYTES_AS_TEXT = "iso-8859-1"
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class AvroValueError(ValueError):
    """A value that is no Avro of its schema, or that does not resolve to that of the columns."""


def reader_of(writer: AvroNode, reader: AvroNode) -> Read:
    """Reads a value that was written with one schema as one of the other: as pyarrow takes it, maps as pairs."""
    names = {alias: each.name for each in _definitions(reader, set()) for alias in each.aliases}
    return _Resolver(names, lambda entries: list(entries.items())).pair(writer, reader)


def plain_reader(schema: AvroNode) -> Read:
    """Reads a value as it was written, maps as dicts, decimals as texts. The schema may contain itself."""
    return _Resolver({}, lambda entries: entries, decimals_as_text=True).pair(schema, schema)


def written_fields(writer: AvroNode, reader: AvroNode, name: str) -> dict[str, NodeField]:
    """The fields that were written, by their names among the reader's. `name` is that of the record."""
    renamed = {alias: each.name for each in reader.fields for alias in each.aliases} if name == reader.name else {}
    written = {each.name for each in writer.fields}
    # Of a field that was written by both names, that of today counts; Java's library refuses such a schema.
    return {
        each.name if renamed.get(each.name, "") in written else renamed.get(each.name, each.name): each
        for each in writer.fields
    }


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _definitions(node: AvroNode, seen: set[int]) -> list[AvroNode]:
    """Named types of a schema, but for those that were seen before."""
    if id(node) in seen:
        return []
    seen.add(id(node))
    inner = [each.node for each in node.fields] + list(node.branches) + ([node.items] if node.items else [])
    return ([node] if node.name else []) + [found for each in inner for found in _definitions(each, seen)]


class _Resolver:
    """Makes the functions of pairs of types. `renamed` are the reader's aliases, with what they stand for.

    `map_of` makes a map's value of its entries.
    """

    def __init__(
        self, renamed: dict[str, str], map_of: Callable[[dict[str, Any]], Any], *, decimals_as_text: bool = False
    ) -> None:
        self._renamed = renamed
        self._map_of = map_of
        self._decimals_as_text = decimals_as_text
        self._pairs: dict[tuple[int, int], Read] = {}
        self._skips: dict[int, Skip] = {}

    def pair(self, writer: AvroNode, reader: AvroNode) -> Read:
        key = id(writer), id(reader)
        if key not in self._pairs:
            self._pairs[key] = lambda data, at: self._pairs[key](data, at)  # of a type within itself
            self._pairs[key] = self._new_pair(writer, reader)
        return self._pairs[key]

    def _new_pair(self, writer: AvroNode, reader: AvroNode) -> Read:
        if writer.type == "union":
            return _branches([self.pair(each, each if reader is writer else reader) for each in writer.branches])
        if reader.type == "union":
            found = self._branch_for(writer, reader)
            return (
                _never(f"{_shown(writer)} is none of the union's types") if found is None else self.pair(writer, found)
            )
        if writer.type != reader.type:
            return _promoted(writer, reader)
        if self._decimals_as_text and (decimal := decimal_of(writer)) is not None:
            return _decimal(decimal, _read_bytes if decimal.size is None else _fixed(writer, reader))
        if writer.type in PRIMITIVES:
            return _PRIMITIVE_READS[writer.type]
        if writer.type == "array":
            return _array(self.pair(writer.item, reader.item), takes_bytes(writer.item))
        if writer.type == "map":
            return _map(self.pair(writer.item, reader.item), self._map_of)
        if writer.type == "record":
            return self._record(writer, reader)
        if _unqualified(self._name(writer)) != _unqualified(reader.name):
            return _never(f"{writer.type} {writer.name} is not {reader.name}")
        return _enum(writer, reader) if writer.type == "enum" else _fixed(writer, reader)

    def _name(self, writer: AvroNode) -> str:
        return self._renamed.get(writer.name, writer.name)

    def _branch_for(self, writer: AvroNode, reader: AvroNode) -> AvroNode | None:
        """The first type of a union that a type is, with its full name, or else that it can become."""
        for each in reader.branches:
            if each.type == writer.type and (not each.name or each.type == "record" or each.name == self._name(writer)):
                return each
        return next((each for each in reader.branches if each.type in _PROMOTIONS.get(writer.type, ())), None)

    def _record(self, writer: AvroNode, reader: AvroNode) -> Read:
        fields = {each.name: each for each in reader.fields}
        steps: list[tuple[str | None, Any]] = []
        for name, each in written_fields(writer, reader, self._name(writer)).items():
            found = fields.pop(name, None)
            steps.append((None, self.skip(each.node)) if found is None else (name, self.pair(each.node, found.node)))
        defaults = {}
        for left in fields.values():
            try:
                defaults[left.name] = default_of(left)
            except AvroValueError as problem:
                return _never(str(problem))
        return _fields(steps, defaults)

    def skip(self, node: AvroNode) -> Skip:
        """The function that passes over values of a type, which may contain itself."""
        if node.type in PRIMITIVES:
            return _PRIMITIVE_SKIPS[node.type]
        if node.type == "enum":
            return _skip_long
        if node.type == "fixed":
            return _skip_bytes(node.size)
        if id(node) not in self._skips:
            self._skips[id(node)] = lambda data, at: self._skips[id(node)](data, at)
            self._skips[id(node)] = self._skip_complex(node)
        return self._skips[id(node)]

    def _skip_complex(self, node: AvroNode) -> Skip:
        if node.type == "union":
            return _skip_branches([self.skip(each) for each in node.branches])
        if node.type == "record":
            return _skip_all([self.skip(each.node) for each in node.fields])
        item = self.skip(node.item)
        if node.type == "map":
            return _skip_blocks(_skip_all([_skip_text, item]))
        return _skip_blocks(item if takes_bytes(node.item) else None)


def default_of(field: NodeField) -> Any:
    """The value of a field that was not written. Raises AvroValueError."""
    if not field.has_default:
        raise AvroValueError(f"field {field.name} was not written, and has no default")
    return _value_of(field.node, field.default, field.name)


def _value_of(node: AvroNode, value: Any, path: str) -> Any:
    """The value of a default, which is JSON."""
    kind = node.type
    if kind == "union":
        for each in node.branches:
            try:
                return _value_of(each, value, path)
            except AvroValueError:
                continue
    elif kind == "array" and isinstance(value, list):
        return [_value_of(node.item, each, path) for each in value]
    elif kind == "map" and isinstance(value, dict):
        return [(name, _value_of(node.item, each, path)) for name, each in value.items()]
    elif kind == "record" and isinstance(value, dict):
        fields = (
            replace(each, has_default=True, default=value[each.name]) if each.name in value else each
            for each in node.fields
        )
        return {each.name: default_of(each) for each in fields}
    elif kind in ("bytes", "fixed") and isinstance(value, str):
        octets = value.encode(_BYTES_AS_TEXT, "replace")
        return octets if kind == "bytes" else octets[: node.size].ljust(node.size, b"\x00")
    elif _is_default(node, value):
        try:
            return float(value) if kind in ("float", "double") else value
        except OverflowError:
            raise AvroValueError(f"field {path} was not written, and its default is beyond a double") from None
    raise AvroValueError(f"field {path} was not written, and its default is no {_shown(node)}")


def _is_default(node: AvroNode, value: Any) -> bool:
    kind = node.type
    if kind == "null":
        return value is None
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind in ("int", "long"):
        return isinstance(value, int) and -(1 << 63) <= value < 1 << 63 and (kind == "long" or value in _INT)
    if kind in ("float", "double"):
        return isinstance(value, int | float)
    return isinstance(value, str) and (kind == "string" or value in node.symbols)


def takes_bytes(node: AvroNode, known: dict[int, bool] | None = None) -> bool:
    """Whether each value of a type takes at least one byte. `known` are the records that were looked at before."""
    if node.type != "record":
        return node.type != "null" and (node.type != "fixed" or node.size > 0)
    known = {} if known is None else known
    if id(node) not in known:
        # A record that is a field of itself, not behind a union or an array, has no values.
        known[id(node)] = True
        known[id(node)] = any(takes_bytes(each.node, known) for each in node.fields)
    return known[id(node)]


def _shown(node: AvroNode) -> str:
    return f"{node.type} {node.name}".strip()


def _never(reason: str) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        raise AvroValueError(reason)

    return read


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            number &= (1 << 64) - 1
            return (number >> 1) ^ -(number & 1), at
        if shift >= 7 * _LONGEST_LONG:
            raise AvroValueError("a number that does not end")


def _skip_long(data: bytes, at: int) -> int:
    return read_long(data, at)[1]


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(data, at)
    if number not in _INT:
        raise AvroValueError("an int with more than 32 bits")
    return number, at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise AvroValueError(f"a boolean is 0 or 1, not {byte}")
    return byte == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    end = _end(data, at, 4)
    return _FLOAT.unpack_from(data, at)[0], end


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    end = _end(data, at, 8)
    return _DOUBLE.unpack_from(data, at)[0], end


def _end(data: bytes, at: int, size: int) -> int:
    end = at + size
    if size < 0 or end > len(data):
        raise AvroValueError("it ends too early" if size >= 0 else "a length below 0")
    return end


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    end = _end(data, at, size)
    return data[at:end], end


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    end = _end(data, at, size)
    return data[at:end].decode(), end


def _skip_text(data: bytes, at: int) -> int:
    size, at = read_long(data, at)
    return _end(data, at, size)


def _skip_bytes(size: int) -> Skip:
    return lambda data, at: _end(data, at, size)


_PRIMITIVE_READS: dict[str, Read] = {
    "null": lambda data, at: (None, at),
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_text,
}
_PRIMITIVE_SKIPS: dict[str, Skip] = {
    "null": lambda data, at: at,
    "boolean": _skip_bytes(1),
    "int": _skip_long,
    "long": _skip_long,
    "float": _skip_bytes(4),
    "double": _skip_bytes(8),
    "bytes": _skip_text,
    "string": _skip_text,
}


def _promoted(writer: AvroNode, reader: AvroNode) -> Read:
    if reader.type not in _PROMOTIONS.get(writer.type, ()):
        return _never(f"{_shown(writer)} is no {_shown(reader)}")
    if writer.type in ("string", "bytes"):
        # Both are written alike.
        return _PRIMITIVE_READS[reader.type]
    read = _PRIMITIVE_READS[writer.type]
    if reader.type == "long" or writer.type == "float":
        return read
    # A long is rounded once to a float, and not before that to a double.
    rounded = _rounded_to_float if reader.type == "float" else float

    def read_float(data: bytes, at: int) -> tuple[float, int]:
        number, at = read(data, at)
        return rounded(number), at

    return read_float


def _rounded_to_float(number: int) -> float:
    import numpy  # of an extra, and only for this

    return float(numpy.int64(number).astype(numpy.float32))


def _branches(reads: list[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(reads):
            raise AvroValueError(f"a union has no type {index}")
        return reads[index](data, at)

    return read


def _enum(writer: AvroNode, reader: AvroNode) -> Read:
    symbols = [each if each in reader.symbols else reader.default_symbol for each in writer.symbols]

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(symbols):
            raise AvroValueError(f"enum {writer.name} has no symbol {index}")
        symbol = symbols[index]
        if symbol is None:
            raise AvroValueError(f"enum {reader.name} has no symbol {writer.symbols[index]!r}, and no default")
        return symbol, at

    return read


def _fixed(writer: AvroNode, reader: AvroNode) -> Read:
    size = writer.size
    if size != reader.size:
        return _never(f"fixed {writer.name} has {size} bytes, not {reader.size}")

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = _end(data, at, size)
        return data[at:end], end

    return read


def _decimal(decimal: AvroDecimal, read_octets: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        octets, at = read_octets(data, at)
        return decimal.text(octets), at

    return read


def _array(item: Read, takes_bytes: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _block(data, at)
            if not count:
                return items, at
            if count > (len(data) - at if takes_bytes else MAX_EMPTY_ITEMS - len(items)):
                raise AvroValueError(f"an array of {count} items, more than there can be")
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return read


def _map(item: Read, map_of: Callable[[dict[str, Any]], Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        entries: dict[str, Any] = {}
        while True:
            count, at = _block(data, at)
            if not count:
                return map_of(entries), at
            for _ in range(count):
                name, at = _read_text(data, at)
                entries[name], at = item(data, at)

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """The number of items that come next, 0 at the end. A negative one has their length in bytes behind it."""
    count, at = read_long(data, at)
    return (count, at) if count >= 0 else (-count, _skip_long(data, at))


def _fields(steps: list[tuple[str | None, Any]], defaults: dict[str, Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = dict(defaults)
        for name, step in steps:
            if name is None:
                at = step(data, at)
            else:
                row[name], at = step(data, at)
        return row, at

    return read


def _skip_branches(skips: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        index, at = read_long(data, at)
        if not 0 <= index < len(skips):
            raise AvroValueError(f"a union has no type {index}")
        return skips[index](data, at)

    return skip


def _skip_all(skips: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for each in skips:
            at = each(data, at)
        return at

    return skip


def _skip_blocks(item: Skip | None) -> Skip:
    """Passes over the items of an array, None of which take no bytes, or over a map's entries."""

    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = read_long(data, at)
            if count == 0:
                return at
            if count < 0:
                size, at = read_long(data, at)
                at = _end(data, at, size)
            elif item is not None:
                for _ in range(count):
                    at = item(data, at)

    return skip
