"""The slow codec: walks the declarations field by field, one small step each.

It is what the protocol guide says (https://kafka.apache.org/protocol#protocol_types, KIP-482), written to be checked
by reading. `ottla.wire.compile` must give equal bytes and equal objects; tests hold the two against each other.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any, TypeVar

from ottla.wire.errors import WireError
from ottla.wire.schema import BYTES, RECORDS, STRING, UUID, ArrayKind, Field, Kind, Message, Struct, StructKind

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)

MAX_STRING_LENGTH = 0x7FFF
MAX_VARINT_BYTES = 5


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in a version. Raises WireError when the version cannot express it."""
    writer = _Writer(version, version >= message.SCHEMA.flexible_since)
    writer.struct(message)
    return bytes(writer.out)


def decode_prefix(cls: type[M], data: bytes | memoryview, version: int, offset: int = 0) -> tuple[M, int]:
    """The message at `offset` and where it ends. Raises WireError when there is none."""
    reader = _Reader(memoryview(data), version, version >= cls.SCHEMA.flexible_since)
    reader.position = offset
    decoded = reader.struct(cls)
    return decoded, reader.position


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.out = bytearray()

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def length(self, length: int | None, fixed_format: str) -> None:
        """A length in front of a string, bytes or array: compact (plus one, 0 for null) or of fixed width."""
        if self.flexible:
            self.varint(0 if length is None else length + 1)
        else:
            self.out += struct.pack(">" + fixed_format, -1 if length is None else length)

    def struct(self, value: Struct) -> None:
        tagged: dict[int, bytes] = {}
        for f in value.SCHEMA.fields:
            item = getattr(value, f.name)
            if not f.present(self.version):
                if not f.ignorable and not f.is_default(item):
                    raise WireError(f"{f.name} of {value.SCHEMA.name} cannot be expressed in version {self.version}")
            elif f.tag is None:
                self.field(f, item)
            elif not f.is_default(item):
                inner = _Writer(self.version, self.flexible)
                inner.field(f, item)
                tagged[f.tag] = bytes(inner.out)
        unknown = value.unknown_tagged_fields or {}
        if self.flexible:
            tagged.update(unknown)
            self.varint(len(tagged))
            for tag in sorted(tagged):
                self.varint(tag)
                self.varint(len(tagged[tag]))
                self.out += tagged[tag]
        elif unknown:
            raise WireError(f"tagged fields of {value.SCHEMA.name} cannot be expressed in version {self.version}")

    def field(self, f: Field, value: Any) -> None:
        if value is None and not f.nullable(self.version):
            raise WireError(f"{f.name} must not be null in version {self.version}")
        if isinstance(f.kind, StructKind) and f.nullable(self.version):
            self.out.append(0xFF if value is None else 1)
            if value is None:
                return
        self.value(f.kind, value)

    def value(self, kind: Kind, value: Any) -> None:
        if isinstance(kind, StructKind):
            self.struct(value)
        elif isinstance(kind, ArrayKind):
            self.length(None if value is None else len(value), "i")
            for item in value or ():
                if isinstance(kind.element, Kind):
                    self.value(kind.element, item)
                else:
                    self.struct(item)
        elif kind is STRING:
            data = None if value is None else value.encode()
            if data is not None and len(data) > MAX_STRING_LENGTH:
                raise WireError(f"a string of {len(data)} bytes is too long")
            self.length(None if data is None else len(data), "h")
            self.out += data or b""
        elif kind is BYTES or kind is RECORDS:
            self.length(None if value is None else len(value), "i")
            self.out += value or b""
        elif kind is UUID:
            self.out += value.bytes
        else:
            assert kind.format is not None
            self.out += struct.pack(">" + kind.format, value)


class _Reader:
    def __init__(self, data: memoryview, version: int, flexible: bool) -> None:
        self.data = data
        self.version = version
        self.flexible = flexible
        self.position = 0

    def take(self, count: int) -> memoryview:
        end = self.position + count
        if end > len(self.data):
            raise WireError(f"{count} bytes expected, {len(self.data) - self.position} are there")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def varint(self) -> int:
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise WireError("a varint is longer than five bytes")

    def length(self, fixed_format: str) -> int:
        """A length, -1 for null."""
        if self.flexible:
            return self.varint() - 1
        (length,) = struct.unpack(">" + fixed_format, self.take(struct.calcsize(fixed_format)))
        if length < -1:
            raise WireError(f"negative length {length}")
        return int(length)

    def struct(self, cls: type[S]) -> S:
        values: dict[str, Any] = {}
        for f in cls.SCHEMA.fields:
            values[f.name] = f.new_default()
            if f.present(self.version) and f.tag is None:
                values[f.name] = self.field(f)
        unknown: dict[int, bytes] = {}
        if self.flexible:
            known = {f.tag: f for f in cls.SCHEMA.fields if f.tag is not None and f.present(self.version)}
            for _ in range(self.varint()):
                tag = self.varint()
                content = self.take(self.varint())
                if tag in known:
                    inner = _Reader(content, self.version, True)
                    values[known[tag].name] = inner.field(known[tag])
                    if inner.position != len(content):
                        raise WireError(f"tagged field {tag} is longer than its content")
                else:
                    unknown[tag] = bytes(content)
        made = cls(**values)
        made.unknown_tagged_fields = unknown or None
        return made

    def field(self, f: Field) -> Any:
        if isinstance(f.kind, StructKind) and f.nullable(self.version):
            (mark,) = struct.unpack("b", self.take(1))
            if mark < 0:
                return None
        value = self.value(f.kind)
        if value is None and not f.nullable(self.version):
            raise WireError(f"{f.name} must not be null in version {self.version}")
        return value

    def value(self, kind: Kind) -> Any:
        if isinstance(kind, StructKind):
            return self.struct(kind.struct)
        if isinstance(kind, ArrayKind):
            return self.array(kind)
        if kind is STRING:
            length = self.length("h")
            if length > MAX_STRING_LENGTH:
                raise WireError(f"a string of {length} bytes is too long")
            try:
                return None if length < 0 else str(self.take(length), "utf-8")
            except UnicodeDecodeError as error:
                raise WireError(f"a string is not UTF-8: {error}") from error
        if kind is BYTES:
            length = self.length("i")
            return None if length < 0 else bytes(self.take(length))
        if kind is RECORDS:
            length = self.length("i")
            return None if length < 0 else self.take(length)
        if kind is UUID:
            return uuid.UUID(bytes=bytes(self.take(16)))
        assert kind.format is not None
        return struct.unpack(">" + kind.format, self.take(kind.size))[0]

    def array(self, kind: ArrayKind) -> list[Any] | None:
        count = self.length("i")
        if count < 0:
            return None
        element = kind.element
        if isinstance(element, Kind):
            return [self.value(element) for _ in range(count)]
        return [self.struct(element) for _ in range(count)]
