"""A producer that goes on while brokers fail, and the check that nothing it was acknowledged got lost."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from support.waiting import wait_until

#: Librdkafka reports each attempt to connect to a broker that is down.
_SILENT = logging.getLogger("librdkafka.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

#: Between rounds of one record to each partition.
PAUSE_S = 0.005
READ_TIMEOUT_S = 60.0
#: Of a record that librdkafka takes for acknowledged since a later batch of its partition was: its own acknowledgement
#: got lost, and a sequence number that is taken proves that those before it are.
UNKNOWN_OFFSET = -1
FLUSH_TIMEOUT_S = 90.0


class AcknowledgedLoad:
    """An idempotent producer with acks=all in a thread of its own, which numbers the records of each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        #: Of each partition: the offset that was acknowledged (or `UNKNOWN_OFFSET`), and the record's number.
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.failed: list[KafkaError] = []
        self.longest_pause_s = 0.0
        self._bootstrap = bootstrap
        self._last_s = 0.0
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
            },
            logger=_SILENT,
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> AcknowledgedLoad:
        self._last_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self, records: int = 100) -> None:
        """Until so many more records were acknowledged, in each partition at least one."""
        before = {partition: len(self.acknowledged[partition]) for partition in range(self.partitions)}
        total = self.count

        def enough() -> bool:
            assert self._thread.is_alive(), "the producer's thread has failed"
            return self.count >= total + records and all(
                len(self.acknowledged[partition]) > count for partition, count in before.items()
            )

        def what() -> str:
            now = {partition: len(self.acknowledged[partition]) for partition in range(self.partitions)}
            return f"{records} more acknowledged records: {before} before, {now} now, failed: {self.failed[:3]}"

        wait_until(enough, what, FLUSH_TIMEOUT_S)

    def check(self) -> None:
        """What was acknowledged is at its offset, each number once and in order. Call it after the load has ended."""
        assert not self.failed, self.failed[:3]
        for partition, (start, found) in self._read().items():
            numbers = [number for _, number in found]
            assert numbers == sorted(set(numbers)), f"partition {partition}: {numbers} are not in order, each once"
            at, there = dict(found), set(numbers)
            missing = [
                (offset, number)
                for offset, number in self.acknowledged[partition]
                if (number not in there if offset == UNKNOWN_OFFSET else offset >= start and at.get(offset) != number)
            ]
            assert not missing, f"partition {partition}: acknowledged and not there: {missing[:10]} of {len(missing)}"
        print(f"{self.count} records acknowledged, all there; longest time without one {self.longest_pause_s:.1f} s")

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            for partition in range(self.partitions):
                self._producer.produce(
                    self.topic,
                    str(number),
                    partition=partition,
                    on_delivery=partial(self._delivered, number),
                )
            number += 1
            self._producer.poll(PAUSE_S)
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        now_s = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        self.acknowledged[partition].append((UNKNOWN_OFFSET if offset is None else offset, number))

    def _read(self) -> dict[int, tuple[int, list[tuple[int, int]]]]:
        """Of each partition its first offset, and all records as offset and number."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False}, logger=_SILENT
        )
        found: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        try:
            for partition in range(self.partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), READ_TIMEOUT_S)
                consumer.assign([TopicPartition(self.topic, partition, low)])
                records: list[tuple[int, int]] = []
                deadline = time.monotonic() + READ_TIMEOUT_S
                while low + len(records) < high:
                    assert time.monotonic() < deadline, f"partition {partition}: {len(records)} of {high - low} records"
                    message = consumer.poll(1.0)
                    if message is not None and message.error() is None:
                        records.append(_offset_and_number(message))
                found[partition] = low, records
        finally:
            consumer.close()
        return found


def _offset_and_number(message: Message) -> tuple[int, int]:
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    return offset, int(value)
