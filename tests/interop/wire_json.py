"""A second opinion on the wire format: a small interpreter of Apache Kafka's own message definitions.

It reads `common/message/*.json` out of the kafka-clients jar and shares no line with `ottla.wire`, so that a mistake
there cannot hide itself. Messages are plain dicts; field names are Kafka's in snake_case.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
FOREVER = 1 << 15


def snake(name: str) -> str:
    """`CurrentLeaderEpoch` -> `current_leader_epoch`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def versions(text: str | None) -> tuple[int, int]:
    """`"3+"`, `"0-12"`, `"4"`, `"none"` as an inclusive range (empty ones have their end before their start)."""
    if text is None or text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), FOREVER)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def within(version: int, span: tuple[int, int]) -> bool:
    return span[0] <= version <= span[1]


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tagged: tuple[int, int]
    tag: int
    default: Any
    fields: tuple[Field, ...]
    always_plain: bool


@dataclass(frozen=True)
class Definition:
    name: str
    api_key: int
    versions: tuple[int, int]
    flexible: tuple[int, int]
    fields: tuple[Field, ...]


def _default(spec: Json) -> Any:
    kind, given = spec["type"], spec.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind in NUMBERS:
        return float(given or 0) if kind == "float64" else int(str(given or 0).strip(), 0)
    if kind == "bool":
        return str(given).lower() == "true"
    return {"string": given or "", "bytes": b"", "records": None, "uuid": uuid.UUID(int=0)}.get(kind, ...)


def _field(spec: Json, shared: dict[str, list[Json]]) -> Field:
    element = spec["type"].removeprefix("[]")
    inner = spec.get("fields", shared.get(element, []))
    return Field(
        name=snake(spec["name"]),
        type=spec["type"],
        versions=versions(spec.get("versions", spec.get("taggedVersions"))),
        nullable=versions(spec.get("nullableVersions")),
        tagged=versions(spec.get("taggedVersions")),
        tag=spec.get("tag", -1),
        default=_default(spec),
        fields=tuple(_field(one, shared) for one in inner),
        always_plain=spec.get("flexibleVersions") == "none",
    )


class Definitions:
    """All messages of one kafka-clients jar."""

    def __init__(self, libs: Path) -> None:
        (jar,) = libs.glob("kafka-clients-*.jar")
        self._texts: dict[str, str] = {}
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.startswith("common/message/") and entry.endswith(".json"):
                    self._texts[Path(entry).stem] = archive.read(entry).decode()
        self.message = cache(self._message)
        self.keys = {
            self.message(name).api_key: name.removesuffix("Request") for name in self._texts if name.endswith("Request")
        }

    def _message(self, name: str) -> Definition:
        spec = json.loads(re.sub(r"^\s*//.*$", "", self._texts[name], flags=re.MULTILINE))
        shared = {one["name"]: one["fields"] for one in spec.get("commonStructs", [])}
        return Definition(
            name=name,
            api_key=spec.get("apiKey", -1),
            versions=versions(spec["validVersions"]),
            flexible=versions(spec["flexibleVersions"]),
            fields=tuple(_field(one, shared) for one in spec["fields"]),
        )

    def encode(self, name: str, version: int, values: Json) -> bytes:
        """The bytes of a message; what `values` leaves out gets its default; a wrong name is a KeyError."""
        message = self.message(name)
        out = bytearray()
        _write_struct(out, message.fields, version, within(version, message.flexible), values)
        return bytes(out)

    def decode(self, name: str, version: int, data: bytes) -> Json:
        """A message from its bytes, all of which must be used up."""
        message = self.message(name)
        reader = Reader(data)
        values = _read_struct(reader, message.fields, version, within(version, message.flexible))
        if reader.position != len(data):
            raise ValueError(f"{name} v{version}: {len(data) - reader.position} bytes too many")
        return values


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, kind: str) -> Any:
        shape = NUMBERS[kind]
        return struct.unpack(shape, self.take(struct.calcsize(shape)))[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _size(kind: str, size: int | None, flexible: bool) -> bytes:
    if flexible:
        return varint(0 if size is None else size + 1)
    return struct.pack(">h" if kind == "string" else ">i", -1 if size is None else size)


def _write_struct(out: bytearray, fields: tuple[Field, ...], version: int, flexible: bool, values: Json) -> None:
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise KeyError(f"no such field: {sorted(unknown)}")
    tags: dict[int, bytes] = {}
    for field in fields:
        if not within(version, field.versions):
            continue
        value = values.get(field.name, field.default)
        if value is ...:
            value = {}
        if flexible and within(version, field.tagged):
            if field.name in values:
                inner = bytearray()
                _write(inner, field, field.type, version, flexible, value)
                tags[field.tag] = bytes(inner)
        else:
            _write(out, field, field.type, version, flexible and not field.always_plain, value)
    if flexible:
        out += varint(len(tags))
        for tag, data in sorted(tags.items()):
            out += varint(tag) + varint(len(data)) + data


def _write(out: bytearray, field: Field, kind: str, version: int, flexible: bool, value: Any) -> None:
    if kind in NUMBERS:
        out += struct.pack(NUMBERS[kind], value)
    elif kind == "bool":
        out.append(1 if value else 0)
    elif kind == "uuid":
        out += value.bytes
    elif kind in ("string", "bytes", "records"):
        data = value.encode() if isinstance(value, str) else value
        out += _size(kind, None if data is None else len(data), flexible) + (data or b"")
    elif kind.startswith("[]"):
        out += _size(kind, None if value is None else len(value), flexible)
        for one in value or ():
            _write(out, field, kind[2:], version, flexible, one)
    else:
        if within(version, field.nullable) and not field.type.startswith("[]"):
            out += b"\xff" if value is None else b"\x01"
        if value is not None:
            _write_struct(out, field.fields, version, flexible, value)


def _read_struct(reader: Reader, fields: tuple[Field, ...], version: int, flexible: bool) -> Json:
    values: Json = {}
    for field in fields:
        if not within(version, field.versions):
            continue
        if flexible and within(version, field.tagged):
            values[field.name] = None if field.default is ... else field.default
        else:
            values[field.name] = _read(reader, field, field.type, version, flexible and not field.always_plain)
    if flexible:
        by_tag = {field.tag: field for field in fields if within(version, field.tagged)}
        for _ in range(reader.varint()):
            tag, size = reader.varint(), reader.varint()
            inner = Reader(reader.take(size))
            if tag in by_tag:
                values[by_tag[tag].name] = _read(inner, by_tag[tag], by_tag[tag].type, version, flexible)
            else:
                values.setdefault("_unknown_tags", {})[tag] = inner.data
    return values


def _read(reader: Reader, field: Field, kind: str, version: int, flexible: bool) -> Any:
    if kind in NUMBERS:
        return reader.number(kind)
    if kind == "bool":
        return reader.take(1) != b"\0"
    if kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if kind in ("string", "bytes", "records") or kind.startswith("[]"):
        size = reader.varint() - 1 if flexible else reader.number("int16" if kind == "string" else "int32")
        if size < 0:
            return None
        if kind.startswith("[]"):
            return [_read(reader, field, kind[2:], version, flexible) for _ in range(size)]
        data = reader.take(size)
        return data.decode() if kind == "string" else data
    if within(version, field.nullable) and not field.type.startswith("[]") and reader.take(1) == b"\xff":
        return None
    return _read_struct(reader, field.fields, version, flexible)
