"""Arguments and results of admin calls. Plain data, named as in Java's Admin."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.client.errors import InvalidArgumentError
from ottla.client.model import Node, TopicPartition
from ottla.wire.lost_records import LostRecords

BROKER_DEFAULT = -1
"""Use the broker's default instead of a number of partitions or replicas."""


@dataclass(slots=True, frozen=True)
class NewTopic:
    """A topic to create.

    `replica_assignments` lists each partition's brokers, the preferred leader first; then the two numbers are
    omitted. `configs` are the topic's configs by Kafka's names.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        has_numbers = self.num_partitions != BROKER_DEFAULT or self.replication_factor != BROKER_DEFAULT
        if self.replica_assignments and has_numbers:
            raise InvalidArgumentError(
                f"topic {self.name}: replica_assignments say how many partitions and replicas there are; leave "
                "num_partitions and replication_factor out"
            )


@dataclass(slots=True, frozen=True)
class NewPartitions:
    """The new total number of partitions; `assignments` are the brokers of the added ones, in order."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class ConfigSynonym(NamedTuple):
    """One of the sources that a config value can come from; `source` is as in `ConfigEntry`."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A config of a topic or broker.

    `source` is the origin of the value: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG, DEFAULT_CONFIG, DYNAMIC_BROKER_LOGGER_CONFIG or UNKNOWN. The value of a sensitive config is
    None. `type` is BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD or UNKNOWN.
    """

    name: str
    value: str | None
    source: str = "UNKNOWN"
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: str = "UNKNOWN"
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether it is set nowhere (source DEFAULT_CONFIG)."""
        return self.source == "DEFAULT_CONFIG"


@dataclass(slots=True, frozen=True)
class CreatedTopic:
    """A created topic; what the broker did not report is None or -1."""

    name: str
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)


class ResourceType(IntEnum):
    """Types of resources that have configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigResource(NamedTuple):
    """A topic by name, a broker by id (empty: the default for all brokers), or the loggers of a broker."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """The configs of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """The configs of a broker; for None the defaults of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @property
    def node_id(self) -> int | None:
        """The broker that has to be asked, None if any will do."""
        return None if self.type == ResourceType.TOPIC or not self.name.isdecimal() else int(self.name)

    def __str__(self) -> str:
        if self.type == ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class ConfigOperation(NamedTuple):
    """A change of one config: `set`, `delete` (restore the default), `append` to or `subtract` from a list."""

    operation: str
    name: str
    value: str | None = None


class PartitionReassignment(NamedTuple):
    """A move under way: all replicas, those that are added, and those that are removed at its end."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at its end."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader knows.

    `last_timestamp` is that of its last batch, in milliseconds. Fields are -1 without a batch, a coordinator's marker
    or an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


class TransactionListing(NamedTuple):
    """A transactional id with its producer and state ("Ongoing", "CompleteCommit", …), as its coordinator has it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(slots=True, frozen=True)
class TransactionDescription:
    """A transactional id as its coordinator has it.

    `transaction_start_time_ms` is that of its latest transaction, None before the first; `partitions` are those that
    have no marker of its end yet.
    """

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


class AbortTransactionSpec(NamedTuple):
    """The transaction of a producer that is open in a partition, as `Admin.describe_producers` shows it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class ClusterDescription(NamedTuple):
    """The brokers; `controller` is None while there is none."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


class GroupListing(NamedTuple):
    """A group; `state` and `type` are empty if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group is used for committed offsets only, without group assignment."""
        return not self.protocol_type


class MemberToRemove(NamedTuple):
    """A member by its `group.instance.id`, or by its member id."""

    group_instance_id: str | None = None
    member_id: str = ""


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on a broker."""

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


class ReplicaLogDirs(NamedTuple):
    """The log directory of a replica, and the one that it moves to: absolute paths, and lags in records.

    None and -1 without such a replica or move.
    """

    log_dir: str | None = None
    offset_lag: int = -1
    future_log_dir: str | None = None
    future_offset_lag: int = -1


class ReplicaSize(NamedTuple):
    """A partition's log in a log directory: size in bytes, lag in records, and whether it is a future replica."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True, frozen=True)
class LogDirDescription:
    """A log directory of a broker. Volume sizes are in bytes, -1 if not reported; `error` is set if it is offline."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1
    error: str | None = None
    lost_records: Mapping[TopicPartition, Sequence[LostRecords]] = field(default_factory=dict)
    """What brokers of ottla report of records that these replicas lost or removed."""
    refusals: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Why these replicas could not write the last records that came, as brokers of ottla report it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all its replicas."""
        return sum(each.size_bytes for each in self.replicas.values())


class AclBinding(NamedTuple):
    """An ACL: it allows or denies an operation on resources to a principal, as in `User:alice`, from a host.

    Names are Kafka's: resource types `TOPIC`, `GROUP`, `CLUSTER`, `TRANSACTIONAL_ID`, `DELEGATION_TOKEN`, `USER`;
    operations `READ`, `WRITE`, `DESCRIBE`, …, `ALL`; permissions `ALLOW`, `DENY`; pattern types `LITERAL`, `PREFIXED`.
    """

    resource_type: str
    name: str
    principal: str
    operation: str
    permission: str = "ALLOW"
    host: str = "*"
    pattern_type: str = "LITERAL"


class AclBindingFilter(NamedTuple):
    """ACLs that are alike in these fields; None and `ANY` are for everything.

    With the pattern type `MATCH` it is for all ACLs that are for a resource of this name.
    """

    resource_type: str = "ANY"
    name: str | None = None
    principal: str | None = None
    operation: str = "ANY"
    permission: str = "ANY"
    host: str | None = None
    pattern_type: str = "ANY"


class ScramCredentialInfo(NamedTuple):
    """A SCRAM credential of a user, as it may be shown."""

    mechanism: str
    iterations: int


@dataclass(slots=True, frozen=True)
class UserScramCredentialUpsertion:
    """A SCRAM credential to make or change; `iterations` are 4096 to 16384, a `salt` is made where there is none."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = 4096
    salt: bytes | None = field(default=None, repr=False)


@dataclass(slots=True, frozen=True)
class UserScramCredentialDeletion:
    """A SCRAM credential to delete."""

    user: str
    mechanism: str


#: In place of a name: the default of all users, client ids or addresses without a quota of their own.
DEFAULT_NAME: Final = "<default>"


class ClientQuotaEntity(NamedTuple):
    """An entity with quotas: a user, a client id, both, or an IP address; `DEFAULT_NAME` in place of a name."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        kinds = zip(("user", "client", "ip"), self, strict=True)
        return ", ".join(f"{kind} {name}" for kind, name in kinds if name is not None)


class ClientQuotaFilterComponent(NamedTuple):
    """Entities of a type (`user`, `client-id`, `ip`): with this name, by `DEFAULT_NAME` the default, by None all."""

    entity_type: str
    match: str | None = None


@dataclass(slots=True, frozen=True)
class DelegationToken:
    """A delegation token: its holder logs in as `owner` with `token_id` and `hmac_as_base64`, until it expires.

    Principals are texts as `User:alice`, times milliseconds since 1970.
    """

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes = field(repr=False)

    @property
    def hmac_as_base64(self) -> str:
        """The HMAC as text: the password of a login."""
        return b64encode(self.hmac).decode()
