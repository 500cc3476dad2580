"""A member of a consumer group on ottla's own client, in the tests' line protocol (see README.md)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from reports import report, report_partitions, wanted, when_asked_to_leave

from ottla.client.consumer.listener import ConsumerRebalanceListener
from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.client.sync import Consumer

WANTED = wanted()
TOPICS = WANTED.topic.split(",")


def report_owned(event: str, partitions: Sequence[TopicPartition]) -> None:
    """Partitions by number, by name and number where there are several topics."""
    if len(TOPICS) == 1:
        report_partitions(event, partitions)
    else:
        report(event, partitions=sorted(map(str, partitions)))


class Heard(ConsumerRebalanceListener):
    """Tells of rebalances."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """After a rebalance."""
        report_owned("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Before a rebalance."""
        report_owned("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group continued without this member."""
        report_owned("lost", partitions)


def consume(consumer: Consumer[bytes, bytes]) -> None:
    """One round: take what is there, tell of it, commit it."""
    records = consumer.poll(200)
    for partition in records.partitions():
        some = records.records(partition)
        report("records", partition=partition.partition, first=some[0].offset, last=some[-1].offset, count=len(some))
    if records:
        try:
            consumer.commit()
        except ClientError as refused:
            report("commit_failed", error=type(refused).__name__)


def main() -> None:
    """Consume until asked to leave."""
    asked = threading.Event()
    when_asked_to_leave(asked.set)
    args = WANTED
    with Consumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        client_id=args.client_id,
        partition_assignment_strategy=args.assignors,
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=args.session_ms // 6,
        max_poll_interval_ms=20_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    ) as consumer:
        consumer.subscribe(TOPICS, Heard())
        while not asked.is_set():
            consume(consumer)
    report("closed")


main()
