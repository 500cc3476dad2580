"""Connectors over fake brokers and a tree in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.zk.layout import PartitionOwnerZnode
from ottla.zkconsumer.connector import ConsumerConnector
from ottla.zkconsumer.highlevel_config import parse_highlevel_config
from support.shared_tree import SharedTree, TreeSession
from support.waiting import wait_until

QUICK = {
    "zookeeper.connect": "127.0.0.1:2181",
    "group.id": "g",
    "rebalance.backoff.ms": 50,
    "rebalance.max.retries": 100,
    "refresh.leader.backoff.ms": 20,
    "offsets.channel.backoff.ms": 20,
    "fetch.wait.max.ms": 50,
    "auto.offset.reset": "smallest",
}


class Group:
    """Makes connectors, and reads their streams in threads."""

    def __init__(self, fakes: Any) -> None:
        self.fakes = fakes
        self.tree = SharedTree()
        self.tree.brokers(fakes.ports)
        self.connectors: list[ConsumerConnector] = []
        self.sessions: dict[str, TreeSession] = {}

    def topic(self, name: str, *leaders: int) -> list[Any]:
        """The topic at the brokers and in ZooKeeper."""
        made = self.fakes.topic(name, *leaders)
        self.tree.topic(name, len(leaders))
        return made

    def connect(self, **settings: Any) -> ConsumerConnector:
        opened: list[TreeSession] = []

        async def open_zk(config: object) -> TreeSession:
            opened.append(await self.tree.open(config))
            return opened[0]

        named = {name.replace("_", "."): value for name, value in settings.items()}
        made = ConsumerConnector(parse_highlevel_config(QUICK | named), open_zk)
        self.connectors.append(made)
        self.sessions[made.consumer_id] = opened[0]
        return made

    def owners(self, topic: str = "t", group: str = "g") -> dict[int, str]:
        """The owner nodes of a topic: the thread of each partition."""
        root = PartitionOwnerZnode.topic_path(group, topic)
        found = {int(name): self.tree.data(f"{root}/{name}") for name in self.tree.children(root)}
        return {partition: data.decode() for partition, data in found.items() if data is not None}

    def close(self) -> None:
        self.tree.answers = True
        for each in self.connectors:
            each.shutdown()
        wait_until(
            lambda: not [each for each in threading.enumerate() if each.name.endswith("-connector")],
            "the end of connectors that were dropped",
        )
        self.tree.close()


class Reader:
    """A thread that reads a stream to its end."""

    def __init__(self, stream: Any) -> None:
        self.found: list[tuple[int, int]] = []
        self.error: BaseException | None = None
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.found.extend((each.partition, each.offset) for each in self._stream)
        except BaseException as error:
            self.error = error

    def wait_for(self, count: int) -> list[tuple[int, int]]:
        wait_until(lambda: len(self.found) >= count or self.error, lambda: f"{count} records, has {len(self.found)}")
        assert self.error is None
        return self.found

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def group(fakes: Any) -> Iterator[Group]:
    """Three fake brokers in ZooKeeper."""
    made = Group(fakes)
    made.fakes.waits_for_records = True
    yield made
    made.close()


@pytest.fixture
def read() -> Callable[[Any], Reader]:
    """Read a stream in a thread."""
    return Reader
