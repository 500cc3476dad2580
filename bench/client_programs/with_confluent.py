"""confluent-kafka, the binding of librdkafka."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from client_programs import meter as m
from client_programs.meter import Job, Meter

VERSION = confluent_kafka.version()
WAIT_S = 10.0
#: librdkafka queues this many messages and kilobytes, and refuses more: then the program waits.
FULL_QUEUE_WAIT_S = 0.005
#: How long librdkafka leaves a partition alone that it has fetched enough of, in milliseconds: its default is a second,
#: in which a fast program has nothing to read.
TUNED_BACKOFF_MS = 10


def _producer(job: Job, linger_ms: int = m.LINGER_MS) -> Producer:
    return Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": linger_ms,
            "batch.size": m.BATCH_SIZE,
            "compression.type": "none",
        }
    )


def _consumer(job: Job, group: bool, tuned: bool) -> Consumer:
    consumer = Consumer(
        {
            **({"fetch.queue.backoff.ms": TUNED_BACKOFF_MS} if tuned else {}),
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group_id,
            "enable.auto.commit": group,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.max.bytes": m.FETCH_MAX_BYTES,
            "max.partition.fetch.bytes": m.MAX_PARTITION_FETCH_BYTES,
        }
    )
    if group:
        consumer.subscribe([job.topic])
    else:
        consumer.assign([TopicPartition(job.topic, number, OFFSET_BEGINNING) for number in range(job.partitions)])
    return consumer


class _Delivered:
    """Counts delivery reports, which a careful program asks for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        self.count += 1


def _flush(producer: Producer) -> None:
    if producer.flush(WAIT_S):
        raise TimeoutError("not everything was delivered")


def _produce(producer: Producer, topic: str, value: bytes, count: int) -> None:
    produce = producer.produce
    for _ in range(count):
        while True:
            try:
                produce(topic, value)
                break
            except BufferError:
                producer.poll(FULL_QUEUE_WAIT_S)


def produce_loop(job: Job, meter: Meter) -> None:
    """`produce` for each record, without delivery reports: the fastest way."""
    producer, value, count = _producer(job), job.value, 0
    _produce(producer, job.topic, value, m.WARM_UP_RECORDS)
    _flush(producer)
    meter.start()
    while meter.running():
        _produce(producer, job.topic, value, m.RECORDS_PER_LOOK)
        count += m.RECORDS_PER_LOOK
    _flush(producer)
    meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


def produce_batch(job: Job, meter: Meter) -> None:
    """`produce_batch` with a list of dictionaries."""
    producer, value, count = _producer(job), job.value, 0
    _produce(producer, job.topic, value, m.WARM_UP_RECORDS)
    _flush(producer)
    meter.start()
    while meter.running():
        messages = [{"value": value} for _ in range(m.RECORDS_PER_CALL)]
        while messages:
            producer.produce_batch(job.topic, messages)
            # Those that found the queue full say so, and are to be given again.
            messages = [{"value": message["value"]} for message in messages if "_error" in message]
            if messages:
                producer.poll(FULL_QUEUE_WAIT_S)
        count += m.RECORDS_PER_CALL
    _flush(producer)
    meter.stop(count)
    meter.measured.appended = count + m.WARM_UP_RECORDS


def consume_loop(job: Job, meter: Meter, group: bool = False, tuned: bool = False) -> None:
    """`poll` for each record."""
    consumer = _consumer(job, group, tuned)
    first = consumer.poll(WAIT_S)
    if first is None or first.error():
        raise TimeoutError("no record")
    meter.start()
    count = size = 0
    poll = consumer.poll
    while meter.reading(count):
        for _ in range(min(m.RECORDS_PER_LOOK, job.records - count - 1)):
            message = poll(WAIT_S)
            if message is None or message.error():
                raise confluent_kafka.KafkaException(message and message.error())
            count += 1
            size += len(message.value() or b"")
    meter.stop(count)
    meter.check_bytes(count, size)
    consumer.close()


def group_loop(job: Job, meter: Meter) -> None:
    """The same as a member of a group."""
    consume_loop(job, meter, group=True)


def consume_batch(job: Job, meter: Meter, tuned: bool = False) -> None:
    """`consume` of many."""
    consumer = _consumer(job, group=False, tuned=tuned)
    consumer.poll(WAIT_S)
    meter.start()
    count = 0
    while meter.reading(count):
        messages = consumer.consume(min(m.RECORDS_PER_CALL, job.records - count - 1), WAIT_S)
        count += len(messages)
        meter.check_bytes(1, len(messages[-1].value() or b""))
    meter.stop(count)
    consumer.close()


def single(job: Job, meter: Meter) -> None:
    """`produce`, then `poll` until its delivery report is there."""
    producer, delivered, taken = _producer(job, linger_ms=0), _Delivered(), []
    for number in range(m.WARM_UP_SENDS + job.sends):
        if number == m.WARM_UP_SENDS:
            meter.start()
        begun = time.perf_counter()
        producer.produce(job.topic, job.value, on_delivery=delivered)
        while delivered.count <= number:
            producer.poll(WAIT_S)
        taken.append(time.perf_counter() - begun)
    meter.stop(job.sends)
    meter.latencies(taken[m.WARM_UP_SENDS :])
    meter.measured.appended = len(taken)


PROGRAMS: m.Programs = {
    m.PRODUCE_LOOP: produce_loop,
    m.PRODUCE_BATCH: produce_batch,
    m.CONSUME_LOOP: consume_loop,
    m.GROUP_LOOP: group_loop,
    m.CONSUME_BATCH: consume_batch,
    m.SINGLE: single,
}
TUNED: m.Programs = {
    m.CONSUME_LOOP: partial(consume_loop, tuned=True),
    m.GROUP_LOOP: partial(consume_loop, tuned=True, group=True),
    m.CONSUME_BATCH: partial(consume_batch, tuned=True),
}
