"""kafka-python: its fixtures start Apache Kafka from a folder of their own; this module takes the place of theirs.

Two names of `test.integration.fixtures` are used elsewhere: the broker's class, and how topics are made on it.
"""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ottla.testing import Broker

#: What the tests are told of the broker; they skip what an older one has not.
VERSION = "3.9"
#: As in the configuration that the suite gives to Apache Kafka: its groups have short sessions.
SETTINGS = {"group.min.session.timeout.ms": 1}


class KafkaFixture:
    """A broker as the suite's own fixtures see one."""

    transport = "PLAINTEXT"
    zookeeper = None

    def __init__(self, node_id: int, partitions: int, replicas: int) -> None:
        self.partitions = partitions
        self.replicas = replicas
        self._broker = Broker(settings={**SETTINGS, "broker.id": node_id, "num.partitions": partitions}).start()
        self.host, self.port = "127.0.0.1", self._broker.port

    @classmethod
    def instance(cls, node_id: int, *, partitions: int = 4, replicas: int = 1, **security: Any) -> "KafkaFixture":
        assert not security, f"a broker with {security} is not in this suite's run"
        return cls(node_id, partitions, replicas)

    def bootstrap_server(self) -> str:
        return self._broker.bootstrap_servers

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_server(), **defaults, **params}

    def close(self) -> None:
        self._broker.stop()


def create_topics(broker: KafkaFixture, names: list[str], num_partitions: int | None = None, **_: Any) -> None:
    broker._broker.create_topics(dict.fromkeys(names, num_partitions or broker.partitions))


def client_params(broker: KafkaFixture, client_id: str = "client", **overrides: Any) -> dict[str, Any]:
    return broker._enrich_client_params(overrides, client_id=client_id)


os.environ["KAFKA_VERSION"] = VERSION
# The source distribution lacks the file that makes `test` a package, and Python has one of that name.
suite = sys.modules["test"] = ModuleType("test")
suite.__path__ = [str(Path(__file__).parent / "test")]
fixtures = sys.modules["test.integration.fixtures"] = ModuleType("test.integration.fixtures")
vars(fixtures).update(
    KafkaFixture=KafkaFixture, ZookeeperFixture=None, create_topics=create_topics, client_params=client_params
)
