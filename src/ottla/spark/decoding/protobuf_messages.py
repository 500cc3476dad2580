"""Protobuf messages as Arrow types: a descriptor set, the message in it, and only the fields that are wanted.

Columns have the types of Spark's `from_protobuf` with `upcast.unsigned.ints`: unsigned numbers are wider signed ones,
enums are names, Timestamp is a timestamp, wrappers (StringValue, …) are their value or null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

#: Decimal digits of the largest uint64.
UINT64_DIGITS = 20


class ProtobufSchemaError(ValueError):
    """A descriptor set or a message that cannot be decoded; the message says what to do."""


def find_message(descriptor_set: bytes, name: str, wanted: Sequence[str] = ()) -> Descriptor:
    """The message `name`, with the fields `wanted` only, where any are named. Raises ProtobufSchemaError."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptor_set)
    except DecodeError:
        files.Clear()
    if not files.file:
        raise ProtobufSchemaError("not a descriptor set; make one with protoc --include_imports --descriptor_set_out")
    if wanted:
        _keep_fields(files, name, wanted)
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        message = pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type)
        raise ProtobufSchemaError(f"no message {name!r}; there are {', '.join(known[:20])}") from None
    except TypeError as problem:
        raise ProtobufSchemaError(f"not whole ({problem}); make it with protoc --include_imports") from None
    if not message.fields:
        raise ProtobufSchemaError(f"message {name} has no fields")
    _refuse_recursion(message, (), "")
    return message


def message_path(message: Descriptor) -> tuple[int, ...]:
    """Where a message stands in its file, as registries write it: its index among those beside it, outer first."""
    path: list[int] = []
    inner: Descriptor | None = message
    while inner is not None:
        outer = inner.containing_type
        beside = outer.nested_types if outer is not None else list(inner.file.message_types_by_name.values())
        path.insert(0, [each.full_name for each in beside].index(inner.full_name))
        inner = outer
    return tuple(path)


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


def _refuse_recursion(message: Descriptor, within: tuple[str, ...], path: str) -> None:
    if message.full_name in within:
        raise ProtobufSchemaError(
            f"field {path} is a {message.full_name} within itself, which no column can be; "
            "name the fields that you want with valueColumns"
        )
    for field in message.fields:
        inner: FieldDescriptor = field
        if inner.message_type is not None:
            _refuse_recursion(inner.message_type, (*within, message.full_name), f"{path}.{field.name}".lstrip("."))
