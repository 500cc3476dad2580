"""Strategies for messages of every declared class and version, made from the declarations."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ottla.wire.apis import API
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    ArrayKind,
    Field,
    Kind,
    Message,
    Struct,
    StructKind,
)

CLASSES: list[type[Message]] = [
    *(cls for api in API.values() for cls in (api.request, api.response)),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]

ALL: list[tuple[type[Message], int]] = [
    (cls, version) for cls in CLASSES for version in range(cls.SCHEMA.versions[0], cls.SCHEMA.versions[1] + 1)
]

IDS = [f"{cls.__name__}-v{version}" for cls, version in ALL]

PRIMITIVES: dict[Kind, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(2**7), 2**7 - 1),
    INT16: st.integers(-(2**15), 2**15 - 1),
    UINT16: st.integers(0, 2**16 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
    # Sizes around 127 and 128 bytes, where a compact length grows.
    STRING: st.text(max_size=8) | st.integers(120, 135).map(lambda size: "x" * size),
    BYTES: st.binary(max_size=8) | st.integers(120, 135).map(bytes),
    RECORDS: st.binary(max_size=8).map(memoryview),
}

TAGS = st.dictionaries(st.integers(50, 300), st.binary(max_size=4), min_size=1, max_size=3)


@cache
def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Messages of a class with the fields that a version has; the others keep their defaults."""
    return structs(cls, version, flexible=version >= cls.SCHEMA.flexible_since)


def structs(cls: type[Struct], version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    fields = {f.name: values(f, version, flexible=flexible) for f in cls.SCHEMA.fields if f.present(version)}
    tags = st.none() | TAGS if flexible else st.none()

    def build(given: tuple[dict[str, Any], dict[int, bytes] | None]) -> Struct:
        made = cls(**given[0])
        made.unknown_tagged_fields = given[1]
        return made

    return st.tuples(st.fixed_dictionaries(fields), tags).map(build)


def values(f: Field, version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    strategy = of_kind(f.kind, version, flexible=flexible)
    if f.tag is not None:
        strategy |= st.builds(f.new_default)
    return st.none() | strategy if f.nullable(version) else strategy


def of_kind(kind: Kind, version: int, *, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, StructKind):
        return structs(kind.struct, version, flexible=flexible)
    if isinstance(kind, ArrayKind):
        element = kind.element
        inner = PRIMITIVES[element] if isinstance(element, Kind) else structs(element, version, flexible=flexible)
        return st.lists(inner, max_size=3)
    return PRIMITIVES[kind]
