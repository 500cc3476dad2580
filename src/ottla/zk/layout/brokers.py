"""`/brokers/…`: live brokers, topics, partition leaders."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.assign.java_order import scala_map_parts
from ottla.cluster.ids import format_uuid, parse_uuid
from ottla.config.listeners import Endpoint, parse_endpoints
from ottla.zk.layout.codec import dump, expected, load

#: Bytes of JSON that are decoded in one slice.
SLICE_BYTES = 32 * 1024
#: The objects of a topic's JSON that have a member for each partition.
_REPLICAS = ("partitions", "adding_replicas", "removing_replicas")


class BrokerRegistration(NamedTuple):
    """The data with which a broker registers."""

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0


class BrokerIdZnode:
    """`/brokers/ids/<id>`, ephemeral: a live broker (version 5 of its JSON)."""

    ROOT = "/brokers/ids"

    @staticmethod
    def path(broker_id: int) -> str:
        """The broker's registration."""
        return f"/brokers/ids/{broker_id}"

    @staticmethod
    def encode(broker: BrokerRegistration) -> bytes:
        """Host and port, for old readers, are those of the first plaintext endpoint."""
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
        return dump(value)

    @staticmethod
    def decode(broker_id: int, data: bytes | None) -> BrokerRegistration:
        """Versions 1 to 5. Raises `ZnodeDataError`."""
        path = BrokerIdZnode.path(broker_id)
        value = load(path, data)
        with expected(path, "is not a broker's registration"):
            protocols = value.get("listener_security_protocol_map")
            texts = value.get("endpoints") or [f"PLAINTEXT://{value['host']}:{value['port']}"]
            if protocols is None:
                protocols = {name: name for name in (text.partition("://")[0] for text in texts)}
            endpoints = parse_endpoints(",".join(texts), protocols, require_distinct_ports=False)
            return BrokerRegistration(
                broker_id, tuple(endpoints), value.get("rack"), int(value.get("jmx_port", -1)), int(value["timestamp"])
            )


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
    """`/brokers/topics/<topic>`: its partitions and replicas (version 3)."""

    ROOT = "/brokers/topics"

    @staticmethod
    def path(topic: str) -> str:
        """The topic's node."""
        return f"/brokers/topics/{topic}"

    @staticmethod
    def encode(assignment: TopicAssignment) -> bytes:
        """The JSON as Kafka writes it."""
        return b"".join(TopicZnode.encoded_slices(assignment))

    @staticmethod
    def encoded_slices(assignment: TopicAssignment) -> Iterator[bytes]:
        """As `encode`, in slices, each of which takes a millisecond or less; one may be empty."""
        yield b'{"partitions":'
        yield from _replicas_slices(assignment.partitions)
        if assignment.topic_id is not None:
            yield f',"topic_id":"{format_uuid(assignment.topic_id)}"'.encode()
        yield b',"adding_replicas":'
        yield from _replicas_slices(assignment.adding)
        yield b',"removing_replicas":'
        yield from _replicas_slices(assignment.removing)
        yield b',"version":3}'

    @staticmethod
    def decoding(topic: str, data: bytes | None) -> Generator[None, None, TopicAssignment]:
        """As `decode`, that of many partitions in slices of some milliseconds, where it is written as Kafka does."""
        rest, found = data or b"", dict[str, dict[int, tuple[int, ...]]]()
        for key in _REPLICAS:
            cut = _cut(rest, key)
            if cut is None:
                continue
            rest, members = cut
            replicas = found[key] = {}
            for part in _members_slices(members):
                yield
                try:
                    replicas.update(_by_number(json.loads(part)))
                except (ValueError, TypeError, AttributeError):
                    return TopicZnode.decode(topic, data)
        decoded = TopicZnode.decode(topic, rest)
        named = dict(zip(_REPLICAS, (decoded.partitions, decoded.adding, decoded.removing), strict=True))
        if any(named[key] for key in found):
            return TopicZnode.decode(topic, data)  # what was cut out is of something else
        return TopicAssignment(decoded.topic_id, *(named | found).values())

    @staticmethod
    def decode(topic: str, data: bytes | None) -> TopicAssignment:
        """Versions 1 to 3. Raises `ZnodeDataError`."""
        path = TopicZnode.path(topic)
        value = load(path, data)
        with expected(path, "is not a topic"):
            topic_id = value.get("topic_id")
            return TopicAssignment(
                parse_uuid(topic_id) if topic_id is not None else None,
                _by_number(value["partitions"]),
                _by_number(value.get("adding_replicas") or {}),
                _by_number(value.get("removing_replicas") or {}),
            )


def _cut(data: bytes, key: str) -> tuple[bytes, bytes] | None:
    """A JSON object without the members of that object in it, and those members; None if they are few, or elsewhere."""
    before, found, _ = data.partition(f'"{key}":{{'.encode())
    begin = len(before) + len(found)
    end = data.find(b"}", begin)
    if not found or end - begin < SLICE_BYTES:
        return None
    return data[:begin] + data[end:], data[begin:end]


def _members_slices(members: bytes) -> Iterator[bytes]:
    """Members of a JSON object whose values are lists, in objects of some of them."""
    start = 0
    while start < len(members):
        end = members.find(b'],"', start + SLICE_BYTES) + 1 or len(members)
        yield b"{%b}" % members[start:end]
        start = end + 1  # without the comma


def _replicas_slices(replicas: Mapping[int, Sequence[int]]) -> Iterator[bytes]:
    """A JSON object of replicas by partition, in slices."""
    begin = "{"
    for part in scala_map_parts(map(str, sorted(replicas)), len(replicas)):
        members = ",".join(f'"{index}":[{",".join(map(str, replicas[int(index)]))}]' for index in part)
        yield f"{begin}{members}".encode() if members else b""
        begin = "," if members else begin
    yield b"{}" if begin == "{" else b"}"


def _by_number(replicas: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    # Partitions share lists of replicas: of tens of thousands there are few that differ.
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    found = {}
    for index, brokers in replicas.items():
        as_written = tuple(brokers)
        as_numbers = known.get(as_written)
        if as_numbers is None:
            as_numbers = known[as_written] = tuple(map(int, as_written))
        found[int(index)] = as_numbers
    return found


RECOVERING = 1
"""`leader_recovery_state` after an unclean election; without it the leader has recovered."""


class LeaderAndIsr(NamedTuple):
    """Leader and in-sync replicas of a partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    #: Whether the leader was elected uncleanly and has not recovered yet (KIP-704).
    is_recovering: bool = False


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
    def encode(state: LeaderAndIsr) -> bytes:
        """The JSON as Kafka writes it."""
        value: dict[str, Any] = {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
        if state.is_recovering:
            value["leader_recovery_state"] = RECOVERING
        return dump(value)

    @staticmethod
    def decode(topic: str, partition: int, data: bytes | None) -> LeaderAndIsr:
        """Raises `ZnodeDataError`."""
        path = PartitionStateZnode.path(topic, partition)
        value = load(path, data)
        with expected(path, "is not a partition's state"):
            return LeaderAndIsr(
                int(value["leader"]),
                int(value["leader_epoch"]),
                tuple(map(int, value["isr"])),
                int(value["controller_epoch"]),
                value.get("leader_recovery_state") == RECOVERING,
            )
