"""Consumers of several makes that name their rack (KIP-392), each reading one partition from its beginning."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from ottla.client import sync
from ottla.peer.model import TopicPartition
from support.java import java_command
from support.processes import run_tool

POLL_S = 0.5


class RackReader(ABC):
    """Reads partition 0 of a topic; `client.rack` is its rack, and it asks its leader again after two seconds."""

    MAX_AGE_MS = 2_000

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self.bootstrap, self.topic, self.rack = bootstrap, topic, rack
        self.offsets: list[int] = []

    @abstractmethod
    def poll(self) -> list[int]:
        """The offsets of the next records, maybe none."""

    @abstractmethod
    def close(self) -> None:
        """End the consumer."""

    def read_up_to(self, end: int, timeout_s: float = 90.0) -> None:
        """Poll until all records below `end` have been read."""
        deadline = time.monotonic() + timeout_s
        while not self.offsets or self.offsets[-1] < end - 1:
            assert time.monotonic() < deadline, f"{type(self).__name__} read {self.offsets[-3:]}, and not up to {end}"
            self.offsets += self.poll()

    def check(self, end: int) -> None:
        """Each offset was read, once and in order."""
        assert self.offsets == list(range(end))


class ConfluentReader(RackReader):
    """librdkafka."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__(bootstrap, topic, rack)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "client.rack": rack,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": self.MAX_AGE_MS,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def poll(self) -> list[int]:
        """See `RackReader`. An error that librdkafka says it will get over is passed over."""
        found = []
        for message in self._consumer.consume(500, POLL_S):
            error, offset = message.error(), message.offset()
            if error is None:
                assert offset is not None
                found.append(offset)
            else:
                assert error.retriable() or not error.fatal(), error
        return found

    def close(self) -> None:
        """See `RackReader`."""
        self._consumer.close()


class KafkaPythonReader(RackReader):
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__(bootstrap, topic, rack)
        partition = kafka.TopicPartition(topic, 0)
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_rack=rack,
            auto_offset_reset="none",
            enable_auto_commit=False,
            metadata_max_age_ms=self.MAX_AGE_MS,
        )
        self._consumer.assign([partition])
        self._consumer.seek(partition, 0)

    def poll(self) -> list[int]:
        """See `RackReader`."""
        found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [record.offset for records in found.values() for record in records]

    def close(self) -> None:
        """See `RackReader`."""
        self._consumer.close()


class AioKafkaReader(RackReader):
    """aiokafka, with a loop of its own that runs while it is polled."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__(bootstrap, topic, rack)
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start())

    async def _start(self) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            client_rack=self.rack,
            auto_offset_reset="none",
            enable_auto_commit=False,
            metadata_max_age_ms=self.MAX_AGE_MS,
        )
        partition = aiokafka.TopicPartition(self.topic, 0)
        await consumer.start()
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return consumer

    def poll(self) -> list[int]:
        """See `RackReader`."""
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [record.offset for records in found.values() for record in records]

    def close(self) -> None:
        """See `RackReader`."""
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class OttlaReader(RackReader):
    """Ours."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__(bootstrap, topic, rack)
        self._partition = TopicPartition(topic, 0)
        self._consumer: Any = sync.Consumer(
            bootstrap_servers=bootstrap,
            client_rack=rack,
            auto_offset_reset="none",
            enable_auto_commit=False,
            metadata_max_age_ms=self.MAX_AGE_MS,
        )
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, 0)

    def poll(self) -> list[int]:
        """See `RackReader`."""
        found = self._consumer.poll(int(POLL_S * 1000))
        return [record.offset for record in found]

    @property
    def replica(self) -> int:
        """The follower that is read from, -1 for the leader."""
        return int(self._consumer.metrics()[f"preferred-read-replica{{topic={self.topic},partition=0}}"])

    def close(self) -> None:
        """See `RackReader`."""
        self._consumer.close()


READERS: dict[str, type[RackReader]] = {
    "confluent-kafka": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AioKafkaReader,
    "ottla": OttlaReader,
}


def java_reads(bootstrap: str, topic: str, rack: str, count: int) -> list[str]:
    """The values that Java's console consumer reads."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", str(count)]
    arguments += ["--timeout-ms", "60000", "--consumer-property", f"client.rack={rack}"]
    return run_tool(java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)).stdout.splitlines()
