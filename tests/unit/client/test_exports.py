"""The public names of the clients."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import ModuleType
from typing import get_type_hints

import pytest

import ottla.client
import ottla.client.sync
import ottla.zkconsumer


def imports_for_type_checkers(package: ModuleType) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(package))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}


@pytest.mark.parametrize(
    "package", [ottla.client, ottla.client.sync, ottla.zkconsumer], ids=["client", "sync", "zkconsumer"]
)
def test_what_type_checkers_see_is_what_there_is(package):
    assert imports_for_type_checkers(package) == package._EXPORTS
    for name in package._EXPORTS:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_the_clients_are_there_without_an_event_loop_too():
    for name in ("Admin", "Consumer", "Producer", "SimpleConsumer"):
        with_loop, without = getattr(ottla.client, name), getattr(ottla.client.sync, name)
        assert with_loop is not without
        public = {each for each in dir(with_loop) if not each.startswith("_")}
        missing = public - {each for each in dir(without) if not each.startswith("_")}
        assert missing <= INSIDE, f"sync.{name} lacks {missing}"


def parameters_of(method):
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer", "SimpleConsumer"])
def test_the_clients_without_an_event_loop_take_the_same_arguments(name):
    with_loop, without = getattr(ottla.client, name), getattr(ottla.client.sync, name)
    for method in {each for each in dir(without) if not each.startswith("_")} - INSIDE:
        within, called = getattr(with_loop, method), getattr(without, method)
        assert parameters_of(called) == parameters_of(within), method
        own = called.__doc__.startswith((f"As `ottla.client.{name}", "Close all"))
        assert own or inspect.getdoc(called).startswith(inspect.getdoc(within))
        assert not inspect.iscoroutinefunction(called), method


def test_types_of_the_clients_without_an_event_loop_can_be_read_when_they_run():
    for method in ("create_topics", "describe_configs", "elect_leaders"):
        within, called = getattr(ottla.client.Admin, method), getattr(ottla.client.sync.Admin, method)
        assert get_type_hints(called) == get_type_hints(within)
    assert get_type_hints(ottla.client.sync.Producer.send_many)["return"] is ottla.client.BulkFuture


#: What the clients with an event loop have for those without.
INSIDE = {"check_reads", "deadline_ms", "delegate", "next_chunk", "wait_for_data"}


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Konsumer'"):
        ottla.client.Konsumer  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Konsumer'"):
        ottla.client.sync.Konsumer  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'create_konnector'"):
        ottla.zkconsumer.create_konnector  # noqa: B018


def loaded_by(statement: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    ).stdout.split()


def test_a_client_does_not_pay_for_producers_and_consumers():
    loaded = loaded_by("from ottla.client.sync import Client")
    assert "ottla.client.sync.client" in loaded
    unwanted = ("ottla.client.producer", "ottla.client.consumer.consumer", "ottla.broker", "pyarrow", "numpy")
    assert [name for name in loaded if name.startswith(unwanted)] == []


def test_the_spark_source_is_found_without_arrow_and_clients():
    loaded = loaded_by("import pyspark_ottla")
    assert "ottla.spark.source.data_source" in loaded
    assert [name for name in loaded if name.startswith(("ottla.client.sync", "pyarrow", "pandas"))] == []


def test_a_producer_does_not_pay_for_consumers():
    loaded = loaded_by("from ottla.client import Producer")
    assert "ottla.client.producer.producer" in loaded
    assert [
        name
        for name in loaded
        if name.startswith(("ottla.client.consumer", "ottla.broker", "pyarrow", "kazoo", "ottla.zk"))
    ] == []
