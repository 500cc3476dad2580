"""A member of a consumer group on confluent-kafka (librdkafka), in the tests' line protocol (see README.md)."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaException
from reports import report, report_partitions, wanted, when_asked_to_leave


def main() -> None:
    """Consume until asked to leave."""
    asked = threading.Event()
    when_asked_to_leave(asked.set)
    args = wanted()
    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": args.group,
            "client.id": args.client_id,
            "partition.assignment.strategy": ",".join(args.assignors),
            "session.timeout.ms": args.session_ms,
            "heartbeat.interval.ms": args.session_ms // 6,
            "max.poll.interval.ms": 20_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )

    def heard(event: str) -> Any:
        return lambda _, partitions: report_partitions(event, partitions)

    consumer.subscribe([args.topic], on_assign=heard("assigned"), on_revoke=heard("revoked"), on_lost=heard("lost"))
    while not asked.is_set():
        consume(consumer)
    consumer.close()
    report("closed")


def consume(consumer: Consumer) -> None:
    """One round: take what is there, tell of it, commit it."""
    offsets: dict[int, list[int]] = {}
    for message in consumer.consume(500, timeout=0.2):
        if message.error() is None:
            offsets.setdefault(message.partition(), []).append(message.offset())
    for partition, some in offsets.items():
        report("records", partition=partition, first=some[0], last=some[-1], count=len(some))
    if offsets:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as refused:
            report("commit_failed", error=refused.args[0].name())


main()
