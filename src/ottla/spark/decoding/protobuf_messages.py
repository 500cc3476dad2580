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

#: Types that are read as the bytes that they are written as, where they are only looked for.
_UNREAD = (descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
_CURE = "name the fields that you want with valueColumns"
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
    return message


def refuse_no_columns(message: Descriptor, names: Sequence[str]) -> None:
    """Refuse the fields of those names that no column can be. Raises ProtobufSchemaError."""
    for name in names:
        _refuse_field(message.fields_by_name[name], (message.full_name,), name)


def message_paths(message: Descriptor) -> tuple[tuple[int, ...], ...]:
    """Return a message's paths in its file, as registries write them: indexes among its siblings, outer first.

    A map field has an entry message of its own beside the others, which only some serializers count. The path without
    entries comes second, unless another message has it.
    """
    file = message.file
    others = [each for top in file.message_types_by_name.values() for each in _with_nested(top) if each is not message]
    counted, uncounted = _path(message, with_entries=True), _path(message, with_entries=False)
    is_taken = uncounted in {_path(each, with_entries=True) for each in others if not _is_entry(each)}
    return (counted,) if is_taken or uncounted == counted else (counted, uncounted)


def _path(message: Descriptor, *, with_entries: bool) -> tuple[int, ...]:
    path: list[int] = []
    inner: Descriptor | None = message
    while inner is not None:
        outer = inner.containing_type
        beside = outer.nested_types if outer is not None else list(inner.file.message_types_by_name.values())
        counted = [each.full_name for each in beside if with_entries or not _is_entry(each)]
        path.insert(0, counted.index(inner.full_name))
        inner = outer
    return tuple(path)


def _is_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)


def _with_nested(message: Descriptor) -> list[Descriptor]:
    return [message, *(found for each in message.nested_types for found in _with_nested(each))]


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
