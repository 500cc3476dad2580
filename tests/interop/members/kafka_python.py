"""A member of a consumer group on kafka-python, in the tests' line protocol (see README.md)."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from reports import report, report_partitions, wanted, when_asked_to_leave

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

#: One poll may last so long.
POLL_MS = 60_000


class Heard(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells of rebalances."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """After a rebalance."""
        report_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Before a rebalance."""
        report_partitions("revoked", revoked)


class AskedToLeave(Exception):
    """Ends a poll."""


class LongPolling(KafkaConsumer):  # type: ignore[misc]
    """A consumer whose polls end when it is asked to leave, and not in the middle of a join (../FINDINGS.md)."""

    asked = threading.Event()

    def _poll_once(self, *args: Any, **options: Any) -> Any:
        if self.asked.is_set():
            raise AskedToLeave
        return super()._poll_once(*args, **options)


def main() -> None:
    """Consume until asked to leave."""
    when_asked_to_leave(LongPolling.asked.set)
    args = wanted()
    consumer = LongPolling(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        client_id=args.client_id,
        partition_assignment_strategy=[ASSIGNORS[name] for name in args.assignors],
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=args.session_ms // 6,
        max_poll_interval_ms=20_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )
    # Without, its first join can happen before it knows the topic (../FINDINGS.md).
    consumer.partitions_for_topic(args.topic)
    consumer.subscribe([args.topic], listener=Heard())
    with suppress(AskedToLeave):
        while True:
            consume(consumer)
    consumer.close()
    report("closed")


def consume(consumer: KafkaConsumer) -> None:
    """One round: take what is there, tell of it, commit it."""
    found = consumer.poll(timeout_ms=POLL_MS)
    for partition, some in found.items():
        report("records", partition=partition.partition, first=some[0].offset, last=some[-1].offset, count=len(some))
    if found:
        try:
            consumer.commit()
        except KafkaError as refused:
            report("commit_failed", error=type(refused).__name__)


main()
