"""A tree of its own for each test, in Apache's ZooKeeper and in ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from interop.zookeeper.conftest import Server
from support.ottla_server import OttlaServer
from support.zk_trees import open_tree

_numbers = itertools.count()
#: For brokers whose session is to expire; others keep theirs on a busy machine.
SHORT_SESSION = {"broker.id": "7", "zookeeper.session.timeout.ms": "4000"}


@pytest.fixture
def zookeeper(server: Server) -> Server:
    """The ZooKeeper of the tree, where `server` is a broker."""
    return server


@pytest.fixture
def address(server: Server) -> str:
    """`host:port/chroot`, of a chroot that is not there yet."""
    return f"{server.connect}/brokers-of-tests/{next(_numbers)}"


@pytest.fixture
def tree(server: Server, address: str) -> Iterator[KazooClient]:
    """What another process sees of the tree and may change in it."""
    client = open_tree(server.connect)
    client.ensure_path(address.removeprefix(server.connect))
    client.chroot = address.removeprefix(server.connect)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def serve(tmp_path: Path, address: str) -> Iterator[Callable[..., OttlaServer]]:
    """Starts brokers on the tree, and stops them in the end."""
    started: list[OttlaServer] = []

    def start(**options: object) -> OttlaServer:
        overrides = {
            "zookeeper.session.timeout.ms": "10000",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            **options.pop("overrides", {}),  # type: ignore[dict-item]
        }
        arguments = ["--zookeeper", str(options.pop("zookeeper", address))]
        server = OttlaServer(tmp_path, overrides=overrides, arguments=arguments, **options)  # type: ignore[arg-type]
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()
