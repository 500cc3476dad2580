"""What can go wrong between a client and its cluster. Each message names the cause and what cures it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from ottla.client.cures import CURES
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.wire.errors import ErrorCode

B = TypeVar("B", bound="BrokerError")

KNOWN_CODES = {int(code): code for code in ErrorCode}


class ClientError(Exception):
    """Base of all errors of this package; `retriable` says whether the same attempt may succeed later."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, and not made anew from its message: so it can be copied, and come back from another process."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[ClientError], args: tuple[Any, ...]) -> ClientError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def as_client_error(what: str, error: Exception) -> ClientError:
    """The error itself where it is a ClientError, else one that tells what failed, with the error as its cause."""
    if isinstance(error, ClientError):
        return error
    unexpected = ClientError(f"{what}: {error!r}")
    unexpected.__cause__ = error
    return unexpected


class InvalidArgumentError(ClientError, ValueError):
    """A value given by the caller cannot be: a malformed address, a partition that does not exist."""


class InvalidConfigError(InvalidArgumentError):
    """Settings of a client are unknown, out of range or contradict each other; `problems` tells each."""

    def __init__(self, kind: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        told = self.problems[0] if len(self.problems) == 1 else "\n- ".join(("several problems:", *self.problems))
        super().__init__(f"the settings of this {kind} cannot be: {told}")


class SerializationError(ClientError):
    """A key or value cannot be made into bytes, or bytes into one."""


class ClientClosedError(ClientError):
    """The client was closed, or was opened in another process."""


class ForkedError(ClientClosedError):
    """The client was opened before a fork: its connections and threads belong to the parent process."""

    def __init__(self, client: str) -> None:
        super().__init__(
            f"this {client} was opened in another process, before a fork; open one in each process that needs it"
        )


class ConnectError(ClientError):
    """No connection to a broker could be made; see the subclasses."""


class UnresolvableHostError(ConnectError):
    """The name of the host is not known."""


class BrokerUnreachableError(ConnectError):
    """Nobody listens there, or nobody answers."""


class BrokerHangsError(BrokerUnreachableError):
    """Something accepts connections there and answers nothing."""


class ConnectTimeoutError(BrokerUnreachableError):
    """Nobody answers there within socket.connection.setup.timeout.ms."""


class NotKafkaError(ConnectError):
    """Something listens there, but it does not speak Kafka's protocol in plain text."""


class SecurityMismatchError(NotKafkaError):
    """The listener wants TLS or a login (SASL), and the client comes in plain text."""


class ConnectionLostError(ClientError):
    """The connection was there and is gone."""


class ClientTimeoutError(ClientError, TimeoutError):
    """The broker did not answer in time, or an operation did not succeed in time."""


class UnsupportedVersionError(ClientError):
    """Broker and client have no version of an API in common."""


class BrokerTooOldError(ConnectError, UnsupportedVersionError):
    """The broker is older than Apache Kafka 0.11, the oldest that this client speaks with."""


class ProtocolError(ClientError):
    """The broker's answer cannot be understood."""


class CorruptBatchError(ClientError):
    """Records were read that are damaged: wrong checksum, malformed batch or compression."""


class BrokerError(ClientError):
    """The broker refused; `code` says why in Kafka's terms.

    As OSError does by its number, it makes itself one of its subclasses where the code has one of its own.
    """

    def __new__(cls, code: int, *args: Any, **options: Any) -> Self:
        """Choose the class by the code."""
        return super().__new__(_kind_of(code, cls) if cls is BrokerError else cls)

    def __init__(self, code: int, context: str, detail: str | None = None) -> None:
        known = KNOWN_CODES.get(code)
        if known is not None:
            cure = f"; {CURES[code]}" if detail is None and code in CURES else ""
            reason, retriable = f"{detail or known.message} ({known.name}){cure}", known.retriable
        else:
            reason, retriable = f"{detail or 'an error this client does not know'} (code {code})", False
        super().__init__(f"{context}: {reason}", retriable=retriable)
        self.code = code

    @property
    def name(self) -> str:
        """The code's name, its number where this client does not know it."""
        known = KNOWN_CODES.get(self.code)
        return str(self.code) if known is None else known.name


class UnknownTopicError(BrokerError):
    """The cluster has no such topic or partition; `topic` is its name."""

    def __init__(self, topic: str, cluster: str, nearest: str | None = None) -> None:
        similar = f"did you mean {nearest}? Otherwise " if nearest else "check its name, or "
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic} does not exist at {cluster}",
            f"{similar}create it first",
        )
        self.retriable = False
        self.topic = topic


class TopicExistsError(BrokerError):
    """A topic of that name is there already."""


class NotLeaderError(BrokerError):
    """The partition has no leader at the moment, or another one than asked; retriable."""


class AuthorizationError(BrokerError):
    """The user of this client may not do that."""


class NotEnoughReplicasError(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas demands with acks=all; retriable."""


class InvalidOffsetError(ClientError):
    """Positions of some partitions are not in the log, or not known; `partitions` are theirs. See the subclasses."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition] = (), *, retriable: bool = False) -> None:
        super().__init__(message, retriable=retriable)
        self.partitions = frozenset(partitions)


class OffsetOutOfRange(BrokerError, InvalidOffsetError):
    """The offset asked for is not in the log, which goes from `earliest` to just before `latest`.

    These are None where the broker could not be asked for them.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, earliest: int | None = None, latest: int | None = None
    ) -> None:
        has = f"has offsets {earliest} to {latest} (exclusive)"
        if earliest is None or latest is None:
            why, cure = "was deleted, or is not written yet", "seek to an offset that is there"
            has = "did not tell in time which offsets it has"
        elif offset < earliest:
            why, cure = "was deleted", f"start at {earliest} to read what is left"
        else:
            why, cure = "is not written yet, or the topic was made anew", f"start at {latest} at the latest"
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


class CommitFailedError(ClientError):
    """Offsets were not committed as this consumer is not a member of the group any more: others read on from before."""


class RetriableCommitFailedError(ClientError):
    """An asynchronous commit failed for a reason that may pass, and was not made again: a later one may be ahead."""


class RebalanceInProgressError(ClientError):
    """Offsets were not committed as a rebalance is under way: poll until it is over, then commit what is owned."""


class RebalanceListenerError(ClientError):
    """A method of the rebalance listener failed; its own error is the cause (`__cause__`)."""


class FencedInstanceIdError(BrokerError):
    """Another consumer has joined the group with the same group.instance.id."""


class DeliveryError(ClientError):
    """Records were given to a producer and not acknowledged; the cause is the first failure.

    `count` says how many, `causes` holds different errors that were met, the first ones.
    """

    def __init__(self, message: str, count: int = 0, causes: Sequence[Exception] = ()) -> None:
        super().__init__(message)
        self.count = count
        self.causes = list(causes)


class PartlyFailedError(ClientError):
    """Of several things asked for in one call, some failed: `errors` by item, and `values` of the others."""

    def __init__(self, what: str, errors: Mapping[Any, ClientError], values: Mapping[Any, Any]) -> None:
        several = len(errors) + len(values)
        told = "\n- ".join(("", *(str(error) for error in dict.fromkeys(errors.values()))))
        super().__init__(f"{what} failed for {len(errors)} of {several}:{told}")
        self.errors = dict(errors)
        self.values = dict(values)


class IllegalStateError(ClientError):
    """The call does not fit what was called before: a position of a partition that is not assigned, say."""


class ConcurrentUseError(IllegalStateError):
    """Two threads, or two tasks, are in one consumer at once."""


class WakeupError(ClientError):
    """`wakeup` was called: the call that waited, or the next one that would have, ends with this."""


class NoOffsetForPartitionError(InvalidOffsetError):
    """Nothing is committed, nobody called `seek`, and auto.offset.reset is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = sorted(partitions)
        super().__init__(
            f"no offset is committed for {', '.join(map(str, partitions))}, and auto.offset.reset is none; seek to "
            "where reading is to begin, or set auto.offset.reset to earliest or latest",
            partitions,
        )


class LogTruncationError(InvalidOffsetError):
    """The log was cut behind a position: records that were read are gone, others may have their offsets (KIP-320).

    `positions` are where the consumer stood; `divergent_offsets` where the logs went apart, without partitions for
    which the broker could not tell.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        told = ", ".join(
            f"{each} read up to {position.offset}"
            + (f", the same up to {divergent_offsets[each].offset}" if each in divergent_offsets else "")
            for each, position in sorted(positions.items())
        )
        super().__init__(
            f"the log was truncated, as after an unclean leader election ({told}); seek to a divergent offset to go on "
            "from there, or set auto.offset.reset to have it done",
            positions,
        )
        self.positions = dict(positions)
        self.divergent_offsets = dict(divergent_offsets)


class RecordDeserializationError(ClientError):
    """A deserializer failed. The position stays before the record: `seek` past `offset` to leave it out."""

    def __init__(self, partition: TopicPartition, offset: int, what: str, cause: BaseException) -> None:
        super().__init__(
            f"the {what} of the record at offset {offset} of {partition} cannot be deserialized "
            f"({type(cause).__name__}: {cause}); seek to {offset + 1} to leave it out"
        )
        self.partition = partition
        self.offset = offset


_KINDS: dict[int, type[BrokerError]] = {
    ErrorCode.LEADER_NOT_AVAILABLE: NotLeaderError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExistsError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
}


def _kind_of(code: int, default: type[B]) -> type[B]:
    return cast("type[B]", _KINDS.get(code, default))
