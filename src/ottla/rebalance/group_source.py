"""The source of a simulation's group: a file, or a live group of any Kafka cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.assign.assignor import SubscribedTopic
from ottla.assign.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Malformed,
    Partitions,
    decode_assignment,
    decode_subscription,
)
from ottla.assign.simulation import SimulatedGroup, SimulatedMember
from ottla.client.coordinator import GroupCoordinator
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MOST_PARTITIONS = 1_000_000
"""Of one topic; a simulation holds them all in memory."""
MOST_FILE_BYTES = 64 * 1024 * 1024
STABLE, COMPLETING = "Stable", "CompletingRebalance"


class BadSource(Exception):
    """The group cannot be had; the message names the cause and what cures it."""


def read_file(path: Path) -> SimulatedGroup:
    """The group that a JSON file describes (docs/rebalance.md). Raises BadSource."""
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise BadSource(f"{path} has more than {MOST_FILE_BYTES} bytes; it cannot be the description of a group")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadSource(f"{path} is not JSON: {error}") from error
    try:
        return group_of(value)
    except BadSource as error:
        raise BadSource(f"{path}: {error}") from None


def group_of(value: Any) -> SimulatedGroup:
    """The group in parsed JSON. Raises BadSource."""
    fields = _object(value, "the description of a group", {"topics", "members"})
    topics = {name: _topic(name, one) for name, one in _object(fields.get("topics"), '"topics"').items()}
    members = fields.get("members")
    if isinstance(members, list):
        members = {_text(name, "the name of a member"): {} for name in members}
    found = {name: _member(name, one, topics) for name, one in _object(members, '"members"').items()}
    if not found:
        raise BadSource('"members" is empty; give at least one member')
    group = SimulatedGroup(topics, found)
    _check_owners(group)
    return group


def to_json(group: SimulatedGroup) -> dict[str, Any]:
    """The group as `group_of` reads it."""
    return {
        "topics": {
            name: topic.partitions
            if topic.racks is None
            else {"partitions": topic.partitions, "racks": [sorted(racks) for racks in topic.racks]}
            for name, topic in group.topics.items()
        },
        "members": {
            name: {
                "topics": list(member.topics),
                "owned": {topic: list(indexes) for topic, indexes in member.owned.items()},
                **({} if member.group_instance_id is None else {"instance": member.group_instance_id}),
                **({} if member.rack_id is None else {"rack": member.rack_id}),
            }
            for name, member in group.members.items()
        },
    }


async def read_live(cluster: Cluster, group_id: str) -> SimulatedGroup:
    """A group as its coordinator describes it. Raises BadSource, or ClientError where the cluster cannot be asked."""
    described = await cluster.retry(f"describing group {group_id}", lambda: _describe(cluster, group_id))
    members = _members_of(described)
    names = list(dict.fromkeys(topic for member in members.values() for topic in member.topics))
    return SimulatedGroup(await cluster.retry("describing topics", lambda: _topics(cluster, names)), members)


async def _describe(cluster: Cluster, group_id: str) -> DescribedGroup:
    coordinator = GroupCoordinator(cluster, group_id)
    answer: DescribeGroupsResponse = await coordinator.ask(DescribeGroupsRequest(groups=[group_id]))
    (described,) = answer.groups
    coordinator.check(described.error_code, "it cannot be described")
    return described


def _members_of(described: DescribedGroup) -> dict[str, SimulatedMember]:
    group_id, state = described.group_id, described.group_state
    if not described.members:
        raise BadSource(f"group {group_id} has no members (state {state}); start some, or describe it in a file")
    if described.protocol_type != PROTOCOL_TYPE:
        raise BadSource(f"group {group_id} is one of {described.protocol_type!r}, not of consumers")
    if state not in (STABLE, COMPLETING):
        raise BadSource(f"group {group_id} is rebalancing (state {state}); ask again when it is stable")
    found = {}
    for member in described.members:
        subscription = decode_subscription(bytes(member.member_metadata))
        assignment = decode_assignment(bytes(member.member_assignment))
        if isinstance(subscription, Malformed) or not isinstance(assignment, Assignment):
            raise BadSource(f"what member {member.member_id} of group {group_id} subscribes to cannot be read")
        found[member.member_id] = SimulatedMember(
            subscription.topics, assignment.partitions, member.group_instance_id, subscription.rack_id
        )
    return found


async def _topics(cluster: Cluster, names: list[str]) -> dict[str, SubscribedTopic]:
    wanted = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    answer: MetadataResponse = await cluster.request_any(request)
    racks = {broker.node_id: broker.rack for broker in answer.brokers}
    found = {}
    for topic in answer.topics:
        if topic.error_code == ErrorCode.NONE and topic.name is not None:
            found[topic.name] = SubscribedTopic(len(topic.partitions), _racks(topic.partitions, racks))
    return found


def _racks(partitions: list[Any], racks: Mapping[int, str | None]) -> tuple[frozenset[str], ...] | None:
    if not any(racks.values()):
        return None
    ordered = sorted(partitions, key=lambda one: int(one.partition_index))
    return tuple(frozenset(filter(None, (racks.get(node) for node in one.replica_nodes))) for one in ordered)


def _topic(name: str, value: Any) -> SubscribedTopic:
    racks = None
    if isinstance(value, dict):
        fields = _object(value, f"topic {name}", {"partitions", "racks"})
        value = fields.get("partitions")
        if fields.get("racks") is not None:
            rows = _array(fields["racks"], f"the racks of topic {name}")
            racks = tuple(frozenset(_texts(row, f"the racks of a partition of topic {name}")) for row in rows)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PARTITIONS:
        raise BadSource(f"topic {name} needs its number of partitions, 0 to {MOST_PARTITIONS}, not {_short(value)}")
    if racks is not None and len(racks) != value:
        raise BadSource(f"topic {name} has {value} partitions, but racks of {len(racks)}")
    return SubscribedTopic(value, racks)


def _member(name: str, value: Any, topics: Mapping[str, SubscribedTopic]) -> SimulatedMember:
    fields = _object(value, f"member {name}", {"topics", "owned", "instance", "rack"})
    subscribed = _texts(fields.get("topics", list(topics)), f"the topics of member {name}")
    owned: Partitions = {}
    for topic, indexes in _object(fields.get("owned", {}), f"what member {name} owns").items():
        numbers = _array(indexes, f"the partitions of {topic} that member {name} owns")
        known = topics[topic].partitions if topic in topics else 0
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < known:
                raise BadSource(f"member {name} owns partition {_short(number)} of {topic}, which has {known}")
        owned[topic] = tuple(numbers)
    instance, rack = (
        None if fields.get(key) is None else _text(fields[key], f"the {key} of member {name}")
        for key in ("instance", "rack")
    )
    return SimulatedMember(tuple(subscribed), owned, instance, rack)


def _check_owners(group: SimulatedGroup) -> None:
    seen: dict[tuple[str, int], str] = {}
    for name, member in group.members.items():
        for topic, indexes in member.owned.items():
            for index in indexes:
                other = seen.setdefault((topic, index), name)
                if other is not name:
                    raise BadSource(f"{topic}-{index} is owned by {other} and by {name}; a partition has one owner")


def _object(value: Any, what: str, known: set[str] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadSource(f"{what} must be an object, not {_short(value)}")
    unknown = [name for name in value if known is not None and name not in known]
    if unknown:
        raise BadSource(f"{what} has the unknown field {unknown[0]!r}; known are {', '.join(sorted(known or ()))}")
    return value


def _array(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadSource(f"{what} must be an array, not {_short(value)}")
    return value


def _texts(value: Any, what: str) -> list[str]:
    return [_text(one, what) for one in _array(value, what)]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadSource(f"{what} must be text, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
