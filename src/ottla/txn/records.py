"""The records of `__transaction_state`, byte for byte Apache Kafka's.

Key and value begin with a version as int16. Key version 0 is a transactional id; a record without value is a tombstone.
Values are written in version 0 while `transaction.version` is 0, else in version 1, which adds tagged fields (KIP-890)
and is read since Apache Kafka 3.6. `PreviousProducerId` and `NextProducerId` are written as KIP-890 has them; Apache
Kafka 4.0 reads them, and writes them in later releases only (KAFKA-20310).

Source: `transaction-coordinator/src/main/resources/common/message/TransactionLog{Key,Value}.json`, `TransactionLog`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ottla.txn.metadata import NO_PARTITIONS, NO_PRODUCER_ID, TransactionMetadata
from ottla.txn.states import STATE_IDS, TransactionState
from ottla.wire.codec import WireError, decode, encode
from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, field, message
from ottla.wire.schema import struct as wire_struct

KEY_VERSION = 0
HIGHEST_VALUE_VERSION = 1

_VERSION = struct.Struct(">h")
#: States that are never written.
_UNWRITTEN = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


@message(versions=(0, 0))
class TransactionLogKey(Message):
    """The transactional id."""

    transactional_id: str = field(STRING)


@wire_struct
class TransactionPartitions(Struct):
    """Partitions of a topic in the transaction."""

    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


@message(versions=(0, 1), flexible_since=1)
class TransactionLogValue(Message):
    """The state of a transactional id."""

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=NO_PRODUCER_ID, ignorable=True)
    next_producer_id: int = field(INT64, since=1, tag=1, default=NO_PRODUCER_ID, ignorable=True)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[TransactionPartitions] | None = field(array(TransactionPartitions), nullable_since=0)
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2, ignorable=True)


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The state of a transactional id or, with `metadata` None, its end."""

    transactional_id: str
    metadata: TransactionMetadata | None


class UnreadableTransaction(ValueError):
    """A record that is not understood: damaged, or of a kind that newer versions write."""

    def __init__(self, message: str, unknown_key_version: int | None = None) -> None:
        super().__init__(message)
        #: The version of its key, if that is what is not known; else the record is damaged.
        self.unknown_key_version = unknown_key_version


def value_version(transaction_version: int) -> int:
    """The version of values that are written under this `transaction.version`."""
    return 1 if transaction_version >= 1 else 0


def encode_record(record: TransactionRecord, version: int) -> tuple[bytes, bytes | None]:
    """Key and value as they are appended, the value in `version`."""
    key = _VERSION.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=record.transactional_id), KEY_VERSION)
    metadata = record.metadata
    if metadata is None:
        return key, None
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=STATE_IDS.index(metadata.state),
        transaction_partitions=_by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )
    return key, _VERSION.pack(version) + encode(value, version)


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """Decode a record of the log; raises UnreadableTransaction if it is not understood."""
    try:
        transactional_id = _decode_key(key)
        return TransactionRecord(transactional_id, None if value is None else _decode_value(value))
    except WireError as error:
        raise UnreadableTransaction(str(error)) from error


def _by_topic(metadata: TransactionMetadata) -> list[TransactionPartitions] | None:
    """The partitions in order; as in Apache Kafka null, not an empty list, where no transaction can be."""
    if metadata.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return [TransactionPartitions(topic=topic, partition_ids=partitions) for topic, partitions in topics.items()]


def _decode_key(key: bytes | None) -> str:
    version = _version_of(key, "key")
    assert key is not None
    if version != KEY_VERSION:
        raise UnreadableTransaction(f"has a key of version {version}, which is not known here; skipped", version)
    transactional_id: str = decode(TransactionLogKey, key, version, _VERSION.size).transactional_id
    return transactional_id


def _decode_value(value: bytes) -> TransactionMetadata:
    version = _version_of(value, "value")
    if not 0 <= version <= HIGHEST_VALUE_VERSION:
        raise UnreadableTransaction(
            f"a value of version {version} is newer than the highest known, {HIGHEST_VALUE_VERSION}"
        )
    read = decode(TransactionLogValue, value, version, _VERSION.size)
    number = read.transaction_status
    if not 0 <= number < len(STATE_IDS) or STATE_IDS[number] in _UNWRITTEN:
        raise UnreadableTransaction(f"a value has the state {number}, which is never written")
    state = STATE_IDS[number]
    partitions = () if state is TransactionState.EMPTY else read.transaction_partitions or ()
    return TransactionMetadata(
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        last_update_ms=read.transaction_last_update_timestamp_ms,
        partitions=NO_PARTITIONS.union((each.topic, index) for each in partitions for index in each.partition_ids),
        start_ms=read.transaction_start_timestamp_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        client_transaction_version=read.client_transaction_version,
    )


def _version_of(data: bytes | None, part: str) -> int:
    if data is None or len(data) < _VERSION.size:
        raise UnreadableTransaction(f"a record of the transactions topic has a {part} without version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
