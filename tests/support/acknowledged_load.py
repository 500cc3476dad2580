"""Producers that continue while brokers fail, and the check that nothing they were acknowledged got lost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from support.load_producers import DELIVERY_MS, PRODUCERS, SILENT, UNKNOWN_OFFSET
from support.waiting import wait_until

READ_TIMEOUT_S = 60.0
#: A record that takes longer than it may has failed, and then the story says so.
MORE_TIMEOUT_S = DELIVERY_MS / 1000 + 10
#: The producer of a record, and its number.
Record = tuple[str, int]


class AcknowledgedLoad:
    """Idempotent producers with acks=all on several clients, by their names in `PRODUCERS`, to the same partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, clients: Sequence[str] = tuple(PRODUCERS)) -> None:
        self.topic = topic
        self.partitions = partitions
        self.producers = [PRODUCERS[client](bootstrap, topic, partitions) for client in clients]
        self._bootstrap = bootstrap

    def __enter__(self) -> AcknowledgedLoad:
        for producer in self.producers:
            producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.producers:
            producer.ending.set()
        for producer in self.producers:
            producer.end()

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(producer.count for producer in self.producers)

    @property
    def acknowledged(self) -> dict[int, list[tuple[int, Record]]]:
        """Of each partition: the offset that was acknowledged (or `UNKNOWN_OFFSET`), and the record."""
        return {
            partition: [
                (offset, (producer.name, number))
                for producer in self.producers
                for offset, number in producer.acknowledged[partition][:]
            ]
            for partition in range(self.partitions)
        }

    def wait_for_more(self, records: int = 100) -> None:
        """Until this many more records were acknowledged, of each producer and in each partition at least one."""
        before, total = self._counts(), self.count

        def enough() -> bool:
            for producer in self.producers:
                assert producer.is_alive, f"the producer on {producer.name} has ended: {producer.failed[:3]}"
                assert not producer.failed, f"{producer.name}: {producer.failed[:3]}"
            now = self._counts()
            return self.count >= total + records and all(now[key] > count for key, count in before.items())

        wait_until(
            enough,
            lambda: f"{records} more acknowledged records: {before} before, {self._counts()} now",
            MORE_TIMEOUT_S,
        )

    def _counts(self) -> dict[Record, int]:
        """How many records were acknowledged to each producer in each partition."""
        return {
            (producer.name, partition): len(found)
            for producer in self.producers
            for partition, found in producer.acknowledged.items()
        }

    def check(self) -> None:
        """What was acknowledged is at its offset, each record once, and in order. Call it after the load has ended."""
        for producer in self.producers:
            assert not producer.failed, f"{producer.name}: {producer.failed[:3]}"
        acknowledged = self.acknowledged
        for partition, (start, found) in self._read().items():
            for producer in self.producers:
                numbers = [number for _, (name, number) in found if name == producer.name]
                assert numbers == sorted(set(numbers)), (
                    f"partition {partition}: {numbers} of {producer.name} are not in order, each once"
                )
            at, there = dict(found), {record for _, record in found}
            missing = [
                (offset, record)
                for offset, record in acknowledged[partition]
                if (record not in there if offset == UNKNOWN_OFFSET else offset >= start and at.get(offset) != record)
            ]
            assert not missing, f"partition {partition}: acknowledged and not there: {missing[:10]} of {len(missing)}"
        for producer in self.producers:
            longest = f"longest time without one {producer.longest_pause_s:.1f} s"
            print(f"{producer.name}: {producer.count} records acknowledged, all there; {longest}")

    def _read(self) -> dict[int, tuple[int, list[tuple[int, Record]]]]:
        """Of each partition its first offset, and all records with their offsets."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False}, logger=SILENT
        )
        found: dict[int, tuple[int, list[tuple[int, Record]]]] = {}
        try:
            for partition in range(self.partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), READ_TIMEOUT_S)
                consumer.assign([TopicPartition(self.topic, partition, low)])
                records: list[tuple[int, Record]] = []
                deadline = time.monotonic() + READ_TIMEOUT_S
                while low + len(records) < high:
                    assert time.monotonic() < deadline, f"partition {partition}: {len(records)} of {high - low} records"
                    message = consumer.poll(1.0)
                    if message is not None and message.error() is None:
                        records.append(_offset_and_record(message))
                found[partition] = low, records
        finally:
            consumer.close()
        return found


def _offset_and_record(message: Message) -> tuple[int, Record]:
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    name, number = value.decode().split(" ")
    return offset, (name, int(number))
