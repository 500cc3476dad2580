"""A request of every API and version by its declaration: sensible ones to cut and damage, and absurd ones."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

from ottla.wire.apis import API, ApiKey
from ottla.wire.schema import ArrayKind, Field, Kind, Message, Struct, StructKind

#: The topic that requests name; what becomes of it is of no interest.
VICTIM = "victim"
VICTIM_ID = uuid.UUID(int=0xABCDEF)

ABSURD_INTEGERS = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-32768, -1, 0, 1, 32767),
    "uint16": (0, 1, 65535),
    "int32": (-(2**31), -2, -1, 0, 1, 2**31 - 1),
    "int64": (-(2**63), -2, -1, 0, 1, 2**63 - 1),
}
ABSURD_STRINGS = ("", VICTIM, "..", "a/b", "\0", "ü" * 200, "x" * 300, "x" * 32767, "__consumer_offsets", "\U0001f600")
MOST_ELEMENTS = 3


def apis_and_versions() -> Iterator[tuple[int, int]]:
    """The first and the last version of each API, and its first one with compact lengths."""
    for key, api in API.items():
        for version in sorted({api.min_version, min(api.flexible_since, api.max_version), api.max_version}):
            yield key, version


class Maker:
    """Makes messages field by field; `absurd` ones have the extremes of their types."""

    def __init__(self, chance: random.Random, *, absurd: bool = False) -> None:
        self._chance = chance
        self._absurd = absurd

    def request(self, key: int, version: int) -> Message:
        made = self._struct(API[key].request, version)
        assert isinstance(made, Message)
        if key == ApiKey.FETCH and not self._absurd:
            made.max_wait_ms = 10  # type: ignore[attr-defined]
        return made

    def _struct(self, cls: type[Struct], version: int) -> Struct:
        fields = [f for f in cls.SCHEMA.fields if f.present(version)]
        return cls(**{f.name: self._field(f, version) for f in fields})

    def _field(self, field: Field, version: int) -> Any:
        if self._absurd and field.nullable(version) and self._chance.random() < 0.2:
            return None
        return self._value(field.kind, version)

    def _value(self, kind: Kind, version: int) -> Any:
        if isinstance(kind, StructKind):
            return self._struct(kind.struct, version)
        if isinstance(kind, ArrayKind):
            count = self._chance.randint(0, MOST_ELEMENTS) if self._absurd else 1
            element = kind.element
            if isinstance(element, Kind):
                return [self._value(element, version) for _ in range(count)]
            return [self._struct(element, version) for _ in range(count)]
        return self._absurd_value(kind.name) if self._absurd else _sensible_value(kind.name)

    def _absurd_value(self, kind: str) -> Any:
        chance = self._chance
        if kind in ABSURD_INTEGERS:
            return chance.choice(ABSURD_INTEGERS[kind])
        if kind == "string":
            return chance.choice(ABSURD_STRINGS)
        if kind == "bool":
            return chance.random() < 0.5
        if kind == "float64":
            return float("nan")
        if kind == "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        return chance.randbytes(chance.choice((0, 1, 11, 12, 61, 100)))


def _sensible_value(kind: str) -> Any:
    sensible = {
        "bool": False,
        "float64": 1.0,
        "uuid": VICTIM_ID,
        "string": VICTIM,
        "bytes": b"12345678",
        "records": b"\0" * 70,
    }
    return sensible.get(kind, 1)
