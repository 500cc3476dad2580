"""The errors between a client and its cluster. Each message names the cause and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Self, cast

from ottla.wire.errors import ErrorCode

KNOWN_CODES = {int(code): code for code in ErrorCode}

LEADERLESS = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The partition has no leader, or the broker that was asked does not know that it is one."""
STALE_METADATA = LEADERLESS | {
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
"""What is known of the partition's leader is out of date: refresh the metadata and ask again. These are the codes of
Kafka's InvalidMetadataException, and UNKNOWN_LEADER_EPOCH."""
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The broker that was asked is not the coordinator: find it and ask again."""

_ALLOW = "have the cluster's administrator allow it to the user of this client (an ACL)"
_REPLICAS = "bring the missing brokers back, or lower the topic's min.insync.replicas"

CURES: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ALLOW,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _ALLOW,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ALLOW,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ALLOW,
    ErrorCode.NOT_ENOUGH_REPLICAS: _REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _REPLICAS,
    ErrorCode.INVALID_GROUP_ID: "set group.id to a name that is not empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "set session.timeout.ms between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "give all members of the group a partition.assignment.strategy in common, or use another group.id"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "run fewer members, or raise the broker's group.max.size",
    ErrorCode.FENCED_INSTANCE_ID: "give each running consumer a group.instance.id of its own",
    ErrorCode.PRODUCER_FENCED: (
        "another producer with this transactional.id has begun since, or the transaction took longer than "
        "transaction.timeout.ms; close this producer, and make another one if this one was meant to continue"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "if it lasts, see whether the topic __consumer_offsets exists and its partitions have leaders; to create it "
        "there must be as many brokers as offsets.topic.replication.factor says"
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: "if it lasts, bring back a broker that has an in-sync replica of the partition",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "raise the topic's max.message.bytes (message.max.bytes of the brokers), or send smaller records"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes, or lower batch.size",
    ErrorCode.INVALID_TIMESTAMP: (
        "compare the clocks of client and broker; the topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms say how far a timestamp may be off"
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "raise the topic's message.format.version (log.message.format.version of the brokers) to 0.11 or newer; until "
        "then switch enable.idempotence off and send no headers"
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose a compression.type that brokers and consumers of this age know",
    ErrorCode.INVALID_REQUIRED_ACKS: "set acks to 0, 1 or all",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "use at most 249 of the letters a-z, A-Z, 0-9, '.', '_' and '-'; topics like __consumer_offsets are written by "
        "brokers only"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "see the broker's log: one of its log.dirs has failed, or its disk is full",
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker does not serve what is asked: upgrade it (or its inter.broker.protocol.version), or do without"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "commit less text with the offset, or raise offset.metadata.max.bytes",
}
"""Cures of the errors that brokers answer with, by error code, where brokers do not name them.

A cure names settings by Kafka's names, and says whose they are where they are not the client's."""


class ClientError(Exception):
    """Base of all errors of this package; `retriable` says whether the same attempt may succeed later."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the error's state, for copies and other processes: its message alone cannot make it again."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[ClientError], args: tuple[Any, ...]) -> ClientError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


def as_client_error(what: str, error: Exception) -> ClientError:
    """The error itself where it is a ClientError, else one that says what failed, with the error as its cause."""
    if isinstance(error, ClientError):
        return error
    unexpected = ClientError(f"{what}: {error!r}")
    unexpected.__cause__ = error
    return unexpected


class InvalidArgumentError(ClientError, ValueError):
    """A value given by the caller cannot be: a malformed address, a partition that does not exist."""


class ClientClosedError(ClientError):
    """The client was closed, or was opened in another process."""


class ForkedError(ClientClosedError):
    """The client was opened before a fork: its connections and threads belong to the parent process."""

    def __init__(self, client: str) -> None:
        super().__init__(
            f"this {client} was opened in another process, before a fork; open one in each process that needs it"
        )


class HandshakeFault(Enum):
    """Why TLS or a login fails, in a few words."""

    TLS_WANTED = "the listener wants TLS, and the client speaks plain text"
    TLS_NOT_SPOKEN = "the client speaks TLS, and the listener plain text"
    LOGIN_WANTED = "the listener wants a login (SASL), and the client has none"
    LOGIN_NOT_TAKEN = "the client logs in, and the listener has no SASL"
    UNTRUSTED_CERTIFICATE = "the client does not trust the authority of the broker's certificate"
    WRONG_HOST_NAME = "the broker's certificate is not for the name that the client connects to"
    EXPIRED_CERTIFICATE = "the certificate of the broker or of the client has expired"
    CLIENT_CERTIFICATE_MISSING = "the listener wants a certificate of the client, which has none"
    CLIENT_CERTIFICATE_REFUSED = "the broker does not trust the client's certificate"
    MECHANISM_NOT_ENABLED = "the listener does not have the client's mechanism of SASL"
    LOGIN_REFUSED = "the broker refuses the user, the password or the token"
    NO_TOKEN = "the client gets no token for its login"


class ConnectError(ClientError):
    """No connection to a broker could be made; see the subclasses."""

    why: HandshakeFault | None = None
    """What is wrong with TLS or the login, where that is known."""

    def because(self, why: HandshakeFault | None) -> Self:
        """The same error, with its reason."""
        self.why = why
        return self


class UnresolvableHostError(ConnectError):
    """The name of the host is not known."""


class BrokerUnreachableError(ConnectError):
    """Nothing listens there, or nothing answers."""


class BrokerHangsError(BrokerUnreachableError):
    """Something accepts connections there and answers nothing."""


class ConnectTimeoutError(BrokerUnreachableError):
    """Nothing answers there within socket.connection.setup.timeout.ms."""


class NotKafkaError(ConnectError):
    """Something listens there, but it does not speak Kafka's protocol in plain text."""

    found: Enum | None = None
    """What a diagnosis found there (`ottla.peer.diagnosis.Found`); None without one."""


class SecurityMismatchError(NotKafkaError):
    """The listener wants TLS or a login (SASL), and the client comes in plain text; or the other way round."""


class AuthenticationError(ConnectError):
    """The other side is not trusted, or does not trust this client: its certificate, or its login.

    Kafka's AuthenticationException: trying again does not help.
    """


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


class IllegalStateError(ClientError):
    """The call does not fit what was called before: a position of a partition that is not assigned, say."""


class BrokerError(ClientError):
    """The broker refused; `code` says why in Kafka's terms.

    As OSError does by its number, it makes itself one of its subclasses where the code has one of its own.
    """

    #: By error code, the subclass for it. Packages above add theirs.
    _by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init_subclass__(cls, *, codes: Iterable[int] = ()) -> None:
        super().__init_subclass__()
        BrokerError._by_code.update(dict.fromkeys(codes, cls))

    def __new__(cls, code: int, *args: Any, **options: Any) -> Self:
        """Choose the class by the code."""
        return super().__new__(cast("type[Self]", cls._by_code.get(code, cls)) if cls is BrokerError else cls)

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


class NotLeaderError(BrokerError, codes=(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
    """The partition has no leader at the moment, or another one than asked; retriable."""


class AuthorizationError(
    BrokerError,
    codes=(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
):
    """The user of this client may not do that."""
