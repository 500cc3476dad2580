"""Protobuf messages as Arrow types: a descriptor set, the message in it, and only the fields that are wanted.

Columns have the types of Spark's `from_protobuf` with `upcast.unsigned.ints`: unsigned numbers are wider signed ones,
enums are names, Timestamp is a timestamp, wrappers (StringValue, …) are their value or null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ottla.decoding.protobuf_messages import message_of, read_descriptors
from ottla.decoding.values import ProtobufSchemaError
from ottla.spark.decoding.column_limits import why_too_large

#: Types that are read as the bytes that they are written as, where they are only looked for.
_UNREAD = (descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
_CURE = "name the fields that you want with valueColumns"
#: Decimal digits of the largest uint64.
UINT64_DIGITS = 20


def find_message(descriptor_set: bytes, name: str, wanted: Sequence[str] = ()) -> Descriptor:
    """The message `name`, with the fields `wanted` only, where any are named. Raises ProtobufSchemaError."""
    files = read_descriptors(descriptor_set)
    if wanted:
        _keep_fields(files, name, wanted)
    return message_of(files, name)


def refuse_no_columns(message: Descriptor, names: Sequence[str]) -> None:
    """Refuse the fields of those names that no column can be. Raises ProtobufSchemaError."""
    for name in names:
        field = message.fields_by_name[name]
        if reason := why_too_large(field, _inner):
            raise ProtobufSchemaError(f"field {name}: {reason}; {_CURE}")
        _refuse_field(field, (message.full_name,), name)


def _inner(field: FieldDescriptor) -> tuple[int, Sequence[FieldDescriptor]]:
    """The levels of a field and the fields of its message: two levels for lists and maps, which have no presence."""
    return 2 - field.has_presence, () if field.message_type is None else field.message_type.fields


def column_type(read: pyarrow.DataType) -> pyarrow.DataType:
    """The type of a column that ptars gives as `read`: without unsigned numbers and times of day, which Spark lacks."""
    types = pyarrow.types
    if types.is_uint32(read):
        return pyarrow.int64()
    if types.is_uint64(read):
        return pyarrow.decimal128(UINT64_DIGITS, 0)
    if types.is_time(read):
        return pyarrow.int64()
    if types.is_struct(read):
        return pyarrow.struct([pyarrow.field(field.name, column_type(field.type)) for field in read])
    if types.is_map(read):
        return pyarrow.map_(column_type(read.key_type), column_type(read.item_type))
    if types.is_list(read):
        return pyarrow.list_(pyarrow.field("element", column_type(read.value_type)))
    return read


def _keep_fields(files: descriptor_pb2.FileDescriptorSet, name: str, wanted: Sequence[str]) -> None:
    """Take the other fields out of the message: they are then unknown ones, which readers pass over."""
    for file in files.file:
        prefix = f"{file.package}." if file.package else ""
        for message in file.message_type:
            found = _nested(message, f"{prefix}{message.name}", name)
            if found is not None:
                _keep_only(found, name, wanted)


def _nested(
    message: descriptor_pb2.DescriptorProto, full_name: str, name: str
) -> descriptor_pb2.DescriptorProto | None:
    if full_name == name:
        return message
    for inner in message.nested_type:
        found = _nested(inner, f"{full_name}.{inner.name}", name)
        if found is not None:
            return found
    return None


def _keep_only(message: descriptor_pb2.DescriptorProto, name: str, wanted: Sequence[str]) -> None:
    fields = {field.name: field for field in message.field}
    for each in wanted:
        if each not in fields:
            raise ProtobufSchemaError(f"message {name} has no field {each!r}; it has {', '.join(sorted(fields))}")
    kept = [fields[each] for each in wanted]
    chosen = {field.oneof_index for field in kept if field.HasField("oneof_index")}
    for field in message.field:
        # Of the members of a oneof the last one counts, also if it is none that is wanted.
        if field.name not in wanted and field.HasField("oneof_index") and field.oneof_index in chosen:
            kept.append(field)
            if field.type == descriptor_pb2.FieldDescriptorProto.TYPE_GROUP:
                oneof = message.oneof_decl[field.oneof_index].name
                raise ProtobufSchemaError(
                    f"field {field.name} of oneof {oneof} is a group, which is not read, so that the oneof's other "
                    "fields cannot be either; leave them out of valueColumns"
                )
            if field.type in _UNREAD:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
    groups = sorted({field.oneof_index for field in kept if field.HasField("oneof_index")})
    oneofs = [message.oneof_decl[group] for group in groups]
    for field in kept:
        if field.HasField("oneof_index"):
            field.oneof_index = groups.index(field.oneof_index)
    new = descriptor_pb2.DescriptorProto()
    new.CopyFrom(message)
    del new.field[:]
    del new.oneof_decl[:]
    new.field.extend(kept)
    new.oneof_decl.extend(oneofs)
    message.CopyFrom(new)


def _refuse_field(field: FieldDescriptor, within: tuple[str, ...], path: str) -> None:
    if field.type == FieldDescriptor.TYPE_GROUP:
        raise ProtobufSchemaError(f"field {path} is a group, which is not read; {_CURE}")
    message = field.message_type
    if message is None:
        return
    if message.full_name in within:
        raise ProtobufSchemaError(
            f"field {path} is a {message.full_name} within itself, which no column can be; {_CURE}"
        )
    for each in message.fields:
        _refuse_field(each, (*within, message.full_name), f"{path}.{each.name}")
