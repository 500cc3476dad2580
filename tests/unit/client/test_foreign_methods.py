"""Names that people carry over from other clients: methods, and what their constructors take."""

from __future__ import annotations

import asyncio

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.errors import InvalidConfigError
from ottla.client.foreign_methods import ADMIN_METHODS, CONSUMER_METHODS, PRODUCER_METHODS

METHODS = {"Admin": ADMIN_METHODS, "Consumer": CONSUMER_METHODS, "Producer": PRODUCER_METHODS}


@pytest.mark.parametrize("package", [ottla.client, ottla.client.sync], ids=["asyncio", "sync"])
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_other_clients_say_what_to_call(package, name):
    kind = getattr(package, name)

    async def check():
        client = kind(bootstrap_servers="localhost:1")
        for method, instead in METHODS[name].items():
            assert not hasattr(kind, method), "the client has it"
            with pytest.raises(AttributeError) as caught:
                getattr(client, method)
            assert str(caught.value) == f"{name!r} object has no attribute {method!r}; {instead}"
        with pytest.raises(AttributeError, match=rf"^'{name}' object has no attribute 'konsume'$"):
            client.konsume  # noqa: B018
        closing = client.close()
        if closing is not None:
            await closing

    asyncio.run(check())


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("Consumer", "events", r"'events' is no mapping of settings\. .* call subscribe\(\['events'\]\) afterwards"),
        ("Consumer", ["a", "b"], r"call subscribe\(\['a', 'b'\]\) afterwards"),
        ("Consumer", "localhost:9092", r"Give addresses of brokers as bootstrap_servers='localhost:9092'"),
        ("Producer", "localhost:9092", r"Give addresses of brokers as bootstrap_servers='localhost:9092'"),
        ("Producer", "events", r"'events' is no mapping of settings\. Give a mapping by Kafka's names, or keywords"),
        ("Admin", 7, r"7 is no mapping of settings\. Give a mapping by Kafka's names, or keywords"),
        ("SimpleConsumer", "events", r"call subscribe\(\['events'\]\) afterwards"),
    ],
)
def test_what_is_no_mapping_of_settings(name, given, told):
    for package in (ottla.client, ottla.client.sync):
        for settings in ({}, {"bootstrap_servers": "localhost:1"}):
            with pytest.raises(InvalidConfigError, match=told):
                getattr(package, name)(given, **settings)
