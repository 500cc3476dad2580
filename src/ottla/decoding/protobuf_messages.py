"""Protobuf messages of descriptor sets, and where they are in their file. Needs Google's protobuf."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from ottla.decoding.values import ProtobufSchemaError

#: Messages that an error lists.
MAX_NAMES = 20


def read_descriptors(descriptor_set: bytes) -> descriptor_pb2.FileDescriptorSet:
    """Read a descriptor set. Raises ProtobufSchemaError."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptor_set)
    except DecodeError:
        files.Clear()
    if not files.file:
        raise ProtobufSchemaError("not a descriptor set; make one with protoc --include_imports --descriptor_set_out")
    return files


def message_of(files: descriptor_pb2.FileDescriptorSet, name: str) -> Descriptor:
    """The message `name`, which has fields. Raises ProtobufSchemaError."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        message = pool.FindMessageTypeByName(name)
    except KeyError:
        known = sorted(f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type)
        raise ProtobufSchemaError(f"no message {name!r}; there are {', '.join(known[:MAX_NAMES])}") from None
    except TypeError as problem:
        raise ProtobufSchemaError(f"not whole ({problem}); make it with protoc --include_imports") from None
    if not message.fields:
        raise ProtobufSchemaError(f"message {name} has no fields")
    return message


def message_at(file: FileDescriptor, path: tuple[int, ...]) -> Descriptor | None:
    """The message at a path in its file, as some registry writes it; None where there are only others."""
    for with_entries in (True, False):
        for name, each in _paths(file, with_entries=with_entries).items():
            message = file.pool.FindMessageTypeByName(name)
            if each == path and not message.GetOptions().map_entry:
                return message
    return None


def message_in(file: FileDescriptor, name: str | None) -> Descriptor:
    """The message of a file by its full name, the first one without a name. Raises ProtobufSchemaError."""
    names = list(_paths(file, with_entries=False))
    if name is not None and name not in names:
        raise ProtobufSchemaError(f"no message {name!r}; there are {', '.join(names[:MAX_NAMES])}")
    if not names:
        raise ProtobufSchemaError("its file has no message")
    return file.pool.FindMessageTypeByName(name or names[0])


def message_paths(message: Descriptor) -> tuple[tuple[int, ...], ...]:
    """Return a message's paths in its file, as registries write them: indexes among its siblings, outer first.

    A map field has an entry message of its own beside the others, which only some serializers count. The path without
    entries comes second, unless another message has it.
    """
    counted, uncounted = _paths(message.file, with_entries=True), _paths(message.file, with_entries=False)
    path, short = counted[message.full_name], uncounted.get(message.full_name, ())
    others = {each for name, each in counted.items() if name != message.full_name and name in uncounted}
    return (path,) if short in others or short in ((), path) else (path, short)


def _paths(file: FileDescriptor, *, with_entries: bool) -> dict[str, tuple[int, ...]]:
    """The path of each message by its full name, with or without the entry messages of map fields."""
    paths: dict[str, tuple[int, ...]] = {}

    def add(messages: Sequence[Descriptor], outer: tuple[int, ...]) -> None:
        counted = [each for each in messages if with_entries or not each.GetOptions().map_entry]
        for place, each in enumerate(counted):
            paths[each.full_name] = (*outer, place)
            add(each.nested_types, (*outer, place))

    add(list(file.message_types_by_name.values()), ())
    return paths
