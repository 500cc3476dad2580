"""ottla with Python's own event loop: `ottla.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import ottla
from client_programs import meter as m
from client_programs.meter import Job, Meter
from ottla.client import Consumer, TopicPartition

VERSION = ottla.__version__
WAIT_S = 10.0


async def _consumer(job: Job, group: bool, max_poll_records: int = 500) -> Consumer[bytes, bytes]:
    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group_id if group else None,
        enable_auto_commit=group,
        auto_offset_reset="earliest",
        fetch_max_bytes=m.FETCH_MAX_BYTES,
        max_partition_fetch_bytes=m.MAX_PARTITION_FETCH_BYTES,
        max_poll_records=max_poll_records,
    )
    await consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    consumer.seek_to_beginning()
    return consumer


async def consume_loop(job: Job, meter: Meter, group: bool = False) -> None:
    """`async for record in consumer`."""
    async with await _consumer(job, group) as consumer:
        await anext(aiter(consumer))
        meter.start()
        count = size = 0
        async for record in consumer:
            count += 1
            size += len(record.value)
            if count % m.RECORDS_PER_LOOK == 0 and not meter.running():
                break
            if count + 1 == job.records:
                break
        meter.stop(count)
        meter.check_bytes(count, size)


async def consume_batch(job: Job, meter: Meter) -> None:
    """`poll` of many."""
    async with await _consumer(job, group=False, max_poll_records=m.RECORDS_PER_CALL) as consumer:
        await consumer.poll(timeout_ms=int(WAIT_S * 1000))
        meter.start()
        count = 0
        while meter.reading(count + m.RECORDS_PER_CALL):
            records = await consumer.poll(timeout_ms=1000)
            count += len(records)
            for partition in records.partitions():
                meter.check_bytes(1, len(records.records(partition)[-1].value))
        meter.stop(count)


async def consume_arrow(job: Job, meter: Meter) -> None:
    """`poll_arrow`, with as many rows a table as it likes."""
    async with await _consumer(job, group=False) as consumer:
        first = await consumer.poll_arrow(timeout_ms=int(WAIT_S * 1000), max_rows=1)
        meter.start()
        count = 0
        while meter.reading(count + first.num_rows - 1):
            table = await consumer.poll_arrow(timeout_ms=1000)
            count += table.num_rows
            meter.check_bytes(1, len(table.column("value")[-1].as_py()))
        meter.stop(count)


def _run(program: Callable[[Job, Meter], Coroutine[Any, Any, None]]) -> Callable[[Job, Meter], None]:
    return lambda job, meter: asyncio.run(program(job, meter))


PROGRAMS: m.Programs = {
    m.CONSUME_LOOP: _run(consume_loop),
    m.CONSUME_BATCH: _run(consume_batch),
    m.CONSUME_ARROW: _run(consume_arrow),
}
