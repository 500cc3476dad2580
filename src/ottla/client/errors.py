"""Errors that users of a client can get; those of its connections are in `ottla.peer.errors`.

Import both kinds from here. Each message names the cause and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.peer.errors import AuthenticationError as AuthenticationError
from ottla.peer.errors import AuthorizationError as AuthorizationError
from ottla.peer.errors import BrokerError as BrokerError
from ottla.peer.errors import BrokerHangsError as BrokerHangsError
from ottla.peer.errors import BrokerTooOldError as BrokerTooOldError
from ottla.peer.errors import BrokerUnreachableError as BrokerUnreachableError
from ottla.peer.errors import ClientClosedError as ClientClosedError
from ottla.peer.errors import ClientError as ClientError
from ottla.peer.errors import ClientTimeoutError as ClientTimeoutError
from ottla.peer.errors import ConnectError as ConnectError
from ottla.peer.errors import ConnectionLostError as ConnectionLostError
from ottla.peer.errors import ConnectTimeoutError as ConnectTimeoutError
from ottla.peer.errors import CorruptBatchError as CorruptBatchError
from ottla.peer.errors import ForkedError as ForkedError
from ottla.peer.errors import IllegalStateError as IllegalStateError
from ottla.peer.errors import InvalidArgumentError as InvalidArgumentError
from ottla.peer.errors import NotKafkaError as NotKafkaError
from ottla.peer.errors import NotLeaderError as NotLeaderError
from ottla.peer.errors import ProtocolError as ProtocolError
from ottla.peer.errors import SecurityMismatchError as SecurityMismatchError
from ottla.peer.errors import UnknownTopicError as UnknownTopicError
from ottla.peer.errors import UnresolvableHostError as UnresolvableHostError
from ottla.peer.errors import UnsupportedVersionError as UnsupportedVersionError
from ottla.peer.errors import as_client_error as as_client_error
from ottla.records.extras import MissingExtraError as MissingExtraError
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.records.consumed import ConsumerRecord


class InvalidConfigError(InvalidArgumentError):
    """Settings of a client are unknown, out of range or contradict each other; `problems` lists all."""

    def __init__(self, kind: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        text = self.problems[0] if len(self.problems) == 1 else "\n- ".join(("several problems:", *self.problems))
        super().__init__(f"the settings of this {kind} cannot be: {text}")


class SerializationError(ClientError):
    """A key or value cannot be serialized or deserialized."""


class TopicExistsError(BrokerError, codes=(ErrorCode.TOPIC_ALREADY_EXISTS,)):
    """A topic of that name exists already."""


class NotEnoughReplicasError(
    BrokerError, codes=(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
):
    """Fewer replicas are in sync than min.insync.replicas requires with acks=all; retriable."""


class InvalidOffsetError(ClientError):
    """Positions of some partitions are invalid or unknown; `partitions` lists these. See the subclasses."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition] = (), *, retriable: bool = False) -> None:
        super().__init__(message, retriable=retriable)
        self.partitions = frozenset(partitions)


class OffsetOutOfRange(BrokerError, InvalidOffsetError):
    """The requested offset is not in the log, which goes from `earliest` to just before `latest`.

    Both are None if the broker could not be asked for them.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, earliest: int | None = None, latest: int | None = None
    ) -> None:
        has = f"has offsets {earliest} to {latest} (exclusive)"
        if earliest is None or latest is None:
            why, cure = "was deleted, or is not written yet", "seek to an offset that is there"
            has = "did not report in time which offsets it has"
        elif offset < earliest:
            why, cure = "was deleted", f"start at {earliest} to read what is left"
        else:
            why, cure = "is not written yet, or the topic was created again", f"start at {latest} at the latest"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {topic}-{partition} {why}; it {has}",
            cure,
        )
        self.partitions = frozenset({TopicPartition(topic, partition)})
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class RecordTooLargeError(BrokerError):
    """One record is larger than the producer, the topic or the broker allows."""

    def __init__(self, topic: str, size: int, limit: str) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes for topic {topic} is too large",
            f"it exceeds {limit}; raise that, or send smaller records",
        )
        self.size = size
        """Bytes of a batch with this record alone."""


class CommitFailedError(ClientError):
    """Offsets were not committed: this consumer is not a group member any more, and others own its partitions."""


class RetriableCommitFailedError(ClientError):
    """An asynchronous commit failed for a temporary reason, and was not retried: a later one may be ahead."""


class RebalanceInProgressError(ClientError):
    """Offsets were not committed because of a rebalance: poll until it is complete, then commit owned partitions."""


class RebalanceListenerError(ClientError):
    """A method of the rebalance listener failed; its own error is the cause (`__cause__`)."""


class FencedInstanceIdError(BrokerError, codes=(ErrorCode.FENCED_INSTANCE_ID,)):
    """Another consumer has joined the group with the same group.instance.id."""


class ProducerFencedError(BrokerError, codes=(ErrorCode.PRODUCER_FENCED,)):
    """Another producer with the same transactional.id has begun, or the transaction timed out: close this producer."""


class TransactionAbortableError(ClientError):
    """The transaction cannot be committed, but the producer works again after `abort_transaction`; see the cause."""


class TransactionAbortedError(ClientError):
    """A record was not sent because its transaction was aborted."""


class DeliveryError(ClientError):
    """Records passed to a producer were not acknowledged; the cause is the first failure.

    `count` is their number, `causes` are the first few different errors.
    """

    def __init__(self, message: str, count: int = 0, causes: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.count = count
        self.causes = list(causes)


class PartlyFailedError(ClientError):
    """Some items of a call failed: `errors` by item, and `values` of the others."""

    def __init__(self, what: str, errors: Mapping[Any, ClientError], values: Mapping[Any, Any]) -> None:
        several = len(errors) + len(values)
        text = "\n- ".join(("", *(str(error) for error in dict.fromkeys(errors.values()))))
        super().__init__(f"{what} failed for {len(errors)} of {several}:{text}")
        self.errors = dict(errors)
        self.values = dict(values)


class ConcurrentUseError(IllegalStateError):
    """Two threads or tasks use one consumer concurrently."""


class WakeupError(ClientError):
    """`wakeup` was called: raised by the waiting call, or by the next one that would wait."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """No offset is committed, `seek` was not called, and auto.offset.reset is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = sorted(partitions)
        super().__init__(
            f"no offset is committed for {', '.join(map(str, partitions))}, and auto.offset.reset is none; seek to "
            "where reading is to begin, or set auto.offset.reset to earliest or latest",
            partitions,
        )


class LogTruncationError(InvalidOffsetError):
    """The log was truncated below a position: records that were read are gone, others may have their offsets (KIP-320).

    `positions` are those of the consumer; `divergent_offsets` are where the logs diverge, without partitions for
    which the broker does not know it.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        text = ", ".join(
            f"{each} read up to {position.offset}"
            + (f", the same up to {divergent_offsets[each].offset}" if each in divergent_offsets else "")
            for each, position in sorted(positions.items())
        )
        super().__init__(
            f"the log was truncated, as after an unclean leader election ({text}); seek to a divergent offset to "
            "continue from there, or set auto.offset.reset to have it done",
            positions,
        )
        self.positions = dict(positions)
        self.divergent_offsets = dict(divergent_offsets)


class RecordTimestampError(ClientError):
    """A record cannot be read as Arrow: its timestamp, in milliseconds, is beyond what microseconds hold in 64 bits."""

    def __init__(self, partition: TopicPartition, offset: int, timestamp: int, cure: str) -> None:
        super().__init__(
            f"the record at offset {offset} of {partition} has the timestamp {timestamp}, in milliseconds beyond the "
            f"range of Arrow (its producer may have written nanoseconds); {cure}"
        )
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp


class DeserializationOrigin(Enum):
    """Which part of a record a deserializer failed on (KIP-1036)."""

    KEY = "key"
    VALUE = "value"


class RecordDeserializationError(ClientError):
    """A deserializer failed. The position stays before the record: `seek` past `offset` to skip it.

    The raw record is kept for a dead-letter topic (KIP-1036): `key_buffer` and `value_buffer` are bytes,
    None for null; `timestamp` is in milliseconds. `origin` is the part that could not be deserialized.
    """

    def __init__(
        self,
        partition: TopicPartition,
        record: ConsumerRecord[bytes | None, bytes | None],
        origin: DeserializationOrigin,
        cause: BaseException,
    ) -> None:
        super().__init__(
            f"the {origin.value} of the record at offset {record.offset} of {partition} cannot be deserialized "
            f"({type(cause).__name__}: {cause}); seek to {record.offset + 1} to leave it out"
        )
        self.partition = partition
        self.offset = record.offset
        self.origin = origin
        self.key_buffer = record.key
        self.value_buffer = record.value
        self.headers = record.headers
        self.timestamp = record.timestamp
        self.timestamp_type = record.timestamp_type
