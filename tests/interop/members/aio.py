"""A member of a consumer group on aiokafka, in the tests' line protocol (see README.md)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from reports import report, report_partitions, wanted, when_asked_to_leave

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Heard(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells of rebalances."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """After a rebalance."""
        report_partitions("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Before a rebalance."""
        report_partitions("revoked", revoked)


async def main() -> None:
    """Consume until asked to leave."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    when_asked_to_leave(lambda: loop.call_soon_threadsafe(asked.set))
    args = wanted()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=args.bootstrap,
        group_id=args.group,
        client_id=args.client_id,
        partition_assignment_strategy=[ASSIGNORS[name] for name in args.assignors],
        session_timeout_ms=args.session_ms,
        heartbeat_interval_ms=args.session_ms // 6,
        max_poll_interval_ms=20_000,
        rebalance_timeout_ms=20_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([args.topic], listener=Heard())
    await consumer.start()
    while not asked.is_set():
        await consume(consumer)
    # It consumes no more, and leaving does not call the listener.
    report_partitions("revoked", consumer.assignment())
    await consumer.stop()
    report("closed")


async def consume(consumer: AIOKafkaConsumer) -> None:
    """One round: take what is there, tell of it, commit it."""
    found = await consumer.getmany(timeout_ms=200)
    for partition, some in found.items():
        report("records", partition=partition.partition, first=some[0].offset, last=some[-1].offset, count=len(some))
    if found:
        try:
            await consumer.commit({one: some[-1].offset + 1 for one, some in found.items()})
        except KafkaError as refused:
            report("commit_failed", error=type(refused).__name__)


asyncio.run(main())
