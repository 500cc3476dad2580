"""Names that people carry over from other clients: methods, and what their constructors take."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import ottla.client
import ottla.client.sync
from ottla.client.errors import InvalidConfigError
from ottla.client.foreign_methods import ADMIN_METHODS, CONSUMER_METHODS, PRODUCER_METHODS, explains_arguments

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


#: Calls as other clients have them, and what helps.
CALLS = {
    "Consumer": [
        ("subscribe", {"pattern": "^a"}, "subscribe(re.compile(…)) subscribes to what the pattern matches"),
        ("subscribe", {"topics": ["a"], "on_assign": print}, "give a ConsumerRebalanceListener as listener"),
        ("poll", {"max_records": 5}, "set max.poll.records for the consumer: Consumer(max_poll_records=…)"),
        ("poll", {"timeout": 1.0}, "give timeout_ms, in milliseconds"),
        ("poll", {"update_offsets": False}, "seek() goes back to where the records were; leave it out"),
        ("commit", {"asynchronous": False}, "commit() waits for the broker, commit_async() does not"),
        ("commit", {"message": 1}, "give the offsets to commit: {TopicPartition(topic, partition): offset + 1}"),
        ("committed", {"partition": ("a", 0)}, "give one list: committed([…])"),
        ("close", {"autocommit": False}, "call commit() before, or set enable.auto.commit to what you want"),
        ("metrics", {"raw": True}, "metrics() gives numbers by Kafka's names; leave it out"),
        ("seek_to_end", {"what": 1}, "it has partitions"),
        ("unsubscribe", {"what": 1}, "it takes none"),
    ],
    "Producer": [
        ("send", {"topic": "a", "timestamp_ms": 5}, "give it as timestamp, which is in milliseconds"),
        ("send", {"topic": "a", "on_delivery": print}, "give it as callback"),
        ("flush", {"timeout": 10}, "give timeout_ms, in milliseconds"),
        ("close", {"timeout": 10}, "give timeout_ms, in milliseconds"),
    ],
    "Admin": [
        ("create_topics", {"new_topics": []}, "give it as the first argument, without a name"),
        ("delete_topics", {"names": [], "operation_timeout": 3}, "give timeout_ms, in milliseconds"),
        ("list_topics", {"timeout": 3}, "give timeout_ms, in milliseconds"),
        ("create_topics", {"topics": [], "raise_errors": False}, "errors are raised; leave it out"),
    ],
}


async def used(method, given):
    result = method(**given)
    return await result if inspect.isawaitable(result) else result


@pytest.mark.parametrize("package", [ottla.client, ottla.client.sync], ids=["asyncio", "sync"])
@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_other_clients_say_what_to_give(package, name):
    kind = getattr(package, name)

    async def check():
        client = kind(bootstrap_servers="localhost:1")
        for method, given, instead in CALLS[name]:
            foreign = next(each for each in given if each not in inspect.signature(getattr(kind, method)).parameters)
            with pytest.raises(TypeError) as caught:
                await used(getattr(client, method), given)
            told = f"{name}.{method}() got an unexpected keyword argument {foreign!r}; {instead}"
            assert str(caught.value).startswith(told)
        closing = client.close()
        if closing is not None:
            await closing

    asyncio.run(check())


@pytest.mark.parametrize("name", CALLS)
def test_each_public_method_explains_arguments_and_is_a_coroutine_function_as_before(name):
    for package in (ottla.client, ottla.client.sync):
        kind = getattr(package, name)
        for method in (each for each in dir(kind) if not each.startswith("_")):
            found = inspect.getattr_static(kind, method)
            if inspect.isfunction(found) and not inspect.isasyncgenfunction(found):
                within = inspect.unwrap(found)
                assert within is not found or "foreign" in inspect.signature(found).parameters, method
                assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(within)


@pytest.mark.parametrize("consumer", [ottla.client.Consumer, ottla.client.sync.Consumer])
@pytest.mark.parametrize("name", ["poll", "poll_arrow"])
def test_no_wrapper_stands_between_what_is_handed_out_and_the_caller(consumer, name):
    """Else a signal that is handled in the wrapper would lose the records (decision 47)."""
    assert not hasattr(getattr(consumer, name), "__wrapped__")


def test_a_type_error_from_within_stays_as_it_is():
    @explains_arguments
    class Client:
        def work(self, one):
            return one(two=2)

    with pytest.raises(TypeError, match=r"unexpected keyword argument 'two'$"):
        Client().work(lambda: None)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("Consumer", "events", r"'events' is not a mapping of settings\. .* call subscribe\(\['events'\]\) afterwards"),
        ("Consumer", ["a", "b"], r"call subscribe\(\['a', 'b'\]\) afterwards"),
        ("Consumer", "localhost:9092", r"Give addresses of brokers as bootstrap_servers='localhost:9092'"),
        ("Producer", "localhost:9092", r"Give addresses of brokers as bootstrap_servers='localhost:9092'"),
        ("Producer", "events", r"'events' is not a mapping of settings\. Give a mapping by Kafka's names, or keywords"),
        ("Admin", 7, r"7 is not a mapping of settings\. Give a mapping by Kafka's names, or keywords"),
        ("SimpleConsumer", "events", r"call subscribe\(\['events'\]\) afterwards"),
    ],
)
def test_what_is_no_mapping_of_settings(name, given, told):
    for package in (ottla.client, ottla.client.sync):
        for settings in ({}, {"bootstrap_servers": "localhost:1"}):
            with pytest.raises(InvalidConfigError, match=told):
                getattr(package, name)(given, **settings)
