"""What holds for every declared message, as far as it can be seen without Apache Kafka's definitions."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

import pytest

from ottla.wire.apis import API
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.schema import MAX_VERSION, RECORDS, ArrayKind, Kind, Message, Struct, StructKind

PYTHON_TYPES = {"string": str, "bool": bool, "bytes": bytes, "uuid": uuid.UUID, "float64": float}

MESSAGES: list[type[Message]] = [
    *(cls for api in API.values() for cls in (api.request, api.response)),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]


def inner_struct(kind: Kind) -> type[Struct] | None:
    if isinstance(kind, StructKind):
        return kind.struct
    if isinstance(kind, ArrayKind) and not isinstance(kind.element, Kind):
        return kind.element
    return None


def with_inner(cls: type[Struct]) -> list[type[Struct]]:
    inner = [struct for f in cls.SCHEMA.fields if (struct := inner_struct(f.kind)) is not None]
    return [cls, *(found for struct in inner for found in with_inner(struct))]


STRUCTS = [
    pytest.param(cls, id=f"{cls.__module__.rpartition('.')[2]}-{cls.__name__}")
    for message in MESSAGES
    for cls in with_inner(message)
]


def python_type(kind: Kind) -> Any:
    if isinstance(kind, ArrayKind):
        element = kind.element
        return list[PYTHON_TYPES.get(element.name, int) if isinstance(element, Kind) else element]
    return kind.struct if isinstance(kind, StructKind) else PYTHON_TYPES.get(kind.name, int)


@pytest.mark.parametrize("cls", STRUCTS)
def test_annotations_say_what_the_kinds_say(cls: type[Struct]) -> None:
    """What type checkers see of a field is what the codec makes of it."""
    names = vars(importlib.import_module(cls.__module__))
    assert list(cls.__annotations__) == [f.name for f in cls.SCHEMA.fields]
    for f in cls.SCHEMA.fields:
        expected = python_type(f.kind)
        if f.kind is RECORDS:
            expected = Any
        elif f.nullable_since < MAX_VERSION:
            expected |= None
        assert eval(cls.__annotations__[f.name], names) == expected, f.name


@pytest.mark.parametrize("cls", STRUCTS)
def test_made_without_arguments_and_with_all(cls: type[Struct]) -> None:
    made = cls()
    again = cls(**{f.name: getattr(made, f.name) for f in cls.SCHEMA.fields})
    assert made == again


@pytest.mark.parametrize("cls", STRUCTS)
def test_tags_count_from_zero_and_belong_to_flexible_versions(cls: type[Struct]) -> None:
    tags = [f.tag for f in cls.SCHEMA.fields if f.tag is not None]
    assert sorted(tags) == list(range(len(tags)))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.SCHEMA.name)
def test_a_throttle_time_is_left_out_of_versions_without_it(cls: type[Message]) -> None:
    """A handler need not know which versions can say it."""
    for field in cls.SCHEMA.fields:
        if field.name == "throttle_time_ms":
            assert field.since == 0 or field.ignorable
