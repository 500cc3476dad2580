"""Columns that the JSON readers give as another type, to theirs: dates, timestamps, bytes from text, and decimals.

Only what pyarrow reads as Spark does is read here; anything else raises UnreadableError, and is then read one by one.
"""

from __future__ import annotations

import base64
import binascii

import numpy
import pyarrow
import pyarrow.compute as compute

from ottla.spark.decoding.halving import UnreadableError

#: `2024-02-29T12:34:56`: where the seconds' colon stands, and the length without fraction and zone.
SECONDS_COLON = 16
LENGTH_TO_SECONDS = 19
DATE_LENGTH = 10
#: The digits of a decimal of 256 bits. It holds any number with 38 digits on each side of its point.
WIDEST_DECIMAL = 76
#: A number that pyarrow's JSON reader must not see if a column is a decimal: it does not look at the size of exponents,
#: so that such numbers wrap round, or end the process.
_WILD_NUMBER = r"[:\[,][ \t\r\n]*-?(?:[0-9]{30}|[0-9]+\.[0-9]{39}|[0-9]+(?:\.[0-9]+)?[eE][+-]?0*[1-9][0-9])"


def needs_conversion(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type, or something in it, has to be converted or checked after it was read."""
    types = pyarrow.types
    if types.is_temporal(kind) or types.is_binary(kind) or types.is_decimal(kind):
        return True
    return any(needs_conversion(kind.field(index).type) for index in range(kind.num_fields))


def read_as(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type as which the JSON readers are to read a column of type `kind`."""
    types = pyarrow.types
    if types.is_temporal(kind) or types.is_binary(kind):
        return pyarrow.string()
    if types.is_decimal(kind):
        return pyarrow.decimal256(WIDEST_DECIMAL, kind.scale)
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pyarrow.struct([pyarrow.field(field.name, read_as(field.type)) for field in fields])
    if types.is_list(kind):
        return pyarrow.list_(pyarrow.field(kind.field(0).name, read_as(kind.value_type)))
    return kind


def has_decimal(kind: pyarrow.DataType) -> bool:
    """Whether a column of this type is a decimal, or has one in it."""
    return pyarrow.types.is_decimal(kind) or any(
        has_decimal(kind.field(index).type) for index in range(kind.num_fields)
    )


def first_wild_number(documents: pyarrow.BinaryArray) -> int | None:
    """The first document with a number that pyarrow's JSON reader must not see if a column is a decimal."""
    found = compute.match_substring_regex(documents, _WILD_NUMBER)
    place = compute.index(found, True).as_py()
    return None if place < 0 else place


def read_columns(array: pyarrow.Array, kind: pyarrow.DataType, time_zone: str) -> pyarrow.Array:
    """A column read as `read_as(kind)`, as `kind`. Raises UnreadableError."""
    types = pyarrow.types
    if not needs_conversion(kind):
        return array
    if types.is_struct(kind) or types.is_list(kind):
        return _nested(array, kind, time_zone)
    if types.is_decimal(kind):
        return _decimals(array, kind)
    if array.null_count == len(array):
        return pyarrow.nulls(len(array), kind)
    try:
        if types.is_binary(kind):
            return _decoded(array)
        if types.is_date(kind):
            return array.cast(kind)
        return _timestamps(array, kind, time_zone)
    except (pyarrow.ArrowInvalid, binascii.Error, ValueError) as problem:
        raise UnreadableError from problem


def _nested(array: pyarrow.Array, kind: pyarrow.DataType, time_zone: str) -> pyarrow.Array:
    if array.offset:
        array = pyarrow.concat_arrays([array])
    buffers = array.buffers()
    if pyarrow.types.is_struct(kind):
        children = [
            read_columns(array.field(index), kind.field(index).type, time_zone) for index in range(kind.num_fields)
        ]
        return pyarrow.Array.from_buffers(kind, len(array), buffers[:1], array.null_count, children=children)
    values = read_columns(array.values, kind.value_type, time_zone)
    return pyarrow.Array.from_buffers(kind, len(array), buffers[:2], array.null_count, children=[values])


def _decimals(array: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """Decimals of 256 bits as those of the column. Raises UnreadableError for one with more digits than it has."""
    try:
        return array.cast(kind)
    except pyarrow.ArrowInvalid as problem:
        raise UnreadableError from problem


def _decoded(array: pyarrow.StringArray) -> pyarrow.BinaryArray:
    texts = array.to_pylist()
    return pyarrow.array(
        [None if text is None else base64.b64decode(text, validate=True) for text in texts], pyarrow.binary()
    )


def _timestamps(array: pyarrow.StringArray, kind: pyarrow.DataType, time_zone: str) -> pyarrow.Array:
    """Timestamps that go to the seconds, all of them with a zone, or all of them without."""
    present = array.drop_null() if array.null_count else array
    _, positions, data = present.buffers()
    offsets = numpy.frombuffer(positions, numpy.int32)[present.offset : present.offset + len(present) + 1]
    content = numpy.frombuffer(data, numpy.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    if (ends - starts < LENGTH_TO_SECONDS).any() or (content[starts + SECONDS_COLON] != ord(":")).any():
        raise UnreadableError
    if kind.tz is None:
        return array.cast(kind)
    if (content[ends - 1] == ord("Z")).all():
        return array.cast(kind)
    if _with_offset(content, starts, ends).all():
        if not compute.all(compute.match_substring_regex(present, r"[+-](0[0-9]|1[0-7]):[0-5][0-9]$|Z$")).as_py():
            raise UnreadableError
        return array.cast(kind)
    local = array.cast(pyarrow.timestamp("us"))
    return compute.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="raise").cast(kind)


def _with_offset(content: numpy.ndarray, starts: numpy.ndarray, ends: numpy.ndarray) -> numpy.ndarray:
    """Which timestamps end with Z or an offset such as +01:00."""
    signs = content[numpy.maximum(ends - 6, starts)]
    return numpy.asarray((content[ends - 1] == ord("Z")) | (signs == ord("+")) | (signs == ord("-")))
