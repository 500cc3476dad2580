"""kafka-python 2: its fixtures start Apache Kafka from a folder of their own; this module takes the place of theirs."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kafka import KafkaAdminClient, KafkaClient, KafkaConsumer, KafkaProducer

from ottla.testing import Broker

#: What the tests are told of the broker; they skip what an older one has not.
VERSION = "2.6"
#: As in the configuration that the suite gives to Apache Kafka: its groups have short sessions.
SETTINGS = {"group.min.session.timeout.ms": 1}


class ZookeeperFixture:
    """The suite starts one for each broker; a test broker needs none."""

    @classmethod
    def instance(cls) -> "ZookeeperFixture":
        return cls()

    def close(self) -> None: ...


class KafkaFixture:
    """A broker as the suite's own fixtures see one: it also makes the clients."""

    zookeeper = None

    def __init__(self, broker_id: int, partitions: int) -> None:
        self._partitions = partitions
        self._broker = Broker(settings={**SETTINGS, "broker.id": broker_id, "num.partitions": partitions}).start()
        self._made = 0
        self.host, self.port = "127.0.0.1", self._broker.port

    @classmethod
    def instance(cls, broker_id: int, zookeeper: Any = None, *, partitions: int = 2, **security: Any) -> "KafkaFixture":
        assert not security, f"a broker with {security} is not in this suite's run"
        return cls(broker_id, partitions)

    def bootstrap_server(self) -> str:
        return self._broker.bootstrap_servers

    def create_topics(self, names: list[str], num_partitions: int | None = None, *_: Any) -> None:
        self._broker.create_topics(dict.fromkeys(names, num_partitions or self._partitions))

    def get_topic_names(self) -> list[str]:
        return list(self._broker.topics())

    def get_clients(self, cnt: int = 1, **params: Any) -> Iterator[Any]:
        return self._clients(KafkaClient, cnt, (), params)

    def get_admin_clients(self, cnt: int, **params: Any) -> Iterator[Any]:
        return self._clients(KafkaAdminClient, cnt, (), params)

    def get_producers(self, cnt: int, **params: Any) -> Iterator[Any]:
        return self._clients(KafkaProducer, cnt, (), params)

    def get_consumers(self, cnt: int, topics: list[str], **params: Any) -> Iterator[Any]:
        usual = {"heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"}
        return self._clients(KafkaConsumer, cnt, tuple(topics), {**usual, **params})

    def _clients(self, kind: Any, count: int, topics: tuple[str, ...], params: dict[str, Any]) -> Iterator[Any]:
        client_id = params.pop("client_id", "client")
        for _ in range(count):
            self._made += 1
            name = f"{client_id}_{self._made}"
            yield kind(*topics, **{"bootstrap_servers": self.bootstrap_server(), "client_id": name, **params})

    def close(self) -> None:
        self._broker.stop()


os.environ["KAFKA_VERSION"] = VERSION
# The source distribution lacks the file that makes `test` a package, and Python has one of that name.
suite = sys.modules["test"] = ModuleType("test")
suite.__path__ = [str(Path(__file__).parent / "test")]
fixtures = sys.modules["test.integration.fixtures"] = ModuleType("test.integration.fixtures")
vars(fixtures).update(KafkaFixture=KafkaFixture, ZookeeperFixture=ZookeeperFixture)
