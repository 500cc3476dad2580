"""Every znode of Kafka's, once: its path, and how its data is written and read.

Paths and JSON are those of Apache Kafka 3.9 in ZooKeeper mode, down to the order of the keys; other software reads
them. Each class stands for one znode (or one family of znodes) and is never made into an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.cluster.ids import format_uuid, parse_uuid
from ottla.config.listeners import Endpoint, ListenerError, parse_endpoints

PERSISTENT_PATHS = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""The nodes that a broker makes when it starts, where they are missing."""


#: What a number of 64 bits looks like as text; more digits than it can have are not looked at.
_DECIMAL = re.compile(rb"[+-]?[0-9]{1,19}")


class ZnodeDataError(ValueError):
    """The data of a znode is not what Kafka writes there; the message names the path."""


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(path: str, data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"")
    except ValueError as error:
        raise ZnodeDataError(f"{path} holds no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ZnodeDataError(f"{path} holds no JSON object")
    return value


class BrokerRegistration(NamedTuple):
    """What a broker says about itself."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0


class BrokerIdZnode:
    """`/brokers/ids/<id>`, ephemeral: a living broker (version 5 of its JSON)."""

    ROOT = "/brokers/ids"

    @staticmethod
    def path(broker_id: int) -> str:
        """Where the broker registers."""
        return f"/brokers/ids/{broker_id}"

    @staticmethod
    def encode(broker: BrokerRegistration) -> bytes:
        """Host and port, for readers of old, are those of the first plaintext endpoint."""
        plain = next((endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            "features": {},
            "listener_security_protocol_map": {e.listener_name: e.security_protocol for e in broker.endpoints},
            "endpoints": [endpoint.connection_string for endpoint in broker.endpoints],
        }
        if broker.rack is not None:
            value["rack"] = broker.rack
        value["jmx_port"] = broker.jmx_port
        value["port"] = plain.port if plain is not None else -1
        value["host"] = plain.host if plain is not None else None
        value["version"] = 5
        value["timestamp"] = str(broker.timestamp_ms)
        return _dump(value)

    @staticmethod
    def decode(broker_id: int, data: bytes | None) -> BrokerRegistration:
        """Versions 1 to 5. Raises `ZnodeDataError`."""
        path = BrokerIdZnode.path(broker_id)
        value = _load(path, data)
        try:
            protocols = value.get("listener_security_protocol_map")
            texts = value.get("endpoints") or [f"PLAINTEXT://{value['host']}:{value['port']}"]
            if protocols is None:
                protocols = {name: name for name in (text.partition("://")[0] for text in texts)}
            endpoints = parse_endpoints(",".join(texts), protocols, require_distinct_ports=False)
            return BrokerRegistration(
                broker_id, tuple(endpoints), value.get("rack"), int(value.get("jmx_port", -1)), int(value["timestamp"])
            )
        except (KeyError, TypeError, ValueError, AttributeError, ListenerError) as error:
            raise ZnodeDataError(f"{path} is no broker's registration: {error!r}") from error


class BrokerSequenceZnode:
    """`/brokers/seqid`: its version counts the generated broker ids."""

    PATH = "/brokers/seqid"


class TopicAssignment(NamedTuple):
    """A topic's id and the brokers that hold each partition, the preferred leader first."""

    topic_id: UUID | None
    partitions: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]]
    removing: dict[int, tuple[int, ...]]

    @staticmethod
    def of(topic_id: UUID | None, partitions: Mapping[int, Sequence[int]]) -> TopicAssignment:
        """An assignment without a reassignment under way."""
        return TopicAssignment(topic_id, {index: tuple(r) for index, r in partitions.items()}, {}, {})


class TopicZnode:
    """`/brokers/topics/<topic>`: its partitions and replicas (version 3; 2 where it has no id)."""

    ROOT = "/brokers/topics"

    @staticmethod
    def path(topic: str) -> str:
        """The topic's node."""
        return f"/brokers/topics/{topic}"

    @staticmethod
    def encode(assignment: TopicAssignment) -> bytes:
        """The JSON as Kafka writes it."""
        value: dict[str, Any] = {"partitions": _by_text(assignment.partitions)}
        if assignment.topic_id is not None:
            value["topic_id"] = format_uuid(assignment.topic_id)
        value["adding_replicas"] = _by_text(assignment.adding)
        value["removing_replicas"] = _by_text(assignment.removing)
        value["version"] = 3 if assignment.topic_id is not None else 2
        return _dump(value)

    @staticmethod
    def decode(topic: str, data: bytes | None) -> TopicAssignment:
        """Versions 1 to 3. Raises `ZnodeDataError`."""
        path = TopicZnode.path(topic)
        value = _load(path, data)
        try:
            topic_id = value.get("topic_id")
            return TopicAssignment(
                parse_uuid(topic_id) if topic_id is not None else None,
                _by_number(value["partitions"]),
                _by_number(value.get("adding_replicas") or {}),
                _by_number(value.get("removing_replicas") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ZnodeDataError(f"{path} is no topic: {error!r}") from error


def _by_text(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(index): list(replicas[index]) for index in sorted(replicas)}


def _by_number(replicas: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(map(int, brokers)) for index, brokers in replicas.items()}


class PartitionState(NamedTuple):
    """Who leads a partition and which replicas are in sync."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class PartitionStateZnode:
    """`/brokers/topics/<topic>/partitions/<partition>/state`."""

    @staticmethod
    def partitions_path(topic: str) -> str:
        """The parent of the topic's partitions."""
        return f"/brokers/topics/{topic}/partitions"

    @staticmethod
    def partition_path(topic: str, partition: int) -> str:
        """The parent of the state."""
        return f"/brokers/topics/{topic}/partitions/{partition}"

    @staticmethod
    def path(topic: str, partition: int) -> str:
        """The partition's state."""
        return f"/brokers/topics/{topic}/partitions/{partition}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        """The JSON as Kafka writes it."""
        return _dump(
            {
                "controller_epoch": state.controller_epoch,
                "leader": state.leader,
                "version": 1,
                "leader_epoch": state.leader_epoch,
                "isr": list(state.isr),
            }
        )

    @staticmethod
    def decode(topic: str, partition: int, data: bytes | None) -> PartitionState:
        """Raises `ZnodeDataError`."""
        path = PartitionStateZnode.path(topic, partition)
        value = _load(path, data)
        try:
            return PartitionState(
                int(value["leader"]),
                int(value["leader_epoch"]),
                tuple(map(int, value["isr"])),
                int(value["controller_epoch"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ZnodeDataError(f"{path} is no partition's state: {error!r}") from error


class ControllerZnode:
    """`/controller`, ephemeral: which broker is the controller (version 2)."""

    PATH = "/controller"

    @staticmethod
    def encode(broker_id: int, timestamp_ms: int) -> bytes:
        """The JSON as Kafka writes it."""
        return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})

    @staticmethod
    def decode(data: bytes | None) -> int:
        """The controller's broker id. Raises `ZnodeDataError`."""
        value = _load(ControllerZnode.PATH, data)
        try:
            return int(value["brokerid"])
        except (KeyError, TypeError, ValueError) as error:
            raise ZnodeDataError(f"{ControllerZnode.PATH} names no controller: {error!r}") from error


class ControllerEpochZnode:
    """`/controller_epoch`: how often there was an election, as decimal text."""

    PATH = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        """Decimal text."""
        return b"%d" % epoch

    @staticmethod
    def decode(data: bytes | None) -> int:
        """Raises `ZnodeDataError`."""
        try:
            return int(data or b"")
        except ValueError as error:
            raise ZnodeDataError(f"{ControllerEpochZnode.PATH} holds no number: {data!r}") from error


class ClusterIdZnode:
    """`/cluster/id`."""

    PATH = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        """The JSON as Kafka writes it; its version is text."""
        return _dump({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes | None) -> str:
        """Raises `ZnodeDataError`."""
        cluster_id = _load(ClusterIdZnode.PATH, data).get("id")
        if not isinstance(cluster_id, str) or not cluster_id:
            raise ZnodeDataError(f"{ClusterIdZnode.PATH} names no cluster")
        return cluster_id


class ConsumerOffsetZnode:
    """`/consumers/<group>/offsets/<topic>/<partition>`: a position of the older consumer, as decimal text."""

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        """Where the position is."""
        return f"/consumers/{group}/offsets/{topic}/{partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        """Decimal text."""
        return b"%d" % offset

    @staticmethod
    def decode(path: str, data: bytes | None) -> int:
        """Raises `ZnodeDataError`."""
        if data is None or not _DECIMAL.fullmatch(data) or not -(2**63) <= (offset := int(data)) < 2**63:
            raise ZnodeDataError(f"{path} holds no offset: {data!r}")
        return offset


class TopicConfigZnode:
    """`/config/topics/<topic>`: what the topic sets itself."""

    ROOT = "/config/topics"

    @staticmethod
    def path(topic: str) -> str:
        """The topic's settings."""
        return f"/config/topics/{topic}"

    @staticmethod
    def encode(config: Mapping[str, str]) -> bytes:
        """The JSON as Kafka writes it."""
        return _dump({"version": 1, "config": dict(config)})

    @staticmethod
    def decode(topic: str, data: bytes | None) -> dict[str, str]:
        """Raises `ZnodeDataError`."""
        return _settings(TopicConfigZnode.path(topic), data)


def _settings(path: str, data: bytes | None) -> dict[str, str]:
    config = _load(path, data).get("config")
    if not isinstance(config, dict):
        raise ZnodeDataError(f"{path} holds no settings")
    return {str(name): str(value) for name, value in config.items()}


class BrokerConfigZnode:
    """`/config/brokers/<id>`, or `<default>` for all brokers: settings given while brokers run."""

    DEFAULT = "<default>"

    @staticmethod
    def path(name: str) -> str:
        """The settings of a broker by its id in decimal, or of all where `name` is `DEFAULT`."""
        return f"/config/brokers/{name}"

    @staticmethod
    def encode(config: Mapping[str, str]) -> bytes:
        """The JSON as Kafka writes it."""
        return TopicConfigZnode.encode(config)

    @staticmethod
    def decode(name: str, data: bytes | None) -> dict[str, str]:
        """Raises `ZnodeDataError`."""
        return _settings(BrokerConfigZnode.path(name), data)


class ConfigChangeZnode:
    """`/config/changes/config_change_<sequence>`: tells brokers whose settings changed."""

    ROOT = "/config/changes"
    PREFIX = "/config/changes/config_change_"
    #: Kafka removes those that are older, when it sees a newer one.
    EXPIRATION_MS = 15 * 60 * 1000

    @staticmethod
    def encode(entity_path: str) -> bytes:
        """`entity_path` as in `topics/<topic>` (version 2)."""
        return _dump({"version": 2, "entity_path": entity_path})


class DeleteTopicZnode:
    """`/admin/delete_topics/<topic>`: a topic whose deletion has begun."""

    ROOT = "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        """The mark of the topic."""
        return f"/admin/delete_topics/{topic}"


class FeatureZnode:
    """`/feature`: the finalized features; there are none yet."""

    PATH = "/feature"
    ENABLED = 1

    @staticmethod
    def encode() -> bytes:
        """No features, versioning enabled (version 2 of its JSON)."""
        return _dump({"features": {}, "version": 2, "status": FeatureZnode.ENABLED})


class ProducerIdBlock(NamedTuple):
    """A run of producer ids that one broker may give out, both ends included."""

    broker_id: int
    first: int
    last: int


class ProducerIdBlockZnode:
    """`/latest_producer_id_block`: the last block that was taken; its ends are text."""

    PATH = "/latest_producer_id_block"

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        """The JSON as Kafka writes it."""
        return _dump(
            {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
        )

    @staticmethod
    def decode(data: bytes | None) -> ProducerIdBlock | None:
        """None for the empty node that brokers make when they start. Raises `ZnodeDataError`."""
        if not data:
            return None
        value = _load(ProducerIdBlockZnode.PATH, data)
        try:
            return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ZnodeDataError(f"{ProducerIdBlockZnode.PATH} holds no block: {error!r}") from error
