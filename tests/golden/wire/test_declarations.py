"""Every declaration against Apache Kafka's own definitions, which are in the jar of its clients."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.schema import (
    MAX_VERSION,
    NEW,
    STRING,
    ArrayKind,
    Field,
    Kind,
    Message,
    Struct,
    StructKind,
)
from property.wire.messages import CLASSES
from support.java import kafka_libs

pytestmark = pytest.mark.needs_kafka

Definition = dict[str, Any]


@cache
def definitions() -> dict[str, Definition]:
    """Kafka's definitions by name of the message."""
    libs = kafka_libs()
    assert libs is not None
    (jar,) = libs.glob("kafka-clients-3.9.*.jar")
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def with_common_structs(definition: Definition) -> list[Definition]:
    """The fields of a message, with those of its common structs where they are used."""
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}

    def resolved(fields: list[Definition]) -> list[Definition]:
        made = []
        for each in fields:
            inner = each.get("fields", common.get(each["type"].removeprefix("[]")))
            made.append(each if inner is None else {**each, "fields": resolved(inner)})
        return made

    return resolved(definition["fields"])


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def versions(text: str) -> tuple[int, int]:
    """First and last version of a range like "2+", "1-3", "0" or "none" (which is after all others)."""
    if text == "none":
        return MAX_VERSION, MAX_VERSION
    first, _, last = text.removesuffix("+").partition("-")
    return int(first), MAX_VERSION if text.endswith("+") else int(last or first)


def expected_default(definition: Definition, kind: Kind) -> Any:
    given = definition.get("default")
    if given is None:
        return kind.default
    if given == "null":
        return None
    if kind is STRING:
        return given
    return str(given).lower() == "true" if kind.name == "bool" else int(str(given), 0)


def kind_name(kind: Kind, struct_names: dict[type[Struct], str]) -> str:
    """Kafka's name for the type of a field."""
    if isinstance(kind, ArrayKind):
        element = kind.element
        return "[]" + (element.name if isinstance(element, Kind) else struct_names[element])
    return struct_names[kind.struct] if isinstance(kind, StructKind) else kind.name


def inner_struct(kind: Kind) -> type[Struct] | None:
    if isinstance(kind, StructKind):
        return kind.struct
    if isinstance(kind, ArrayKind) and not isinstance(kind.element, Kind):
        return kind.element
    return None


def check_struct(cls: type[Struct], declared: list[Definition], message: str) -> None:
    fields = cls.SCHEMA.fields
    assert [f.name for f in fields] == [snake_case(each["name"]) for each in declared], cls
    for f, definition in zip(fields, declared, strict=True):
        check_field(cls, f, definition, message)


def check_field(cls: type[Struct], f: Field, definition: Definition, message: str) -> None:
    where = f"{cls.__name__}.{f.name}"
    inner = inner_struct(f.kind)
    names = {}
    if inner is not None:
        kafka_name = definition["type"].removeprefix("[]")
        # Two structs of one module cannot have one name: ours have the message's in front.
        assert inner.__name__ in (kafka_name, message + kafka_name), where
        names[inner] = kafka_name
    assert kind_name(f.kind, names) == definition["type"], where
    assert (f.since, f.until) == versions(definition["versions"]), where
    assert f.ignorable == definition.get("ignorable", False), where
    assert f.tag == definition.get("tag"), where
    if "taggedVersions" in definition:
        assert versions(definition["taggedVersions"]) == versions(definition["versions"]), where
    check_nullability_and_default(where, f, definition)
    if inner is not None:
        check_struct(inner, definition["fields"], message)


def check_nullability_and_default(where: str, f: Field, definition: Definition) -> None:
    nullable = definition.get("nullableVersions")
    if nullable is None:
        assert f.nullable_since == MAX_VERSION, where
    else:
        since, until = versions(nullable)
        assert f.nullable_since == max(since, f.since), where
        assert until == f.until, where
    always_nullable = nullable is not None and f.nullable_since == f.since
    if "default" not in definition and f.kind is STRING and always_nullable:
        # Kafka's default is the empty string here; ours says that there is nothing.
        assert f.default is None, where
    else:
        default = expected_default(definition, f.kind)
        assert f.default is default if default is NEW else f.default == default, where
        assert type(f.default) is type(default), where


def test_the_definitions_were_found() -> None:
    assert len(definitions()) > 180


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_declaration_is_kafkas(cls: type[Message]) -> None:
    definition = definitions()[cls.__name__]
    schema = cls.SCHEMA
    assert schema.versions == versions(definition["validVersions"])
    assert schema.flexible_since == versions(definition["flexibleVersions"])[0]
    assert schema.api_key == definition.get("apiKey")
    check_struct(cls, with_common_structs(definition), cls.__name__)


def test_keys_of_all_apis() -> None:
    requests = [each for each in definitions().values() if each["type"] == "request"]
    expected = {snake_case(each["name"].removesuffix("Request")).upper(): each["apiKey"] for each in requests}
    assert {key.name: int(key) for key in ApiKey} == expected
