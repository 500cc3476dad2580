"""Types of Avro's schemas as columns: Arrow types, and how values get their logical types.

Columns have the types of Spark's `from_avro`: enums are strings, fixed is binary, a union with null is nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as compute

from ottla.decoding.avro_schemas import AvroNode, AvroSchemaError, NodeField, parse_node
from ottla.spark.decoding import column_limits

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
_CURE = "leave that field out, or name the fields that you want with valueColumns"


@dataclass(frozen=True)
class AvroType:
    """A type that is a column. `raw` is its Arrow type without logical types, `kind` the column's."""

    node: AvroNode = field(repr=False)
    raw: pyarrow.DataType
    kind: pyarrow.DataType
    convert: Callable[[pyarrow.Array], pyarrow.Array] | None = None


@dataclass(frozen=True)
class AvroColumn:
    """A field of the record that values are."""

    field: NodeField
    type: AvroType

    def made_of(self, raw: pyarrow.Array) -> pyarrow.Array:
        """The column of values without logical types."""
        return raw if self.type.convert is None else self.type.convert(raw)


@dataclass(frozen=True)
class AvroColumns:
    """The schema of columns: fields of a record, all of them or those that are wanted."""

    node: AvroNode = field(repr=False)
    columns: tuple[AvroColumn, ...]

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns."""
        return pyarrow.schema([pyarrow.field(each.field.name, each.type.kind) for each in self.columns])


def parse_columns(text: str, references: Sequence[str] = (), wanted: Sequence[str] = ()) -> AvroColumns:
    """The columns of a schema in JSON; a field that is not wanted may be of any type. Raises AvroSchemaError."""
    node = parse_node(text, references)
    fields = {each.name: each for each in node.fields}
    for name in wanted:
        if name not in fields:
            raise AvroSchemaError(f"there is no column {name!r}; there are {', '.join(fields)}")
    names = list(wanted) or list(fields)
    if not names:
        raise AvroSchemaError("the record has no fields")
    for name in names:
        if reason := why_too_large(fields[name].node):
            raise AvroSchemaError(f"{name}: {reason}; {_CURE}")
    columns = tuple(AvroColumn(fields[name], _column(fields[name].node, name, (node.name,))) for name in names)
    return AvroColumns(node, columns)


def why_too_large(node: AvroNode) -> str:
    """Why a type is too large for a column; empty if it is not."""
    return column_limits.why_too_large(node, _inner)


def _inner(node: AvroNode) -> tuple[int, list[AvroNode]]:
    inner = [*node.branches, *(each.node for each in node.fields), *([node.items] if node.items else [])]
    return {"union": 0, "map": 2}.get(node.type, 1), inner


def _column(node: AvroNode, path: str, within: tuple[str, ...]) -> AvroType:
    """The column of a type. `within` are the records around it."""
    if node.type in _PRIMITIVES:
        return _logical(node.logical, AvroType(node, _PRIMITIVES[node.type], _PRIMITIVES[node.type]))
    if node.type == "union":
        branches = [each for each in node.branches if each.type != "null"]
        if len(branches) != 1:
            raise AvroSchemaError(
                f"{path}: a union of several types is not a column, only one type and null can be read; {_CURE}"
            )
        inner = _column(branches[0], path, within)
        return AvroType(node, inner.raw, inner.kind, inner.convert)
    if node.type == "enum":
        return AvroType(node, pyarrow.string(), pyarrow.string())
    if node.type == "fixed":
        return _logical(node.logical, AvroType(node, pyarrow.binary(), pyarrow.binary()))
    if node.type == "array":
        return _list_of(node, _column(node.item, path, within))
    if node.type == "map":
        return _map_of(node, _column(node.item, path, within))
    if node.type == "record":
        return _struct(node, path, within)
    raise AvroSchemaError(f"{path}: {node.type} is not a column; {_CURE}")


def _struct(node: AvroNode, path: str, within: tuple[str, ...]) -> AvroType:
    if node.name in within:
        raise AvroSchemaError(f"{path}: {node.name!r} is within itself, which no column can be; {_CURE}")
    if not node.fields:
        raise AvroSchemaError(f"{path}: a record without fields is not a column; {_CURE}")
    inner = (*within, node.name)
    children = tuple(_column(each.node, f"{path}.{each.name}", inner) for each in node.fields)
    named = list(zip(node.fields, children, strict=True))
    raw = pyarrow.struct([pyarrow.field(each.name, child.raw) for each, child in named])
    kind = pyarrow.struct([pyarrow.field(each.name, child.kind) for each, child in named])
    convert = _converted_struct(kind, children) if any(child.convert for child in children) else None
    return AvroType(node, raw, kind, convert)


def _list_of(node: AvroNode, item: AvroType) -> AvroType:
    raw = pyarrow.list_(pyarrow.field("element", item.raw))
    kind = pyarrow.list_(pyarrow.field("element", item.kind))
    convert = None
    if item.convert is not None:

        def convert(array: pyarrow.Array) -> pyarrow.Array:
            return _with_children(array, kind, [_converted(array.values, item)])

    return AvroType(node, raw, kind, convert)


def _map_of(node: AvroNode, item: AvroType) -> AvroType:
    kind = pyarrow.map_(pyarrow.string(), item.kind)
    convert = None
    if item.convert is not None:

        def convert(array: pyarrow.Array) -> pyarrow.Array:
            entries = pyarrow.StructArray.from_arrays(
                [array.keys, _converted(array.items, item)], fields=[kind.key_field, kind.item_field]
            )
            return _with_children(array, kind, [entries])

    return AvroType(node, pyarrow.map_(pyarrow.string(), item.raw), kind, convert)


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


def _logical(node: dict[str, Any] | None, plain: AvroType) -> AvroType:
    """The type with its logical type. One that is unknown or does not fit is ignored, as the specification has it."""
    if node is None:
        return plain
    logical = node.get("logicalType")
    if isinstance(logical, str) and logical in _TIMES and plain.raw == _PRIMITIVES[_TIMES[logical][0]]:
        steps = _TIMES[logical][1]

        def convert_time(array: pyarrow.Array) -> pyarrow.Array:
            for step in steps:
                array = array.cast(step)
            return array

        return AvroType(plain.node, plain.raw, steps[-1], convert_time)
    if logical == "decimal" and pyarrow.types.is_binary(plain.raw):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision <= _MAX_PRECISION and precision:
            kind = pyarrow.decimal128(precision, scale)
            return AvroType(plain.node, plain.raw, kind, _decimals(kind))
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
