"""Schemas from a registry over HTTP, played on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.decoding.registry import RegisteredSchema, RegistrySchemas, SchemaRegistryError, SchemaText
from support.played_registry import PlayedRegistry


@pytest.fixture
def registry() -> Iterator[PlayedRegistry]:
    with PlayedRegistry({7: '{"type": "string"}'}) as played:
        yield played


def test_each_schema_is_asked_for_once(registry: PlayedRegistry) -> None:
    schemas = RegistrySchemas(registry.address + "/api/", 5_000)
    found = SchemaText('{"type": "string"}')
    assert [schemas.get(7), schemas.get(7), schemas.get(8), schemas.get(8)] == [found, found, None, None]
    assert registry.paths == ["/api/schemas/ids/7", "/api/schemas/ids/8"]
    assert registry.authorizations == [None, None]


def referring(subject: str, version: int) -> dict[str, object]:
    return {"name": f"shop.{subject}", "subject": subject, "version": version}


def test_references_come_with_a_schema_each_once_and_behind_those_it_uses(registry: PlayedRegistry) -> None:
    registry.references[7] = [referring("place", 2), referring("town/x", 1), referring("gone", 1)]
    registry.subjects = {
        "/subjects/place/versions/2": {"schema": "place", "id": 3, "references": [referring("town/x", 1)]},
        # Each refers to the other, which no registry lets happen.
        "/subjects/town%2Fx/versions/1": {"schema": "town", "id": 4, "references": [referring("place", 2)]},
    }
    found = RegistrySchemas(registry.address, 5_000).get(7)
    assert found == SchemaText('{"type": "string"}', ("town", "place"))
    assert registry.paths.count("/subjects/town%2Fx/versions/1") == 1


def test_references_without_a_subject_are_named(registry: PlayedRegistry) -> None:
    registry.references[7] = [{"name": "x"}]
    with pytest.raises(SchemaRegistryError, match="lack subject or version"):
        RegistrySchemas(registry.address, 5_000).get(7)


def test_references_without_end_are_refused(registry: PlayedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.decoding.registry.MAX_REFERENCES", 3)
    registry.references[7] = [referring("s", number) for number in range(4)]
    registry.subjects = {f"/subjects/s/versions/{number}": {"schema": "{}"} for number in range(4)}
    with pytest.raises(SchemaRegistryError, match="refers to more than 3 others"):
        RegistrySchemas(registry.address, 5_000).get(7)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000, b'{"schema": 5}'])
def test_what_is_no_registry_is_named(registry: PlayedRegistry, body: bytes) -> None:
    registry.instead = (200, body)
    with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
        RegistrySchemas(registry.address, 5_000).get(7)


def test_an_answer_that_is_too_large_is_named(registry: PlayedRegistry) -> None:
    registry.instead = (200, b'{"schema": "' + b"x" * 5_000_000 + b'"}')
    with pytest.raises(SchemaRegistryError, match="gives no schema 7: the answer has more than 4194304 bytes; check"):
        RegistrySchemas(registry.address, 5_000).get(7)


def test_a_registry_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match="gives no schema 7: no whole answer in time; check"):
            RegistrySchemas(address, 100).get(7)


@pytest.mark.parametrize("address", ["{}/\u00fc", f"http://{'a' * 70}.example", "http://a..example", "http://a:x"])
def test_an_address_that_no_request_can_have_is_named(registry: PlayedRegistry, address: str) -> None:
    address = address.format(registry.address)
    with pytest.raises(SchemaRegistryError, match=r"(codec|label|Port).*; check its address"):
        RegistrySchemas(address, 5_000).get(7)


def test_schemas_of_a_subject_are_found_and_registered(registry: PlayedRegistry) -> None:
    wanted = SchemaText('"long"')
    schemas = RegistrySchemas(registry.address, 5_000)
    assert (schemas.latest("a/b"), schemas.id_of("a/b", wanted)) == (None, None)
    assert schemas.register("a/b", wanted) == 8
    assert schemas.latest("a/b") == RegisteredSchema(8, wanted)
    assert schemas.id_of("a/b", wanted) == 8
    assert registry.paths[0] == "/subjects/a%2Fb/versions/latest"


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ((409, b'{"message":"so: n"}'), "gives no schema of subject s: the answer is 409 Conflict: so: n$"),
        ((422, b"oops"), "the answer is 422 Unprocessable [^:]*$"),
        ((404, b"{}"), "registers no schema of subject s: 404"),
        ((200, b'{"schema":"x"}'), 'is not a schema registry: expected {"id": …}, got'),
    ],
)
def test_a_schema_that_is_refused(registry: PlayedRegistry, instead: tuple[int, bytes], message: str) -> None:
    registry.instead = instead
    with pytest.raises(SchemaRegistryError, match=message):
        RegistrySchemas(registry.address, 5_000).register("s", SchemaText('"long"'))
