"""Avro schemas as Arrow types, and what is to be done with their values.

Columns have the types of Spark's `from_avro`: enums are strings, fixed is binary, a union with null is nullable.
Source: the Avro specification 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as compute

MAX_DEPTH = 100
_PRIMITIVES: dict[str, pyarrow.DataType] = {
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "bytes": pyarrow.binary(),
    "string": pyarrow.string(),
}
#: Logical types of numbers: what they are on, and the Arrow types to go over to get there.
_TIMES: dict[str, tuple[str, tuple[pyarrow.DataType, ...]]] = {
    "date": ("int", (pyarrow.date32(),)),
    "timestamp-millis": ("long", (pyarrow.timestamp("ms", "UTC"), pyarrow.timestamp("us", "UTC"))),
    "timestamp-micros": ("long", (pyarrow.timestamp("us", "UTC"),)),
    "local-timestamp-millis": ("long", (pyarrow.timestamp("ms"), pyarrow.timestamp("us"))),
    "local-timestamp-micros": ("long", (pyarrow.timestamp("us"),)),
}
_MAX_PRECISION = 38
#: Bytes of a decimal's number in Arrow.
_NUMBER_BYTES = 16
_LOWEST = -(2**127)


class AvroSchemaError(ValueError):
    """A schema that is no Avro, or has what no column can be; the message names the place."""


@dataclass(frozen=True)
class AvroType:
    """One type of a schema. `raw` is its Arrow type without logical types, `kind` the column's.

    `plain` says whether only types are in it that pyruhvro reads. `symbols` are an enum's.
    """

    raw: pyarrow.DataType
    kind: pyarrow.DataType
    nullable: bool = False
    plain: bool = True
    symbols: tuple[str, ...] = ()
    children: tuple[AvroType, ...] = ()
    convert: Callable[[pyarrow.Array], pyarrow.Array] | None = None


@dataclass(frozen=True)
class AvroField:
    """A field of the record that values are."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True)
class AvroRecord:
    """The schema of values. `stripped` is it without logical types, for readers that give plain values."""

    fields: tuple[AvroField, ...]
    stripped: str = field(repr=False)

    @property
    def as_texts(self) -> str:
        """The stripped schema with texts in the place of bytes, which are written alike."""
        return json.dumps(_with_texts(json.loads(self.stripped)))

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns."""
        return pyarrow.schema([pyarrow.field(each.name, each.type.kind) for each in self.fields])

    def only(self, names: Sequence[str]) -> AvroRecord:
        """The same, with these columns."""
        by_name = {each.name: each for each in self.fields}
        return AvroRecord(tuple(by_name[name] for name in names), self.stripped)

    @property
    def plain(self) -> bool:
        """Whether pyruhvro can read it."""
        return all(each.type.plain for each in self.fields)


def parse_avro(text: str) -> AvroRecord:
    """Read the JSON of a schema. Raises AvroSchemaError."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise AvroSchemaError(f"not JSON ({problem})") from None
    if not isinstance(document, dict) or document.get("type") != "record":
        raise AvroSchemaError('expected {"type": "record", …}: the columns are its fields')
    fields = _Reader().record(document, "", "", 0)
    if not fields:
        raise AvroSchemaError("the record has no fields")
    return AvroRecord(fields, json.dumps(_stripped(document)))


def _stripped(node: Any) -> Any:
    """A schema without its logical types."""
    if isinstance(node, dict):
        left_out = ("logicalType", "precision", "scale", "doc")
        return {
            name: value if name in ("default", "symbols", "aliases") else _stripped(value)
            for name, value in node.items()
            if name not in left_out
        }
    return [_stripped(each) for each in node] if isinstance(node, list) else node


def _with_texts(node: Any) -> Any:
    """A schema with the type string where it has bytes."""
    if isinstance(node, dict):
        inner = ("type", "items", "values", "fields")
        return {name: _with_texts(value) if name in inner else value for name, value in node.items()}
    if isinstance(node, list):
        return [_with_texts(each) for each in node]
    return "string" if node == "bytes" else node


class _Reader:
    """Reads one schema. Named types may be used again, but not within themselves."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}

    def record(self, node: dict[str, Any], space: str, path: str, depth: int) -> tuple[AvroField, ...]:
        space = _space(node, space)
        declared = node.get("fields")
        if not isinstance(declared, list):
            raise AvroSchemaError(f"{path or 'the record'} has no list of fields")
        fields = []
        for each in declared:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise AvroSchemaError(f'a field of {path or "the record"} needs {{"name": …, "type": …}}')
            kind = self._type(each["type"], space, f"{path}.{each['name']}".lstrip("."), depth + 1)
            aliases = tuple(each.get("aliases", ()))
            fields.append(AvroField(each["name"], kind, aliases, "default" in each, each.get("default")))
        return tuple(fields)

    def _type(self, node: Any, space: str, path: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"{path}: types are nested more than {MAX_DEPTH} deep")
        if isinstance(node, list):
            return self._union(node, space, path, depth)
        if isinstance(node, dict):
            return self._complex(node, space, path, depth)
        if node in _PRIMITIVES:
            kind = _PRIMITIVES[node]
            return AvroType(kind, kind)
        name = node if not isinstance(node, str) or "." in node or not space else f"{space}.{node}"
        if name not in self._named:
            raise AvroSchemaError(f"{path}: unknown type {node!r}")
        found = self._named[name]
        if found is None:
            raise AvroSchemaError(f"{path}: {node!r} is within itself, which no column can be; leave that field out")
        return found

    def _union(self, node: list[Any], space: str, path: str, depth: int) -> AvroType:
        branches = [each for each in node if each != "null"]
        nullable = len(branches) < len(node)
        if len(branches) != 1:
            raise AvroSchemaError(f"{path}: a union of several types is no column; only one type and null can be read")
        inner = self._type(branches[0], space, path, depth + 1)
        # pyruhvro reads unions of null and a type, not of a type alone.
        plain = inner.plain and len(node) == 2
        return AvroType(inner.raw, inner.kind, nullable, plain, inner.symbols, inner.children, inner.convert)

    def _complex(self, node: dict[str, Any], space: str, path: str, depth: int) -> AvroType:
        kind = node.get("type")
        if kind == "record":
            return self._struct(node, space, path, depth)
        if kind == "enum":
            symbols = node.get("symbols")
            if not isinstance(symbols, list):
                raise AvroSchemaError(f"{path}: an enum needs a list of symbols")
            return self._name(node, space, AvroType(pyarrow.string(), pyarrow.string(), symbols=tuple(symbols)))
        if kind == "fixed":
            return self._name(node, space, _logical(node, AvroType(pyarrow.binary(), pyarrow.binary(), plain=False)))
        if kind == "array":
            return _list_of(self._type(node.get("items"), space, path, depth + 1))
        if kind == "map":
            return _map_of(self._type(node.get("values"), space, path, depth + 1))
        return _logical(node, self._type(kind, space, path, depth + 1))

    def _struct(self, node: dict[str, Any], space: str, path: str, depth: int) -> AvroType:
        name = _full_name(node, space)
        self._named[name] = None
        fields = self.record(node, space, path, depth)
        if not fields:
            # Arrays of nothing could have any number of items in two bytes.
            raise AvroSchemaError(f"{path}: a record without fields is no column")
        children = tuple(each.type for each in fields)
        raw = pyarrow.struct([pyarrow.field(each.name, each.type.raw) for each in fields])
        kind = pyarrow.struct([pyarrow.field(each.name, each.type.kind) for each in fields])
        plain = all(child.plain for child in children)
        convert = _converted_struct(kind, children) if any(child.convert for child in children) else None
        made = AvroType(raw, kind, plain=plain, children=children, convert=convert)
        self._named[name] = made
        return made

    def _name(self, node: dict[str, Any], space: str, made: AvroType) -> AvroType:
        self._named[_full_name(node, space)] = made
        return made


def _space(node: dict[str, Any], space: str) -> str:
    name = str(node.get("name", ""))
    return name.rpartition(".")[0] if "." in name else str(node.get("namespace", space))


def _full_name(node: dict[str, Any], space: str) -> str:
    name = node.get("name")
    if not isinstance(name, str):
        raise AvroSchemaError(f"a {node.get('type')} without a name")
    own = _space(node, space)
    return name if "." in name or not own else f"{own}.{name}"


def _list_of(item: AvroType) -> AvroType:
    raw = pyarrow.list_(pyarrow.field("element", item.raw))
    kind = pyarrow.list_(pyarrow.field("element", item.kind))
    convert = None
    if item.convert is not None:

        def convert(array: pyarrow.Array) -> pyarrow.Array:
            return _with_children(array, kind, [_converted(array.values, item)])

    return AvroType(raw, kind, plain=item.plain, children=(item,), convert=convert)


def _map_of(item: AvroType) -> AvroType:
    kind = pyarrow.map_(pyarrow.string(), item.kind)
    convert = None
    if item.convert is not None:

        def convert(array: pyarrow.Array) -> pyarrow.Array:
            entries = pyarrow.StructArray.from_arrays(
                [array.keys, _converted(array.items, item)], fields=[kind.key_field, kind.item_field]
            )
            return _with_children(array, kind, [entries])

    return AvroType(pyarrow.map_(pyarrow.string(), item.raw), kind, plain=item.plain, children=(item,), convert=convert)


def _converted(array: pyarrow.Array, kind: AvroType) -> pyarrow.Array:
    return array if kind.convert is None else kind.convert(array)


def _converted_struct(
    kind: pyarrow.DataType, children: tuple[AvroType, ...]
) -> Callable[[pyarrow.Array], pyarrow.Array]:
    def convert(array: pyarrow.Array) -> pyarrow.Array:
        made = [_converted(array.field(index), child) for index, child in enumerate(children)]
        return _with_children(array, kind, made)

    return convert


def _with_children(array: pyarrow.Array, kind: pyarrow.DataType, children: list[pyarrow.Array]) -> pyarrow.Array:
    """A nested array with other children; it begins at offset 0, as what was just read does."""
    own = array.buffers()[: 1 if pyarrow.types.is_struct(kind) else 2]
    return pyarrow.Array.from_buffers(kind, len(array), own, array.null_count, children=children)


def _logical(node: dict[str, Any], plain: AvroType) -> AvroType:
    """The type with its logical type. One that is unknown or does not fit is ignored, as the specification has it."""
    logical = node.get("logicalType")
    if logical in _TIMES and plain.raw == _PRIMITIVES[_TIMES[logical][0]]:
        steps = _TIMES[logical][1]

        def convert_time(array: pyarrow.Array) -> pyarrow.Array:
            for step in steps:
                array = array.cast(step)
            return array

        return AvroType(plain.raw, steps[-1], convert=convert_time)
    if logical == "decimal" and pyarrow.types.is_binary(plain.raw):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= _MAX_PRECISION:
            kind = pyarrow.decimal128(precision, scale)
            return AvroType(plain.raw, kind, plain=plain.plain, convert=_decimals(kind))
    return plain


def _decimals(kind: pyarrow.DataType) -> Callable[[pyarrow.Array], pyarrow.Array]:
    """Converts unscaled values, signed, the highest byte first; raises ArrowInvalid for one with too many digits."""

    def convert(array: pyarrow.BinaryArray) -> pyarrow.Array:
        if array.offset:
            array = pyarrow.concat_arrays([array])
        validity, positions, data = _short_numbers(array).buffers()
        offsets = numpy.frombuffer(positions, numpy.int32)[: len(array) + 1]
        starts, ends = offsets[:-1], offsets[1:]
        # At least one byte, so that numbers without any have one to look at.
        content = numpy.frombuffer((data.to_pybytes() if data is not None else b"") + b"\x00", numpy.uint8)
        negative = (ends > starts) & (content[starts] >= 0x80)
        numbers = numpy.zeros((len(array), _NUMBER_BYTES), numpy.uint8)
        numbers[negative] = 0xFF
        for byte in range(int((ends - starts).max(initial=0))):
            there = numpy.flatnonzero(ends - starts > byte)
            numbers[there, byte] = content[ends[there] - 1 - byte]
        made = pyarrow.Array.from_buffers(kind, len(array), [validity, pyarrow.py_buffer(numbers)], array.null_count)
        made.validate(full=True)
        # Arrow takes the lowest number of all, which has no positive one, for one without digits.
        if any(made[int(place)].is_valid for place in numpy.flatnonzero(numbers[:, -1] == 0x80)):
            raise pyarrow.ArrowInvalid(f"Decimal value {_LOWEST} does not fit in precision of {kind}")
        return made

    return convert


def _short_numbers(array: pyarrow.BinaryArray) -> pyarrow.BinaryArray:
    """The same numbers in at most 16 bytes each. Raises OverflowError if one has more digits than any decimal."""
    longest = compute.max(compute.binary_length(array)).as_py() or 0
    if longest <= _NUMBER_BYTES:
        return array
    numbers = [None if each is None else int.from_bytes(each, "big", signed=True) for each in array.to_pylist()]
    return pyarrow.array(
        [None if each is None else each.to_bytes(_NUMBER_BYTES, "big", signed=True) for each in numbers],
        pyarrow.binary(),
    )
