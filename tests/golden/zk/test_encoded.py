"""The data of znodes against what Apache Kafka's own classes write, byte for byte.

`znodes.txt` is what `Znodes.java` prints; record it again with `OTTLA_RECORD=1`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.cluster.delegation_tokens import TokenInformation
from ottla.config.listeners import Endpoint
from ottla.zk import layout
from support.java import java_tool

HERE = Path(__file__).parent
RECORDED = HERE / "znodes.txt"
TOPIC_ID = UUID("01234567-89ab-cdef-fedc-ba9876543210")
TIMESTAMP = re.compile(r'("timestamp":")\d+(")')

pytestmark = pytest.mark.spec("Z1")


class Case(NamedTuple):
    name: str
    path: str
    data: bytes


def cases() -> dict[str, Case]:
    lines = RECORDED.read_text(encoding="utf-8").split("\n")
    return {case[0]: Case(case[0], case[1], case[2].encode()) for case in (line.split("\t") for line in lines if line)}


CASES = cases()


def named(start: str) -> list[str]:
    return [name for name in CASES if name.startswith(start)]


@pytest.mark.parametrize("name", named("broker"))
def test_brokers(name: str) -> None:
    _, path, data = CASES[name]
    broker_id = int(path.rpartition("/")[2])
    broker = layout.BrokerIdZnode.decode(broker_id, data)
    assert layout.BrokerIdZnode.path(broker_id) == path
    assert layout.BrokerIdZnode.encode(broker) == data
    if name == "broker with listeners":
        assert broker.endpoints[:2] == (
            Endpoint("OUT", "SASL_SSL", "out.example", 9093),
            Endpoint("IN", "PLAINTEXT", "::1", 9094),
        )
    assert broker.rack == ('r "1"' if name == "broker with a rack" else None)


@pytest.mark.parametrize("name", named("topic of "))
def test_topics_of_so_many_partitions(name: str) -> None:
    _, path, data = CASES[name]
    replicas = {number: (number % 3, 7) for number in range(int(name.split()[-1]))}
    assignment = layout.TopicAssignment.of(TOPIC_ID, replicas)
    assert layout.TopicZnode.path("t") == path
    assert layout.TopicZnode.encode(assignment) == data
    assert layout.TopicZnode.decode("t", data) == assignment


@pytest.mark.parametrize(
    ("name", "assignment"),
    [
        ("topic without id", layout.TopicAssignment.of(None, {0: [1]})),
        ("topic that moves", layout.TopicAssignment(TOPIC_ID, {0: (1, 2, 3)}, {0: (2, 3)}, {0: (1,)})),
    ],
)
def test_topics(name: str, assignment: layout.TopicAssignment) -> None:
    assert layout.TopicZnode.encode(assignment) == CASES[name].data
    assert layout.TopicZnode.decode("t", CASES[name].data) == assignment


#: In the order in which Java was given them.
NAMES = [
    "cleanup.policy",
    "retention.ms",
    "segment.bytes",
    "compression.type",
    "max.message.bytes",
    "flush.ms",
    "flush.messages",
    "index.interval.bytes",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "segment.ms",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "max.compaction.lag.ms",
    "segment.index.bytes",
    "min.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "segment.jitter.ms",
    "unclean.leader.election.enable",
    "message.timestamp.type",
    "message.downconversion.enable",
    "gzip",
    "lz4",
    "zstd",
]


@pytest.mark.parametrize("name", named("settings of "))
def test_settings_are_in_the_order_of_java(name: str) -> None:
    data = CASES[name].data
    config = dict.fromkeys(NAMES[: int(name.split()[-1])], "1")
    assert layout.TopicConfigZnode.decode("t", data) == config
    assert layout.TopicConfigZnode.encode(config) == data


def test_settings_with_odd_characters() -> None:
    _, path, data = CASES["odd settings"]
    config = {"odd": '"\\/ \b\f\n\r\t\0\x1f\x7f\x85\u2028ü€\U0001f600'}
    assert layout.BrokerConfigZnode.path(layout.DEFAULT_ENTITY) == path
    assert layout.BrokerConfigZnode.encode(config) == data
    assert layout.BrokerConfigZnode.decode(layout.DEFAULT_ENTITY, data) == config


@pytest.mark.parametrize("name", named("entity "))
def test_names_of_entities(name: str) -> None:
    user = name.removeprefix("entity ")
    assert layout.UserConfigZnode.path(user) == CASES[name].path
    assert layout.named_entity(CASES[name].path.rpartition("/")[2]) == user


TOKEN = TokenInformation(
    "TMTeg9xQTq-rfG4KMMhG1A", "User:alice", "User:carol", (), 1700000000001, 1700000000003, 1700000000002
)
RENEWED = TOKEN._replace(renewers=("User:bob", 'User:CN=é,O="b":x'))
BOTH = (("b", 11), ("a", 0))
STATE = layout.LeaderAndIsr(leader=8, leader_epoch=3, isr=(8, 7), controller_epoch=4)
MOVED = {("b", 11): (3, 4), ("a", 0): (5,)}
OTHERS: dict[str, tuple[str, bytes, object, Callable[[str, bytes], object]]] = {
    "state": (
        layout.PartitionStateZnode.path("t", 12),
        layout.PartitionStateZnode.encode(STATE),
        STATE,
        lambda _, data: layout.PartitionStateZnode.decode("t", 12, data),
    ),
    "change": (
        "",
        layout.ConfigChangeZnode.encode("users/%C3%85sa/clients/<default>"),
        "users/%C3%85sa/clients/<default>",
        layout.ConfigChangeZnode.decode,
    ),
    "isr change": (
        layout.IsrChangeNotificationZnode.PREFIX + "0000000003",
        layout.IsrChangeNotificationZnode.encode(BOTH),
        BOTH,
        layout.IsrChangeNotificationZnode.decode,
    ),
    "log folder event": (
        layout.LogDirEventNotificationZnode.PREFIX + "0000000004",
        layout.LogDirEventNotificationZnode.encode(5),
        5,
        layout.LogDirEventNotificationZnode.decode,
    ),
    "election": (
        layout.PreferredReplicaElectionZnode.PATH,
        layout.PreferredReplicaElectionZnode.encode(BOTH),
        BOTH,
        lambda _, data: layout.PreferredReplicaElectionZnode.decode(data),
    ),
    "reassignment": (
        layout.ReassignPartitionsZnode.PATH,
        layout.ReassignPartitionsZnode.encode(MOVED),
        MOVED,
        lambda _, data: layout.ReassignPartitionsZnode.decode(data),
    ),
    "controller": (
        layout.ControllerZnode.PATH,
        layout.ControllerZnode.encode(7, 1_234_567_890_123),
        7,
        lambda _, data: layout.ControllerZnode.decode(data),
    ),
    "position": (
        layout.ConsumerOffsetZnode.path("g", "a", 11),
        layout.ConsumerOffsetZnode.encode(42),
        42,
        layout.ConsumerOffsetZnode.decode,
    ),
    **{
        name: (
            layout.DelegationTokenZnode.path(token.token_id),
            layout.DelegationTokenZnode.encode(token),
            token,
            layout.DelegationTokenZnode.decode,
        )
        for name, token in (("token", TOKEN), ("token with renewers", RENEWED))
    },
    "token change": (
        f"{layout.DelegationTokenChangeZnode.ROOT}/{layout.DelegationTokenChangeZnode.PREFIX}",
        layout.DelegationTokenChangeZnode.encode(TOKEN.token_id),
        TOKEN.token_id,
        layout.DelegationTokenChangeZnode.decode,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_nodes(name: str) -> None:
    path, data, value, decode = OTHERS[name]
    assert Case(name, path, data) == CASES[name]
    assert decode(path, data) == value


def test_every_case_is_looked_at() -> None:
    of_kinds = [*named("broker"), *named("topic "), *named("settings of "), "odd settings", *named("entity ")]
    assert sorted([*of_kinds, *OTHERS, "deletion"]) == sorted(CASES)
    assert layout.DeleteTopicZnode.path("a") == CASES["deletion"].path


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_the_recorded_bytes_are_those_of_apache_kafka() -> None:
    printed = TIMESTAMP.sub(r"\g<1>1700000000000\2", java_tool(str(HERE / "Znodes.java")).stdout)
    printed = printed.replace('"timestamp":"1700000000000","kraft', '"timestamp":"1234567890123","kraft')
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(printed, encoding="utf-8")
    assert printed == RECORDED.read_text(encoding="utf-8")
