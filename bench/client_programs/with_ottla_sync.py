"""ottla without an event loop: `ottla.client.sync`."""

from __future__ import annotations

import time

import pyarrow

import ottla
from client_programs import meter as m
from client_programs.meter import Job, Meter
from ottla.client import TopicPartition
from ottla.client.sync import Consumer, Producer

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


def _consumer(job: Job, group: bool, max_poll_records: int = 500) -> Consumer[bytes, bytes]:
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
        consumer.subscribe([job.topic])
    else:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
        consumer.seek_to_beginning()
    return consumer


def produce_loop(job: Job, meter: Meter) -> None:
    """`send` for each record."""
    with _producer(job) as producer:
        value, count = job.value, 0
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


def produce_batch(job: Job, meter: Meter) -> None:
    """`send_many` with pairs of key and value."""
    with _producer(job) as producer:
        value, count = job.value, 0
        for _ in range(m.WARM_UP_RECORDS):
            producer.send(job.topic, value)
        producer.flush()
        meter.start()
        while meter.running():
            producer.send_many([(None, value) for _ in range(m.RECORDS_PER_CALL)], job.topic)
            count += m.RECORDS_PER_CALL
        producer.flush()
        meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


def produce_arrow(job: Job, meter: Meter) -> None:
    """`send_arrow` with tables that are there already."""
    table, count = pyarrow.table({"value": pyarrow.array([job.value] * m.RECORDS_PER_CALL, pyarrow.binary())}), 0
    with _producer(job) as producer:
        for _ in range(m.WARM_UP_RECORDS):
            producer.send(job.topic, job.value)
        producer.flush()
        meter.start()
        while meter.running():
            producer.send_arrow(table, job.topic)
            count += table.num_rows
        producer.flush()
        meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


def consume_loop(job: Job, meter: Meter, group: bool = False) -> None:
    """`for record in consumer`."""
    with _consumer(job, group) as consumer:
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


def consume_batch(job: Job, meter: Meter) -> None:
    """`poll` of many."""
    with _consumer(job, group=False, max_poll_records=m.RECORDS_PER_CALL) as consumer:
        consumer.poll(timeout_ms=int(WAIT_S * 1000))
        meter.start()
        count = 0
        while meter.reading(count + m.RECORDS_PER_CALL):
            records = consumer.poll(timeout_ms=1000)
            count += len(records)
            for partition in records.partitions():
                meter.check_bytes(1, len(records.records(partition)[-1].value))
        meter.stop(count)


def consume_arrow(job: Job, meter: Meter) -> None:
    """`poll_arrow`, with as many rows a table as it likes."""
    with _consumer(job, group=False) as consumer:
        first = consumer.poll_arrow(timeout_ms=int(WAIT_S * 1000), max_rows=1)
        meter.start()
        count = 0
        while meter.reading(count + first.num_rows - 1):
            table = consumer.poll_arrow(timeout_ms=1000)
            count += table.num_rows
            meter.check_bytes(1, len(table.column("value")[-1].as_py()))
        meter.stop(count)


def group_loop(job: Job, meter: Meter) -> None:
    """`for record in consumer`, as a member of a group."""
    consume_loop(job, meter, group=True)


def single(job: Job, meter: Meter) -> None:
    """`send(…).result()`."""
    taken = []
    with _producer(job, linger_ms=0) as producer:
        for number in range(m.WARM_UP_SENDS + job.sends):
            if number == m.WARM_UP_SENDS:
                meter.start()
            begun = time.perf_counter()
            producer.send(job.topic, job.value).result(WAIT_S)
            taken.append(time.perf_counter() - begun)
        meter.stop(job.sends)
    meter.latencies(taken[m.WARM_UP_SENDS :])
    meter.measured.appended = len(taken)


PROGRAMS: m.Programs = {
    m.PRODUCE_LOOP: produce_loop,
    m.PRODUCE_BATCH: produce_batch,
    m.PRODUCE_ARROW: produce_arrow,
    m.CONSUME_LOOP: consume_loop,
    m.CONSUME_BATCH: consume_batch,
    m.CONSUME_ARROW: consume_arrow,
    m.GROUP_LOOP: group_loop,
    m.SINGLE: single,
}
