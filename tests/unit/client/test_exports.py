"""The public names of the clients."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import ottla.client
import ottla.client.sync


def imports_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(inspect.getsource(ottla.client))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}


def test_what_type_checkers_see_is_what_there_is():
    assert imports_for_type_checkers() == ottla.client._EXPORTS
    for name in ottla.client._EXPORTS:
        assert getattr(ottla.client, name) is not None
        assert name in dir(ottla.client)


def test_the_clients_are_there_without_an_event_loop_too():
    for name in ("Admin", "Consumer", "Producer", "SimpleConsumer"):
        with_loop, without = getattr(ottla.client, name), getattr(ottla.client.sync, name)
        assert with_loop is not without
        public = {each for each in dir(with_loop) if not each.startswith("_")}
        missing = public - {each for each in dir(without) if not each.startswith("_")}
        assert missing <= INSIDE, f"sync.{name} lacks {missing}"


#: What the clients with an event loop have for those without.
INSIDE = {"check_reads", "core", "deadline_ms", "next_chunk", "wait_for_data"}


def test_the_consumer_of_the_zookeeper_generation_is_the_same_in_both():
    for name in ottla.client.sync._HIGH_LEVEL:
        assert name in ottla.client.sync.__all__
        assert getattr(ottla.client.sync, name) is getattr(ottla.client, name)
    with pytest.raises(AttributeError, match="has no attribute 'create_konnector'"):
        ottla.client.sync.create_konnector  # noqa: B018


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Konsumer'"):
        ottla.client.Konsumer  # noqa: B018


def test_a_producer_does_not_pay_for_consumers():
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys; from ottla.client import Producer; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.split()
    assert "ottla.client.producer.producer" in loaded
    assert [
        name
        for name in loaded
        if name.startswith(("ottla.client.consumer", "ottla.broker", "pyarrow", "kazoo", "ottla.zk"))
    ] == []
