"""ottla without an event loop: `ottla.client.sync`."""

from __future__ import annotations

import ottla
from client_programs import meter as m
from client_programs.meter import Job, Meter
from ottla.client import TopicPartition
from ottla.client.sync import Consumer

VERSION = ottla.__version__
WAIT_S = 10.0


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
    consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    consumer.seek_to_beginning()
    return consumer


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


PROGRAMS: m.Programs = {
    m.CONSUME_LOOP: consume_loop,
    m.CONSUME_BATCH: consume_batch,
    m.CONSUME_ARROW: consume_arrow,
}
