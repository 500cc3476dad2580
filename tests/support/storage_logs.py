"""Logs for tests: settings, batches, and partition logs on any disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.topic import LogConfig
from ottla.env.disk import Disk
from ottla.env.executor import InlineExecutor, NoThread
from ottla.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, split_batches
from ottla.records.compression import Compression
from ottla.records.record import Record, decode_batch, encode_batch
from ottla.storage.log import AppendInfo, AppendRefusal, LogRead, PartitionLog
from ottla.storage.recovery import LogPlace, create_log, load_log
from ottla.storage.resources import LogResources

#: A moment in November 2023, for timestamps and clocks.
NOW_MS = 1_700_000_000_000
TOPIC = "orders"
FOLDER_NAME = "orders-0"


def broker_config(**settings: object) -> BrokerConfig:
    """The settings of a broker; underscores in the names stand for dots."""
    config = parse_broker_config({name.replace("_", "."): str(value) for name, value in settings.items()})
    assert isinstance(config, BrokerConfig), config
    return config


def log_config(**settings: object) -> LogConfig:
    """The settings of a topic; underscores in the names stand for dots."""
    overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config = LogConfig.of(broker_config(), overrides)
    assert isinstance(config, LogConfig), config
    return config


def records(count: int, size: int = 10, timestamp: int = NOW_MS, first: int = 0) -> list[Record]:
    """Records with keys and values that tell their number."""
    return [
        Record(number, timestamp + number, b"k%d" % number, (b"v%d-" % number).ljust(size, b"x"), ())
        for number in range(first, first + count)
    ]


def batch(
    count: int = 3,
    *,
    size: int = 10,
    timestamp: int = NOW_MS,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> memoryview:
    """A batch as a producer sends it, writable."""
    return of_records(
        records(count, size, timestamp),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def of_records(content: Sequence[Record], **options: object) -> memoryview:
    """A batch of these records, writable."""
    return memoryview(bytearray(encode_batch(list(content), **options)))  # type: ignore[arg-type]


def place(root: str, config: LogConfig | None = None, **fields: object) -> LogPlace:
    """Where the tests' log lies below `root`."""
    return LogPlace(f"{root}/{FOLDER_NAME}", TOPIC, 0, config or log_config(), **fields)  # type: ignore[arg-type]


def committed(log: PartitionLog) -> PartitionLog:
    """The log, all of it committed: what a leader that is the only replica makes of it."""
    log.update_high_watermark(log.log_end_offset)
    return log


def new_log(disk: Disk, root: str, config: LogConfig | None = None, **resources: Any) -> PartitionLog:
    """An empty log."""
    return create_log(LogResources(disk, **resources), place(root, config), None, NOW_MS)


def open_log(disk: Disk, root: str, config: LogConfig | None = None, **fields: object) -> PartitionLog:
    """The log that lies there, opened as after an unclean stop unless `clean=True`, and led by its only replica."""
    return committed(load_log(LogResources(disk), place(root, config, **fields), NOW_MS))


def append(
    log: PartitionLog, buf: memoryview | None = None, *, leader_epoch: int = 0, now_ms: int = NOW_MS
) -> AppendInfo:
    """Append a batch, which must succeed, as the leader that is the only replica."""
    info = log.append(batch() if buf is None else buf, leader_epoch=leader_epoch, now_ms=now_ms)
    assert isinstance(info, AppendInfo), info
    committed(log)
    return info


def refused(log: PartitionLog, buf: memoryview, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> AppendRefusal:
    """Append a batch, which must be refused."""
    refusal = log.append(buf, leader_epoch=leader_epoch, now_ms=now_ms)
    assert isinstance(refusal, AppendRefusal), refusal
    return refusal


def read_bytes(read: object) -> bytes:
    """What a read gave, released."""
    assert isinstance(read, LogRead), read
    if read.slice is None:
        assert read.size == 0
        return b""
    data = read.slice.read()
    assert len(data) == read.size == read.slice.length
    if read.slice.release is not None:
        read.slice.release()
    return data


def decode(data: bytes | memoryview) -> list[Record]:
    """The records of all whole batches."""
    return [record for header in split_batches(data, partial_tail=True) for record in decode_batch(data, header)]


def read_all(log: PartitionLog, from_offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from an offset on (the log's start by default), by reads as a consumer makes them."""
    offset = log.log_start_offset if from_offset is None else from_offset
    found: list[Record] = []
    while offset < log.log_end_offset:
        data = read_bytes(log.read(offset, max_bytes))
        got = [record for record in decode(data) if record.offset >= offset]
        assert got, f"nothing at {offset} of {log}"
        found += got
        offset = parse_last_offset(data) + 1
    return found


def parse_last_offset(data: bytes) -> int:
    """The last offset of the last whole batch."""
    return split_batches(data, partial_tail=True)[-1].last_offset


class HandExecutor(InlineExecutor):
    """Keeps the works until told to do them."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        #: Whether it takes nothing now, as threads that have far too much to do.
        self.refuses = False

    def call(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        if self.refuses:
            done(None, NoThread("too many jobs wait for the disk threads"))
            return
        self.works.append((work, done))

    def finish(self) -> None:
        work, done = self.works.pop(0)
        done(work(), None)
