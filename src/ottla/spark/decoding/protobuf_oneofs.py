"""Messages with more than one member of a oneof on the wire, of which the last one counts: found in columns."""

from __future__ import annotations

import numpy
import pyarrow
from google.protobuf.descriptor import Descriptor, FieldDescriptor


def has_oneof(message: Descriptor, within: frozenset[str] = frozenset()) -> bool:
    """Whether a message, or one in it, has a oneof of several fields."""
    if message.full_name in within:
        return False
    inner = within | {message.full_name}
    return any(len(each.fields) > 1 for each in message.oneofs) or any(
        field.message_type is not None and has_oneof(field.message_type, inner) for field in message.fields
    )


def several_members(messages: pyarrow.StructArray, message: Descriptor) -> numpy.ndarray:
    """Which messages have, at any depth, more than one member of a oneof."""
    found = numpy.zeros(len(messages), bool)
    for oneof in message.oneofs:
        if len(oneof.fields) > 1:
            members = [_is_there(messages.field(field.name)) for field in oneof.fields if _has(messages, field)]
            found |= numpy.sum(members, axis=0, dtype=numpy.int64) > 1
    for field in message.fields:
        if field.message_type is not None and _has(messages, field) and has_oneof(field.message_type):
            found |= _within(messages.field(field.name), field.message_type)
    return numpy.asarray(found & _is_there(messages))


def _has(messages: pyarrow.StructArray, field: FieldDescriptor) -> bool:
    return bool(messages.type.get_field_index(field.name) >= 0)


def _is_there(array: pyarrow.Array) -> numpy.ndarray:
    return numpy.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _within(array: pyarrow.Array, message: Descriptor | None) -> numpy.ndarray:
    """Which rows of a column, of messages, of lists or of maps of them, have such a message."""
    types = pyarrow.types
    if message is None:
        return numpy.zeros(len(array), bool)
    if types.is_struct(array.type):
        return several_members(array, message)
    found = numpy.zeros(len(array), bool)
    if types.is_map(array.type):
        value = message.fields_by_name["value"].message_type
        inner = _within(array.items, value)
    elif types.is_list(array.type):
        inner = _within(array.values, message)
    else:
        return found
    rows = numpy.searchsorted(array.offsets.to_numpy(), numpy.flatnonzero(inner), side="right") - 1
    found[rows] = True
    return found
