"""Idempotent producers with acks=all on several makes of clients, which continue while brokers fail.

Each numbers its records of each partition from 0 on and sends "NAME NUMBER"; what is acknowledged it notes.
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import confluent_kafka

import ottla.client.sync
from support.group_members import MEMBERS
from support.java import java_command

#: Librdkafka reports each attempt to connect to a broker that is down.
SILENT = logging.getLogger("librdkafka.silent")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

#: Between rounds of one record to each partition.
PAUSE_S = 0.02
#: How long a record may take to be acknowledged, with all attempts.
DELIVERY_MS = 120_000
RECONNECT_MS = 500
FLUSH_TIMEOUT_S = 90.0
#: Of a record that was acknowledged without its offset: its own acknowledgement got lost, and the broker knows the
#: sequence number, or has taken a later one, which proves that those before it are there.
UNKNOWN_OFFSET = -1


class LoadProducer(ABC):
    """A producer in a thread of its own, which continues until `end`."""

    name: str

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        #: Of each partition: the offset that was acknowledged (or `UNKNOWN_OFFSET`), and the record's number.
        self.acknowledged: dict[int, list[tuple[int, int]]] = {number: [] for number in range(partitions)}
        self.failed: list[str] = []
        self.longest_pause_s = 0.0
        self.ending = threading.Event()
        self._last_s: float | None = None
        self._thread = threading.Thread(target=self.run, name=self.name)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Send nothing more, and wait until all that was sent is acknowledged, or has failed."""
        self.ending.set()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether it continues."""
        return self._thread.is_alive()

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    @abstractmethod
    def run(self) -> None:
        """Send until `ending` is set, then wait for what is on its way."""

    def note(self, partition: int, offset: int | None, number: int) -> None:
        """A record was acknowledged."""
        now_s = time.monotonic()
        if self._last_s is not None:
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s
        self.acknowledged[partition].append((UNKNOWN_OFFSET if offset is None else offset, number))

    def value(self, number: int) -> bytes:
        """The value of a record."""
        return f"{self.name} {number}".encode()


class LibrdkafkaLoad(LoadProducer):
    """confluent-kafka."""

    name = "librdkafka"

    def run(self) -> None:
        """See `LoadProducer`."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": DELIVERY_MS,
            "reconnect.backoff.max.ms": RECONNECT_MS,
        }
        producer = confluent_kafka.Producer(settings, logger=SILENT)
        number = 0
        while not self.ending.is_set():
            for partition in range(self.partitions):
                delivered = partial(self._delivered, number)
                producer.produce(self.topic, self.value(number), partition=partition, on_delivery=delivered)
            number += 1
            producer.poll(0)
            self.ending.wait(PAUSE_S)
        producer.flush(FLUSH_TIMEOUT_S)

    def _delivered(
        self, number: int, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        partition = message.partition()
        if error is not None or partition is None:
            self.failed.append(f"{partition} #{number}: {error}")
        else:
            self.note(partition, message.offset(), number)


class OttlaLoad(LoadProducer):
    """The client of this project."""

    name = "ottla"

    def run(self) -> None:
        """See `LoadProducer`."""
        number = 0
        with ottla.client.sync.Producer(
            bootstrap_servers=self.bootstrap,
            client_id=self.name,
            acks="all",
            enable_idempotence=True,
            linger_ms=1,
            delivery_timeout_ms=DELIVERY_MS,
            reconnect_backoff_max_ms=RECONNECT_MS,
        ) as producer:
            while not self.ending.is_set():
                for partition in range(self.partitions):
                    delivered = partial(self._delivered, partition, number)
                    producer.send(self.topic, self.value(number), partition=partition, callback=delivered)
                number += 1
                self.ending.wait(PAUSE_S)
            producer.flush(int(FLUSH_TIMEOUT_S * 1000))

    def _delivered(self, partition: int, number: int, metadata: Any, error: Exception | None) -> None:
        if error is not None:
            self.failed.append(f"{partition} #{number}: {error!r}")
        else:
            self.note(partition, metadata.offset, number)


class JavaLoad(LoadProducer):
    """Apache Kafka's own client, in a JVM: `Load.java`."""

    name = "java"

    def run(self) -> None:
        """See `LoadProducer`."""
        arguments = (self.bootstrap, self.topic, str(self.partitions), str(int(PAUSE_S * 1000)))
        command = java_command(str(MEMBERS / "Load.java"), *arguments)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                text=True,
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            waiting = threading.Thread(target=self._end, args=(process,), name="java-end")
            waiting.start()
            try:
                for line in process.stdout:
                    self._told(line)
                status = process.wait()
            finally:
                self.ending.set()
                waiting.join()
            if status != 0:
                errors.seek(0)
                self.failed.append(f"status {status}: {errors.read()[-2000:].decode()}")

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Ask it to end, once it is time; kill it, when it takes too long."""
        assert process.stdin is not None
        self.ending.wait()
        process.stdin.close()
        try:
            process.wait(2 * FLUSH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def _told(self, line: str) -> None:
        first, _, rest = line.partition(" ")
        if first == "failed":
            self.failed.append(rest.strip())
            return
        offset, number = map(int, rest.split())
        self.note(int(first), offset, number)


#: Of each client: its own, librdkafka's, and the client of this project.
PRODUCERS: dict[str, type[LoadProducer]] = {each.name: each for each in (JavaLoad, LibrdkafkaLoad, OttlaLoad)}
