"""Schemas for the tasks of Spark, from a registry that is played on loopback."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator

import pytest

from ottla.decoding.registry import SchemaRegistryError
from ottla.spark.decoding.registry import find_schemas
from ottla.spark.errors import OptionError, SparkRefusal
from support.played_registry import PlayedRegistry


@pytest.fixture
def registry() -> Iterator[PlayedRegistry]:
    with PlayedRegistry({7: '{"type": "string"}'}) as played:
        yield played


def test_name_and_password_of_the_address_are_sent_and_not_shown(registry: PlayedRegistry) -> None:
    address = registry.address.replace("http://", "http://reader:p%40ss@")
    schemas = pickle.loads(pickle.dumps(find_schemas(address, 5_000)))
    schemas.get(7)
    assert registry.authorizations == ["Basic cmVhZGVyOnBAc3M="]
    registry.instead = (401, b"{}")
    with pytest.raises(SchemaRegistryError) as caught:
        schemas.get(8)
    told = f"the schema registry at {registry.address} gives no schema 8: the answer is 401 Unauthorized"
    assert str(caught.value) == told
    assert isinstance(caught.value, SparkRefusal)  # so that the message comes without a traceback
    assert "p%40ss" not in repr(schemas)


@pytest.mark.parametrize("address", ["http://:8081", "http://r:x", "http://r:99999", "http://a:secret@r:0"])
def test_addresses_that_cannot_be(address: str) -> None:
    with pytest.raises(OptionError, match="no host, or no valid port") as caught:
        find_schemas(address, 5_000)
    assert "secret" not in str(caught.value)


def test_a_registry_that_cannot_be_reached_ends_the_task_with_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SchemaRegistryError, match=r"gives no schema 7: .*; check option schemaRegistry"):
            find_schemas(address, 5_000).get(7)
