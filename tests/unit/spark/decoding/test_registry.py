"""Schemas from a registry over HTTP, played on loopback."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator

import pytest

from ottla.spark.decoding.registry import RegistrySchemas, SchemaRegistryError, SchemaText, find_schemas
from ottla.spark.errors import OptionError, SparkRefusal
from support.played_registry import PlayedRegistry


@pytest.fixture
def registry() -> Iterator[PlayedRegistry]:
    with PlayedRegistry({7: '{"type": "string"}'}) as played:
        yield played


def test_each_schema_is_asked_for_once(registry: PlayedRegistry) -> None:
    schemas = find_schemas(registry.address + "/api/", 5_000)
    found = SchemaText('{"type": "string"}')
    assert [schemas.get(7), schemas.get(7), schemas.get(8), schemas.get(8)] == [found, found, None, None]
    assert registry.paths == ["/api/schemas/ids/7", "/api/schemas/ids/8"]
    assert registry.authorizations == [None, None]


def test_name_and_password_of_the_address_are_sent_and_not_shown(registry: PlayedRegistry) -> None:
    address = registry.address.replace("http://", "http://reader:p%40ss@")
    schemas = pickle.loads(pickle.dumps(find_schemas(address, 5_000)))
    schemas.get(7)
    assert registry.authorizations == ["Basic cmVhZGVyOnBAc3M="]
    registry.instead = (401, b"{}")
    with pytest.raises(SchemaRegistryError) as caught:
        schemas.get(8)
    assert str(caught.value) == f"the schema registry at {registry.address} answers 401 Unauthorized for schema 8"
    assert isinstance(caught.value, SparkRefusal)  # so that the message comes without a traceback
    assert "p%40ss" not in repr(schemas)


def referring(subject: str, version: int) -> dict[str, object]:
    return {"name": f"shop.{subject}", "subject": subject, "version": version}


def test_references_come_with_a_schema_each_once_and_behind_those_it_uses(registry: PlayedRegistry) -> None:
    registry.references[7] = [referring("place", 2), referring("town/x", 1), referring("gone", 1)]
    registry.subjects = {
        "/subjects/place/versions/2": {"schema": "place", "id": 3, "references": [referring("town/x", 1)]},
        # Each refers to the other, which no registry lets happen.
        "/subjects/town%2Fx/versions/1": {"schema": "town", "id": 4, "references": [referring("place", 2)]},
    }
    found = find_schemas(registry.address, 5_000).get(7)
    assert found == SchemaText('{"type": "string"}', ("town", "place"))
    assert registry.paths.count("/subjects/town%2Fx/versions/1") == 1


def test_references_without_a_subject_are_named(registry: PlayedRegistry) -> None:
    registry.references[7] = [{"name": "x"}]
    with pytest.raises(SchemaRegistryError, match="lack subject or version"):
        find_schemas(registry.address, 5_000).get(7)


def test_references_without_end_are_refused(registry: PlayedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.decoding.registry.MAX_REFERENCES", 3)
    registry.references[7] = [referring("s", number) for number in range(4)]
    registry.subjects = {f"/subjects/s/versions/{number}": {"schema": "{}"} for number in range(4)}
    with pytest.raises(SchemaRegistryError, match="refers to more than 3 others"):
        find_schemas(registry.address, 5_000).get(7)


@pytest.mark.parametrize("address", ["http://:8081", "http://r:x", "http://r:99999", "http://a:secret@r:0"])
def test_addresses_that_cannot_be(address: str) -> None:
    with pytest.raises(OptionError, match="no host, or no valid port") as caught:
        find_schemas(address, 5_000)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"[" * 100_000, b'{"schema": 5}', b'{"schema": "' + b"x" * 5_000_000 + b'"}']
)
def test_what_is_no_registry_is_named(registry: PlayedRegistry, body: bytes) -> None:
    registry.instead = (200, body)
    with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
        find_schemas(registry.address, 5_000).get(7)


def test_a_registry_that_cannot_be_reached_ends_the_task_with_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match=r"gives no schema 7 .*check option schemaRegistry"):
            RegistrySchemas(address, 5_000).get(7)


def test_a_registry_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match=r"timed out|TimeoutError"):
            RegistrySchemas(address, 100).get(7)
