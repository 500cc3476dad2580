"""Protobuf messages as JSON, in Protobuf's own mapping with the names of the .proto file. Needs Google's protobuf."""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.decoding.framing import take_indexes
from ottla.decoding.protobuf_messages import message_at
from ottla.decoding.registry import SchemaText
from ottla.decoding.values import Decode, ProtobufSchemaError, UndecodableError, UnfitError, text_of

#: Files of Google's that schemas refer to, and no registry has.
_KNOWN: Final = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
                 "type", "wrappers")  # fmt: skip


def protobuf_decoder(message: Descriptor) -> Decode:
    """Decodes messages of one type."""
    made = GetMessageClass(message)

    def decode(data: bytes) -> bytes:
        try:
            found = MessageToDict(
                made.FromString(data), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (DecodeError, Error, ValueError, TypeError) as problem:
            raise UndecodableError(f"not a {message.full_name}: {problem}") from None
        return text_of(found)

    return decode


class ProtobufEncoder:
    """Writes messages of one type."""

    takes_text = False

    def __init__(self, message: Descriptor) -> None:
        self._name = message.full_name
        self._class = GetMessageClass(message)

    def encode(self, value: Any) -> bytes:
        """Bytes of the message that JSON describes. Raises UnfitError."""
        try:
            return bytes(ParseDict(value, self._class()).SerializeToString(deterministic=True))
        except (Error, EncodeError, ValueError, TypeError, AttributeError) as problem:
            raise UnfitError(f"not a {self._name}: {problem}") from None


def registered_decoder(schema: SchemaText) -> Decode:
    """Decodes messages of a registry's schema, which begin with their indexes. Raises ProtobufSchemaError."""
    file = registered_file(schema)
    known: dict[tuple[int, ...], Decode] = {}

    def decode(data: bytes) -> bytes:
        indexes = take_indexes(data)
        if indexes is None:
            raise UndecodableError("no message indexes behind the schema id")
        path, start = indexes
        if path not in known:
            message = message_at(file, path)
            if message is None:
                raise UndecodableError(f"its schema has no message at {list(path)}")
            known[path] = protobuf_decoder(message)
        return known[path](data[start:])

    return decode


def registered_file(schema: SchemaText) -> FileDescriptor:
    """The file of a registry's schema, a serialized descriptor in base64. Raises ProtobufSchemaError."""
    pool = descriptor_pool.DescriptorPool()
    try:
        files = [_file(text, name) for text, name in zip(schema.references, schema.names, strict=True)]
        # Its own name says nothing: registries call each schema alike.
        main = _file(schema.text, "its schema")
        there = {each.name for each in files}
        for each in (*files, main):
            for name in each.dependency:
                _add_known(pool, name, there)
        for each in (*files, main):
            pool.Add(each)
        return pool.FindFileByName(main.name)
    except (binascii.Error, DecodeError, UnicodeEncodeError):
        raise ProtobufSchemaError("it is not a serialized descriptor of a .proto file") from None
    except (KeyError, TypeError) as problem:
        raise ProtobufSchemaError(f"it is not whole: {problem}") from None


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.encode("ascii"), validate=True))
    file.name = name
    return file


def _add_known(pool: descriptor_pool.DescriptorPool, name: str, there: set[str]) -> None:
    """Add a file of Google's, with those that it uses."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if name in there or stem not in _KNOWN or name != f"google/protobuf/{stem}.proto":
        return
    there.add(name)
    file = descriptor_pb2.FileDescriptorProto()
    import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(file)
    for each in file.dependency:
        _add_known(pool, each, there)
    pool.Add(file)
