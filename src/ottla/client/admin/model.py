"""What an administrator asks with and is answered with. Plain data, named as in Java's Admin."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla.client.errors import InvalidArgumentError
from ottla.client.model import Node, TopicPartition

BROKER_DEFAULT = -1
"""In place of a number of partitions or replicas: what the broker's settings say."""


@dataclass(slots=True, frozen=True)
class NewTopic:
    """A topic to create.

    `replica_assignments` gives each partition's brokers, the preferred leader first; then the two numbers are left
    out. `configs` are the topic's settings by Kafka's names.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers_given = self.num_partitions != BROKER_DEFAULT or self.replication_factor != BROKER_DEFAULT
        if self.replica_assignments and numbers_given:
            raise InvalidArgumentError(
                f"topic {self.name}: replica_assignments say how many partitions and replicas there are; leave "
                "num_partitions and replication_factor out"
            )


@dataclass(slots=True, frozen=True)
class NewPartitions:
    """How many partitions a topic is to have in all; `assignments` are the brokers of the added ones, in order."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class ConfigSynonym(NamedTuple):
    """A place from which a value could come; `source` is as in `ConfigEntry`."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting of a topic or broker.

    `source` is where the value comes from: DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG, DEFAULT_CONFIG, DYNAMIC_BROKER_LOGGER_CONFIG or UNKNOWN. The value of a sensitive setting is
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
        """Whether nobody has set it."""
        return self.source == "DEFAULT_CONFIG"


@dataclass(slots=True, frozen=True)
class CreatedTopic:
    """A topic that is there now; what the broker did not tell is None or -1."""

    name: str
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigResource(NamedTuple):
    """A topic by its name, a broker by its id (empty: what holds for all brokers), or the loggers of a broker."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """The settings of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """The settings of a broker; for None those that are set for all."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @property
    def node_id(self) -> int | None:
        """The broker that has to be asked, where it matters."""
        return None if self.type == ResourceType.TOPIC or not self.name.isdecimal() else int(self.name)

    def __str__(self) -> str:
        if self.type == ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class ConfigOperation(NamedTuple):
    """A change of one setting: `set`, `delete` (back to the default), `append` to or `subtract` from a list."""

    operation: str
    name: str
    value: str | None = None


class ClusterDescription(NamedTuple):
    """The brokers; `controller` is None while there is none."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


class GroupListing(NamedTuple):
    """A group; `state` and `type` are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it only has offsets, and members that assign partitions themselves."""
        return not self.protocol_type


class MemberToRemove(NamedTuple):
    """A member by its `group.instance.id`, or by the id that the coordinator gave it."""

    group_instance_id: str | None = None
    member_id: str = ""


class ReplicaSize(NamedTuple):
    """The log of one partition in a folder: its bytes, how many records it is behind, whether it is moving there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(slots=True, frozen=True)
class LogDirDescription:
    """A folder of a broker. Sizes of the volume are in bytes, -1 where not told; `error` says why it is offline."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1
    error: str | None = None
