"""ottla with Python's own event loop: `ottla.client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow

import ottla
from client_programs import meter as m
from client_programs.meter import Job, Meter
from ottla.client import Consumer, Producer, TopicPartition

VERSION = ottla.__version__
WAIT_S = 10.0


def _producer(job: Job, linger_ms: int = m.LINGER_MS) -> Producer[bytes, bytes]:
    return Producer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=linger_ms,
        batch_size=m.BATCH_SIZE,
    )


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
    if group:
        await consumer.subscribe([job.topic])
    else:
        await consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
        consumer.seek_to_beginning()
    return consumer


async def produce_loop(job: Job, meter: Meter) -> None:
    """`await send` for each record."""
    async with _producer(job) as producer:
        value, count = job.value, 0
        for _ in range(m.WARM_UP_RECORDS):
            await producer.send(job.topic, value)
        await producer.flush()
        send, topic = producer.send, job.topic
        meter.start()
        while meter.running():
            for _ in range(m.RECORDS_PER_LOOK):
                await send(topic, value)
            count += m.RECORDS_PER_LOOK
        await producer.flush()
        meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


async def produce_batch(job: Job, meter: Meter) -> None:
    """`send_many` with pairs of key and value."""
    async with _producer(job) as producer:
        value, count = job.value, 0
        for _ in range(m.WARM_UP_RECORDS):
            await producer.send(job.topic, value)
        await producer.flush()
        meter.start()
        while meter.running():
            await producer.send_many([(None, value) for _ in range(m.RECORDS_PER_CALL)], job.topic)
            count += m.RECORDS_PER_CALL
        await producer.flush()
        meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


async def produce_arrow(job: Job, meter: Meter) -> None:
    """`send_arrow` with tables that are there already."""
    table, count = pyarrow.table({"value": pyarrow.array([job.value] * m.RECORDS_PER_CALL, pyarrow.binary())}), 0
    async with _producer(job) as producer:
        for _ in range(m.WARM_UP_RECORDS):
            await producer.send(job.topic, job.value)
        await producer.flush()
        meter.start()
        while meter.running():
            await producer.send_arrow(table, job.topic)
            count += table.num_rows
        await producer.flush()
        meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


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


async def group_loop(job: Job, meter: Meter) -> None:
    """`async for record in consumer`, as a member of a group."""
    await consume_loop(job, meter, group=True)


async def single(job: Job, meter: Meter) -> None:
    """`await (await send(…))`."""
    taken = []
    async with _producer(job, linger_ms=0) as producer:
        for number in range(m.WARM_UP_SENDS + job.sends):
            if number == m.WARM_UP_SENDS:
                meter.start()
            begun = time.perf_counter()
            await (await producer.send(job.topic, job.value))
            taken.append(time.perf_counter() - begun)
        meter.stop(job.sends)
    meter.latencies(taken[m.WARM_UP_SENDS :])
    meter.measured.appended = len(taken)


def _run(program: Callable[[Job, Meter], Coroutine[Any, Any, None]]) -> Callable[[Job, Meter], None]:
    return lambda job, meter: asyncio.run(program(job, meter))


PROGRAMS: m.Programs = {
    m.PRODUCE_LOOP: _run(produce_loop),
    m.PRODUCE_BATCH: _run(produce_batch),
    m.PRODUCE_ARROW: _run(produce_arrow),
    m.CONSUME_LOOP: _run(consume_loop),
    m.CONSUME_BATCH: _run(consume_batch),
    m.CONSUME_ARROW: _run(consume_arrow),
    m.GROUP_LOOP: _run(group_loop),
    m.SINGLE: _run(single),
}
