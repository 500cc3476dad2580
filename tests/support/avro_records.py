"""Seeded values of Avro schemas, as they are written, and bytes of them that were broken."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import fastavro

Schema = Any

LEAST_INT, MOST_INT = -(1 << 31), (1 << 31) - 1
LEAST_LONG, MOST_LONG = -(1 << 63), (1 << 63) - 1
#: Days, and units of time, around 1970; Python's own dates do not matter, since values are numbers.
DAYS, UNITS = 800_000, 10**13

_PRIMITIVES: dict[str, Callable[[Random], Any]] = {
    "null": lambda _: None,
    "boolean": lambda chance: chance.random() < 0.5,
    "int": lambda chance: chance.choice((0, -1, LEAST_INT, MOST_INT, chance.randrange(-999, 999))),
    "long": lambda chance: chance.choice((0, -1, LEAST_LONG, MOST_LONG, chance.randrange(-9999, 9999))),
    "float": lambda chance: chance.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), chance.random() * 1e30)),
    "double": lambda chance: chance.choice((0.0, -0.0, float("nan"), float("-inf"), chance.gauss(0, 1e9))),
    "string": lambda chance: chance.choice(("", "x", "grün 😀", "\x00", "a" * 200)),
    "bytes": lambda chance: chance.randbytes(chance.randrange(5)),
}
_LOGICAL: dict[str, Callable[[Random], int]] = {
    "date": lambda chance: chance.randrange(-DAYS, DAYS),
    "timestamp-millis": lambda chance: chance.randrange(-UNITS, UNITS),
    "timestamp-micros": lambda chance: chance.randrange(-UNITS * 1000, UNITS * 1000),
    "local-timestamp-millis": lambda chance: chance.randrange(-UNITS, UNITS),
    "local-timestamp-micros": lambda chance: chance.randrange(-UNITS * 1000, UNITS * 1000),
}


class AvroRecords:
    """Makes records of one schema, which has no logical types but those of `_LOGICAL`, and decimals."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._chance = Random(seed)
        self._schema = schema
        # What is written is the plain value of each logical type.
        self._plain = fastavro.parse_schema(_without_logical_types(schema))
        self._named: dict[str, Schema] = {}

    def take(self, count: int, broken: float) -> list[tuple[bytes, bool]]:
        """As many records, and whether something was done to the bytes, which it is to this part of them."""
        records = []
        for _ in range(count):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._plain, self._value(self._schema))
            is_broken = self._chance.random() < broken
            records.append((self._broken(out.getvalue()) if is_broken else out.getvalue(), is_broken))
        return records

    def _value(self, kind: Schema) -> Any:
        if isinstance(kind, list):
            return self._value(self._chance.choice(kind))
        if isinstance(kind, dict):
            return self._complex(kind)
        return self._complex(self._named[kind]) if kind in self._named else _PRIMITIVES[kind](self._chance)

    def _complex(self, kind: Schema) -> Any:
        if "name" in kind:
            self._named[kind["name"]] = kind
        name, logical = kind["type"], kind.get("logicalType")
        if logical == "decimal":
            unscaled = self._chance.randrange(1 - 10 ** kind["precision"], 10 ** kind["precision"])
            return unscaled.to_bytes(kind.get("size", (unscaled.bit_length() + 8) // 8), "big", signed=True)
        if logical in _LOGICAL:
            return _LOGICAL[logical](self._chance)
        if name == "record":
            return {field["name"]: self._value(field["type"]) for field in kind["fields"]}
        if name == "enum":
            return self._chance.choice(kind["symbols"])
        if name == "fixed":
            return self._chance.randbytes(kind["size"])
        if name == "array":
            return [self._value(kind["items"]) for _ in range(self._chance.choice((0, 0, 1, 3)))]
        if name == "map":
            return {f"k{n}é": self._value(kind["values"]) for n in range(self._chance.choice((0, 1, 2)))}
        return self._value(name)

    def _broken(self, value: bytes) -> bytes:
        """Cut, longer, or with other bytes in a few places."""
        how = self._chance.randrange(4)
        if how == 0:
            return value[: self._chance.randrange(len(value) + 1)]
        if how == 1:
            return value + self._chance.randbytes(3)
        changed = bytearray(value)
        for _ in range(self._chance.randint(1, 3)):
            changed[self._chance.randrange(len(changed))] = self._chance.randrange(256)
        return bytes(changed)


def _without_logical_types(node: Schema) -> Schema:
    if isinstance(node, dict):
        left_out = ("logicalType", "precision", "scale")
        return {name: _without_logical_types(value) for name, value in node.items() if name not in left_out}
    return [_without_logical_types(each) for each in node] if isinstance(node, list) else node


def field(name: str, kind: Schema, **more: Any) -> Schema:
    """A field of a record."""
    return {"name": name, "type": kind, **more}


def record(name: str, *fields: Schema) -> Schema:
    """A record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def logical(kind: str, name: str, **more: Any) -> Schema:
    """A logical type on another one."""
    return {"type": kind, "logicalType": name, **more}


def text(schema: Schema) -> str:
    """The JSON of a schema."""
    return json.dumps(schema)
