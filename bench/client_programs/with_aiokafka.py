"""aiokafka, with its compiled record codec and Python's own event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from client_programs import meter as m
from client_programs.meter import Job, Meter

VERSION = aiokafka.__version__
WAIT_S = 10.0


async def _producer(job: Job, linger_ms: int = m.LINGER_MS) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=linger_ms,
        max_batch_size=m.BATCH_SIZE,
    )
    await producer.start()
    return producer


async def _consumer(job: Job, group: bool) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group_id if group else None,
        enable_auto_commit=group,
        auto_offset_reset="earliest",
        fetch_max_bytes=m.FETCH_MAX_BYTES,
        max_partition_fetch_bytes=m.MAX_PARTITION_FETCH_BYTES,
    )
    if group:
        consumer.subscribe([job.topic])
    else:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    await consumer.start()
    if not group:
        await consumer.seek_to_beginning()
    return consumer


async def produce_loop(job: Job, meter: Meter) -> None:
    """`await send` for each record, then `flush`."""
    producer, value, count = await _producer(job), job.value, 0
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
    await producer.stop()


async def produce_batch(job: Job, meter: Meter) -> None:
    """Batches that the program fills and gives to the partitions in turns."""
    producer, value, count, turn = await _producer(job), job.value, 0, 0
    for _ in range(m.WARM_UP_RECORDS):
        await producer.send(job.topic, value)
    await producer.flush()
    meter.start()
    pending = []
    while meter.running():
        batch = producer.create_batch()
        append = batch.append
        while append(key=None, value=value, timestamp=None) is not None:
            pass
        count += batch.record_count()
        pending.append(await producer.send_batch(batch, job.topic, partition=turn % job.partitions))
        turn += 1
    await asyncio.gather(*pending)
    meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS
    await producer.stop()


async def consume_loop(job: Job, meter: Meter, group: bool = False) -> None:
    """`async for record in consumer`."""
    consumer = await _consumer(job, group)
    await asyncio.wait_for(consumer.getone(), WAIT_S)
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
    await consumer.stop()


async def group_loop(job: Job, meter: Meter) -> None:
    """The same as a member of a group."""
    await consume_loop(job, meter, group=True)


async def consume_batch(job: Job, meter: Meter) -> None:
    """`getmany`."""
    consumer = await _consumer(job, group=False)
    await asyncio.wait_for(consumer.getone(), WAIT_S)
    meter.start()
    count = 0
    while meter.reading(count):
        batches = await consumer.getmany(timeout_ms=1000, max_records=m.RECORDS_PER_CALL)
        for records in batches.values():
            count += len(records)
            meter.check_bytes(1, len(records[-1].value))
    meter.stop(count)
    await consumer.stop()


async def single(job: Job, meter: Meter) -> None:
    """`send_and_wait`."""
    producer, taken = await _producer(job, linger_ms=0), []
    for number in range(m.WARM_UP_SENDS + job.sends):
        if number == m.WARM_UP_SENDS:
            meter.start()
        begun = time.perf_counter()
        await producer.send_and_wait(job.topic, job.value)
        taken.append(time.perf_counter() - begun)
    meter.stop(job.sends)
    meter.latencies(taken[m.WARM_UP_SENDS :])
    meter.measured.appended = len(taken)
    await producer.stop()


def _run(program: Callable[[Job, Meter], Coroutine[Any, Any, None]]) -> Callable[[Job, Meter], None]:
    return lambda job, meter: asyncio.run(program(job, meter))


PROGRAMS: m.Programs = {
    m.PRODUCE_LOOP: _run(produce_loop),
    m.PRODUCE_BATCH: _run(produce_batch),
    m.CONSUME_LOOP: _run(consume_loop),
    m.GROUP_LOOP: _run(group_loop),
    m.CONSUME_BATCH: _run(consume_batch),
    m.SINGLE: _run(single),
}
