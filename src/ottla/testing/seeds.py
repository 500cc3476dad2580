"""Topics and records that a test puts into its broker, without a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.slices import ITEMS_PER_SLICE
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import TopicSpec
from ottla.records.building import partition_for_key
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT
from ottla.storage.results import AppendRefusal
from ottla.testing.errors import TestBrokerError

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.server import Broker

#: A key or value: text is encoded as UTF-8.
Data = bytes | str | None
HeaderData = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


#: A topic to create: its number of partitions, or that ("partitions", else 1) beside settings by Kafka's names.
TopicDeclaration = int | Mapping[str, int | str]

#: Bytes of keys and values that go into one batch; a single larger record gets a batch of its own.
BATCH_BYTES: Final = 256 * 1024


class SeedRecord(NamedTuple):
    """A record to put into a topic. Without a partition the key decides as Java's producer does, else partition 0."""

    value: Data = None
    key: Data = None
    headers: HeaderData = ()
    partition: int | None = None
    timestamp_ms: int | None = None


async def create_topics(broker: Broker, topics: Mapping[str, TopicDeclaration]) -> None:
    """Create topics. Raises `TestBrokerError` where Kafka would refuse one."""
    for name, declared in topics.items():
        await _create_topic(broker, name, declared)


async def _create_topic(broker: Broker, name: str, declared: TopicDeclaration) -> None:
    if isinstance(declared, bool) or not isinstance(declared, int | Mapping):
        raise TestBrokerError(
            f'the topic {name}: {declared!r} is not a number of partitions, nor settings as in {{"partitions": 3}}'
        )
    settings = {"partitions": declared} if isinstance(declared, int) else declared
    configs = {setting.replace("_", "."): str(value) for setting, value in settings.items() if setting != "partitions"}
    try:
        partitions = int(settings.get("partitions", 1))
    except (ValueError, TypeError):
        raise TestBrokerError(f"the topic {name}: {settings['partitions']!r} is not a number of partitions") from None
    created = await broker.control.admin.create_topic(TopicSpec(name, partitions, 1, {}, configs))
    if isinstance(created, TopicRefusal):
        raise TestBrokerError(f"the topic {name} cannot be created: {created.message}")


async def delete_topic(broker: Broker, name: str) -> None:
    """Delete a topic. Raises `TestBrokerError` where that is refused."""
    refusal = await broker.control.admin.delete_topic(name)
    if refusal is not None:
        raise TestBrokerError(f"the topic {name} cannot be deleted: {refusal.message}")


async def append(broker: Broker, topic: str, records: Iterable[SeedRecord]) -> list[tuple[int, int]]:
    """Append records, and create the topic first where it is missing (`num.partitions`).

    Returns (partition, offset) of each.

    Raises `TestBrokerError` where the broker would refuse them (too large, without a key in a compacted topic),
    and for an internal topic.
    """
    if topic not in broker.image.topics:
        await create_topics(broker, {topic: broker.config.get_int("num.partitions")})
    if broker.image.topics[topic].is_internal:
        raise TestBrokerError(f"{topic} is an internal topic, which only the broker writes")
    count = len(broker.image.topics[topic].partitions)
    now_ms = broker.clock.now_ms()
    by_partition: dict[int, list[int]] = {}
    made: list[Record] = []
    for number, seed in enumerate(records):
        if number % ITEMS_PER_SLICE == 0:
            await broker.slices.point()
        key = _bytes(seed.key, "a key")
        partition = seed.partition
        if partition is None:
            partition = 0 if key is None else partition_for_key(key, count)
        by_partition.setdefault(partition, []).append(number)
        timestamp_ms = now_ms if seed.timestamp_ms is None else _timestamp(seed.timestamp_ms)
        made.append(Record(0, timestamp_ms, key, _bytes(seed.value, "a value"), _headers(seed.headers)))
    for partition in by_partition:
        partition_of(broker, topic, partition)
    places = [(0, 0)] * len(made)
    for partition, numbers in by_partition.items():
        for batch in _batches(made, numbers):
            await broker.slices.point()
            first_offset = _append_batch(broker, topic, partition, [made[number] for number in batch])
            for place, number in enumerate(batch):
                places[number] = (partition, first_offset + place)
    return places


def _batches(records: Sequence[Record], numbers: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for number in numbers:
        record = records[number]
        length = len(record.key or b"") + len(record.value or b"")
        if batch and size + length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += length
    if batch:
        yield batch


def _append_batch(broker: Broker, topic: str, index: int, records: list[Record]) -> int:
    hosted = partition_of(broker, topic, index)
    batch = bytearray(encode_batch(records))
    result = broker.partitions.append(hosted, memoryview(batch), CLIENT)
    if isinstance(result, AppendRefusal):
        raise TestBrokerError(f"{topic}-{index} does not take the records: {result.error.name}: {result.message}")
    return result.first_offset


def partition_of(broker: Broker, topic: str, index: int) -> Partition:
    """The partition. Raises `TestBrokerError` where there is none such."""
    hosted = broker.partitions.get(topic, index)
    if hosted is not None:
        return hosted
    image = broker.image.topics.get(topic)
    if image is None:
        known = ", ".join(sorted(broker.image.topics)) or "none"
        raise TestBrokerError(f"there is no topic {topic}; there are: {known}")
    raise TestBrokerError(f"{topic} has partitions 0 to {len(image.partitions) - 1}, and no partition {index}")


def as_records(records: Iterable[SeedRecord | Data]) -> list[SeedRecord]:
    """Records; plain values get no key. Raises `TestBrokerError` where one value is given for many."""
    if isinstance(records, str | bytes | bytearray | memoryview):
        raise TestBrokerError(f"{records!r:.60} is one value: send() takes it, and send_all() a list of values")
    return [each if isinstance(each, SeedRecord) else SeedRecord(each) for each in records]


def _bytes(data: Any, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TestBrokerError(f"{what} is bytes, text or None, and not {data!r:.60}: serialize it first")


def _timestamp(timestamp_ms: Any) -> int:
    if type(timestamp_ms) is not int:
        raise TestBrokerError(f"timestamp_ms={timestamp_ms!r}: it must be a whole number of milliseconds")
    return int(timestamp_ms)


def _headers(headers: HeaderData) -> tuple[tuple[str, bytes | None], ...]:
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    made: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TestBrokerError(f'headers are names and values, as in {{"trace": "17"}}, and not {pair!r:.60}')
        made.append((pair[0], _bytes(pair[1], "a header's value")))
    return tuple(made)
