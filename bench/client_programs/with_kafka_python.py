"""kafka-python."""

from __future__ import annotations

import time

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from client_programs import meter as m
from client_programs.meter import Job, Meter

VERSION = kafka.__version__
WAIT_S = 10.0


def _producer(job: Job, linger_ms: int = m.LINGER_MS) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=linger_ms,
        batch_size=m.BATCH_SIZE,
    )


def _consumer(job: Job, group: bool) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group_id if group else None,
        enable_auto_commit=group,
        auto_offset_reset="earliest",
        fetch_max_bytes=m.FETCH_MAX_BYTES,
        max_partition_fetch_bytes=m.MAX_PARTITION_FETCH_BYTES,
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    if group:
        consumer.subscribe([job.topic])
    else:
        partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
    return consumer


def produce_loop(job: Job, meter: Meter) -> None:
    """`send` for each record."""
    producer, value, count = _producer(job), job.value, 0
    for _ in range(m.WARM_UP_RECORDS):
        producer.send(job.topic, value)
    producer.flush()
    send, topic = producer.send, job.topic
    meter.start()
    while meter.running():
        for _ in range(m.RECORDS_PER_LOOK):
            send(topic, value)
        count += m.RECORDS_PER_LOOK
    producer.flush()
    meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS
    producer.close()


def consume_loop(job: Job, meter: Meter, group: bool = False) -> None:
    """`for record in consumer`."""
    consumer = _consumer(job, group)
    records = iter(consumer)
    next(records)
    meter.start()
    count = size = 0
    for record in records:
        count += 1
        size += len(record.value)
        if count % m.RECORDS_PER_LOOK == 0 and not meter.running():
            break
        if count + 1 == job.records:
            break
    meter.stop(count)
    meter.check_bytes(count, size)
    consumer.close()


def group_loop(job: Job, meter: Meter) -> None:
    """The same as a member of a group."""
    consume_loop(job, meter, group=True)


def consume_batch(job: Job, meter: Meter) -> None:
    """`poll` of many."""
    consumer = _consumer(job, group=False)
    deadline = time.monotonic() + WAIT_S
    while not consumer.poll(timeout_ms=1000, max_records=1):
        if time.monotonic() > deadline:
            raise TimeoutError("no record")
    meter.start()
    count = 0
    while meter.reading(count):
        batches = consumer.poll(timeout_ms=1000, max_records=m.RECORDS_PER_CALL)
        for records in batches.values():
            count += len(records)
            meter.check_bytes(1, len(records[-1].value))
    meter.stop(count)
    consumer.close()


def single(job: Job, meter: Meter) -> None:
    """`send(…).get()`."""
    producer, taken = _producer(job, linger_ms=0), []
    for number in range(m.WARM_UP_SENDS + job.sends):
        if number == m.WARM_UP_SENDS:
            meter.start()
        begun = time.perf_counter()
        producer.send(job.topic, job.value).get(timeout=WAIT_S)
        taken.append(time.perf_counter() - begun)
    meter.stop(job.sends)
    meter.latencies(taken[m.WARM_UP_SENDS :])
    meter.measured.appended = len(taken)
    producer.close()


PROGRAMS: m.Programs = {
    m.PRODUCE_LOOP: produce_loop,
    m.CONSUME_LOOP: consume_loop,
    m.GROUP_LOOP: group_loop,
    m.CONSUME_BATCH: consume_batch,
    m.SINGLE: single,
}
