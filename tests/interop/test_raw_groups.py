"""The group requests, every version and every refusal, beside Apache Kafka's coordinator."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each, assert_alike, coordinator_is_up
from interop.raw import RawConnection
from interop.wire_json import Json
from ottla.env.clock import VirtualClock
from ottla.env.disk import RealDisk
from ottla.zk.store import TreeStore
from ottla.zk.tree import Tree
from support.apache import ApacheZooKeeper
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka]

NONE = 0
COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
GROUP_SUBSCRIBED_TO_TOPIC = 86
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69

#: Version 0, one topic "t", no user data. Apache Kafka's coordinator stalls for ever on metadata it cannot read.
SUBSCRIPTION = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}]


@pytest.fixture
def group(pair: BrokerPair, unique: str) -> str:
    """A group name whose coordinator is up on both brokers."""
    for one in (pair.ours, pair.theirs):
        wait_until(lambda one=one: coordinator_is_up(one, unique), "the coordinator")
    return unique


class Member:
    """A group member on both brokers; ids and generations as each gave them."""

    def __init__(self, pair: BrokerPair, group: str, instance: str | None = None) -> None:
        self.pair = pair
        self.group = group
        self.instance = instance
        self.id = Each("", "")
        self.generation = -1

    def join_body(self, version: int, **more: Any) -> Json:
        body: Json = {
            "group_id": self.group,
            "session_timeout_ms": 60_000,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": PROTOCOLS,
        }
        if version >= 1:
            body["rebalance_timeout_ms"] = 60_000
        if version >= 5 and self.instance is not None:
            body["group_instance_id"] = self.instance
        return body | more

    def join(self, version: int = 9, **more: Any) -> Json:
        """One JoinGroup, answers compared; from version 4 on the first is told its member id only."""
        answers = self.pair.ask_each("JoinGroup", version, **self.join_body(version, **more))
        compare_joins(answers)
        self.id = Each(answers.ours["member_id"] or self.id.ours, answers.theirs["member_id"] or self.id.theirs)
        self.generation = answers.ours["generation_id"]
        ours: Json = answers.ours
        return ours

    def fully_join(self, version: int = 9) -> Json:
        answer = self.join(version)
        if answer["error_code"] == MEMBER_ID_REQUIRED:
            answer = self.join(version)
        assert answer["error_code"] == NONE
        return answer

    def sync(self, version: int = 5, **more: Any) -> Json:
        body: Json = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        assignments = [{"member_id": self.id, "assignment": b"yours"}]
        if version >= 5:
            body |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.pair.check_alike("SyncGroup", version, **body | {"assignments": assignments} | more)

    def become_stable(self) -> None:
        self.fully_join()
        assert self.sync()["assignment"] == b"yours"

    def heartbeat(self, version: int = 4, **more: Any) -> int:
        body: Json = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        answer = self.pair.check_alike("Heartbeat", version, **body | more)
        code: int = answer["error_code"]
        return code

    def check_leave(self, version: int = 5, **more: Any) -> Json:
        body: Json = {"group_id": self.group}
        if version < 3:
            body["member_id"] = self.id
        else:
            body["members"] = [{"member_id": self.id}]
        return self.pair.check_alike("LeaveGroup", version, **body | more)


def compare_joins(answers: Each) -> None:
    """Joins are equal but for the member ids, which must fit together within each answer."""
    sides = []
    for side in (answers.ours, answers.theirs):
        known = {"": "", side["member_id"]: "me"}
        numbered = {**side, "member_id": bool(side["member_id"]), "leader": known.get(side["leader"], "another")}
        members = [{**one, "member_id": known.get(one["member_id"], "another")} for one in side["members"] or []]
        # Apache Kafka lists them in the order of a hash table.
        numbered["members"] = sorted(members, key=lambda one: str(one["member_id"]))
        sides.append({name: value for name, value in numbered.items() if name != "throttle_time_ms"})
    assert_alike(sides[0], sides[1], "JoinGroup")


@pytest.mark.parametrize("version", range(7))
@pytest.mark.spec("G2")
def test_the_coordinator_is_found(pair: BrokerPair, group: str, version: int) -> None:
    if version == 0:
        body: Json = {"key": group}
    elif version < 4:
        body = {"key": group, "key_type": 0}
    else:
        body = {"key_type": 0, "coordinator_keys": [group, group + "-2", ""]}
    pair.check_alike("FindCoordinator", version, **body)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_the_coordinator_of_nobody(pair: BrokerPair, group: str, version: int) -> None:
    for key, key_type in (("", 0), (group, 7), (group, -1)):
        keys: Json = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        pair.check_alike("FindCoordinator", version, key_type=key_type, **keys)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.spec("G2")
def test_one_member_in_every_version(pair: BrokerPair, group: str, version: int) -> None:
    member = Member(pair, group)
    answer = member.join(version)
    assert (answer["error_code"] == MEMBER_ID_REQUIRED) == (version >= 4)
    if version >= 4:
        answer = member.join(version)
    assert answer["error_code"] == NONE
    assert answer["leader"] == answer["member_id"] == member.id.ours
    assert member.sync(min(version, 5))["assignment"] == b"yours"
    assert member.heartbeat(min(version, 4)) == NONE
    member.check_leave(min(version, 5))
    assert member.heartbeat(min(version, 4)) == UNKNOWN_MEMBER_ID


JOIN_REFUSALS: dict[str, tuple[Json, int]] = {
    "session too short": ({"session_timeout_ms": 10}, INVALID_SESSION_TIMEOUT),
    "session too long": ({"session_timeout_ms": 10_000_000}, INVALID_SESSION_TIMEOUT),
    "unknown member": ({"member_id": "nobody"}, UNKNOWN_MEMBER_ID),
    "no group": ({"group_id": ""}, INVALID_GROUP_ID),
    "no protocols": ({"protocols": []}, INCONSISTENT_GROUP_PROTOCOL),
    "no protocol type": ({"protocol_type": ""}, INCONSISTENT_GROUP_PROTOCOL),
}


@pytest.mark.parametrize("version", [0, 3, 5, 9])
@pytest.mark.parametrize("what", JOIN_REFUSALS)
def test_joins_that_are_refused(pair: BrokerPair, group: str, what: str, version: int) -> None:
    change, error = JOIN_REFUSALS[what]
    assert Member(pair, group).join(version, **change)["error_code"] == error


@pytest.mark.parametrize("version", [3, 9])
def test_protocols_must_fit_the_group(pair: BrokerPair, group: str, version: int) -> None:
    Member(pair, group).become_stable()
    stranger = Member(pair, group)
    answer = stranger.join(version, protocols=[{"name": "sticky", "metadata": SUBSCRIPTION}])
    assert answer["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert stranger.join(version, protocol_type="connect")["error_code"] == INCONSISTENT_GROUP_PROTOCOL


def test_wrong_generations_and_members(pair: BrokerPair, group: str) -> None:
    member = Member(pair, group)
    member.become_stable()
    assert member.heartbeat(generation_id=member.generation + 1) == ILLEGAL_GENERATION
    assert member.heartbeat(member_id="nobody") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id="") == INVALID_GROUP_ID
    assert member.heartbeat(group_id=group + "-other") == UNKNOWN_MEMBER_ID
    assert member.sync(generation_id=member.generation - 1)["error_code"] == ILLEGAL_GENERATION
    assert member.sync(member_id="nobody")["error_code"] == UNKNOWN_MEMBER_ID
    assert member.sync(group_id=group + "-other")["error_code"] == UNKNOWN_MEMBER_ID
    assert member.sync(protocol_name="sticky")["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_name=None, protocol_type=None)["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect")["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert member.heartbeat() == NONE
    # A sync in Stable is answered at once with what was assigned.
    assert member.sync(assignments=[])["assignment"] == b"yours"


@pytest.mark.parametrize("metadata", [b"what is this", b"", b"\0\0\x7f\xff\xff\xff"], ids=["text", "empty", "absurd"])
def test_unreadable_metadata_stalls_nobody(ottla_only: OttlaServer, connect: Any, unique: str, metadata: bytes) -> None:
    raw = connect(ottla_only)
    wait_until(lambda: coordinator_is_up(raw, unique), "the coordinator")
    body: Json = {"group_id": unique, "session_timeout_ms": 60_000, "member_id": "", "protocol_type": "consumer"}
    bad = raw.request("JoinGroup", 0, protocols=[{"name": "range", "metadata": metadata}], **body)
    assert bad["error_code"] != NONE
    good = raw.request("JoinGroup", 0, protocols=PROTOCOLS, **body)
    assert good["error_code"] == NONE
    assert [one["metadata"] for one in good["members"]] == [SUBSCRIPTION]


def test_a_member_that_joins_again(pair: BrokerPair, group: str) -> None:
    member = Member(pair, group)
    member.become_stable()
    # The leader's rejoin starts a new generation.
    assert member.join()["generation_id"] == 2
    assert member.heartbeat() in (NONE, REBALANCE_IN_PROGRESS)
    member.sync()
    assert member.heartbeat() == NONE


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_leaving_when_not_there(pair: BrokerPair, group: str, version: int) -> None:
    stranger = Member(pair, group)
    stranger.id = Each("nobody", "nobody")
    stranger.check_leave(version)
    Member(pair, group).become_stable()
    stranger.check_leave(version)
    stranger.check_leave(version, group_id="")


def test_leaving_together(pair: BrokerPair, group: str) -> None:
    member = Member(pair, group)
    member.become_stable()
    members = [{"member_id": "nobody"}, {"member_id": member.id}, {"member_id": "", "group_instance_id": "static"}]
    answer = member.check_leave(5, members=members)
    assert [one["error_code"] for one in answer["members"]] == [UNKNOWN_MEMBER_ID, NONE, UNKNOWN_MEMBER_ID]


def test_static_members(pair: BrokerPair, group: str) -> None:
    first = Member(pair, group, instance="one")
    first.fully_join()
    assert first.sync(group_instance_id="one")["assignment"] == b"yours"
    # The same instance comes back without its id: same generation or not, the old id is fenced.
    second = Member(pair, group, instance="one")
    second.join()
    assert second.id.ours != first.id.ours
    assert first.heartbeat(group_instance_id="one") == 82
    assert first.heartbeat() == UNKNOWN_MEMBER_ID
    second.sync(group_instance_id="one", assignments=[])
    second.check_leave(5, members=[{"member_id": "", "group_instance_id": "one"}])


def commit_body(group: str, topic: str, offset: int, **more: Any) -> Json:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "some words"}]
    return {"group_id": group, "topics": [{"name": topic, "partitions": partitions}], **more}


def commit(pair: BrokerPair, version: int, group: str, topic: str, offset: int, **more: Any) -> int:
    answer = pair.check_alike("OffsetCommit", version, **commit_body(group, topic, offset, **more))
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def fetch_offsets(pair: BrokerPair, version: int, group: str, topics: list[tuple[str, list[int]]] | None) -> Json:
    wanted = topics and [{"name": name, "partition_indexes": numbers} for name, numbers in topics]
    if version < 8:
        return pair.check_alike("OffsetFetch", version, group_id=group, topics=wanted)
    return pair.check_alike("OffsetFetch", version, groups=[{"group_id": group, "topics": wanted}])


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.spec("C3", "G2")
def test_offsets_are_committed_and_fetched_in_every_version(pair: BrokerPair, group: str, version: int) -> None:
    pair.create_topic(group, partitions=2)
    simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
    assert commit(pair, version, group, group, 42, **simple) == NONE
    fetch_offsets(pair, version, group, [(group, [0, 1]), (group + "-none", [0])])
    fetch_offsets(pair, version, group, [])
    if version >= 2:
        fetch_offsets(pair, version, group, None)
    fetch_offsets(pair, version, group + "-other", [(group, [0])])


@pytest.mark.spec("C3", "G2")
def test_the_first_version_keeps_offsets_in_the_tree(
    pair: BrokerPair, group: str, apache_zookeeper: ApacheZooKeeper, ottla_only: OttlaServer, tmp_path: Path
) -> None:
    """What version 0 commits is read by version 0 alone, and lies where ZooKeeper's readers look for it."""
    pair.create_topic(group, partitions=2)
    commit(pair, 1, group, group, 7, generation_id_or_member_epoch=-1, member_id="")
    assert fetch_offsets(pair, 0, group, [(group, [0])])["topics"][0]["partitions"][0]["committed_offset"] == -1
    for offset in (42, 41):
        assert commit(pair, 0, group, group, offset) == NONE
    both = [(group, [0, 1, 5]), (group + "-none", [0])]
    answer = fetch_offsets(pair, 0, group, both)
    kept = {(one["name"], at["partition_index"]): at for one in answer["topics"] for at in one["partitions"]}
    assert (kept[group, 0]["committed_offset"], kept[group, 0]["metadata"]) == (41, "")
    assert kept[group, 1]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_offsets(pair, 1, group, [(group, [0])])["topics"][0]["partitions"][0]["committed_offset"] == 7
    told = zookeeper_says(apache_zookeeper, f"get /consumers/{group}/offsets/{group}/0")
    assert told.splitlines()[-1] == "41"
    assert tree_of(ottla_only, tmp_path).get(f"/consumers/{group}/offsets/{group}/0").data == b"41"


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ({"offset": -5}, NONE),
        ({"group": "a/b"}, NONE),
        ({"group": ""}, UNKNOWN_SERVER_ERROR),
        ({"group": "a/../b"}, UNKNOWN_SERVER_ERROR),
        ({"metadata": "x" * 5000}, OFFSET_METADATA_TOO_LARGE),
        ({"partition": 7}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "nosuchtopic"}, UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_commits_of_the_first_version(pair: BrokerPair, group: str, what: dict[str, Any], error: int) -> None:
    """Of anybody, and in a group with members, too: it knows of no groups."""
    pair.create_topic(group)
    member = Member(pair, group)
    member.become_stable()
    at = {"partition_index": what.get("partition", 0), "committed_offset": what.get("offset", 3)}
    partitions = [at | {"committed_metadata": what.get("metadata")}]
    asked, topic = what.get("group", group), what.get("topic", group)
    answer = pair.check_alike("OffsetCommit", 0, group_id=asked, topics=[{"name": topic, "partitions": partitions}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == error
    fetch_offsets(pair, 0, asked, [(topic, [at["partition_index"]])])


@pytest.mark.parametrize("version", [0, 1, 9])
@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("x" * 4096, NONE),
        ("x" * 4097, OFFSET_METADATA_TOO_LARGE),
        ("é" * 4096, NONE),
        ("\N{CRAB}" * 2048, NONE),
        ("\N{CRAB}" * 2048 + "x", OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_measured_as_java_measures_strings(
    pair: BrokerPair, group: str, version: int, metadata: str, error: int
) -> None:
    pair.create_topic(group)
    simple = {} if version == 0 else {"generation_id_or_member_epoch": -1, "member_id": ""}
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}]
    topics = [{"name": group, "partitions": partitions}]
    answer = pair.check_alike("OffsetCommit", version, group_id=group, topics=topics, **simple)
    assert answer["topics"][0]["partitions"][0]["error_code"] == error
    fetch_offsets(pair, version, group, [(group, [0])])


def zookeeper_says(zookeeper: ApacheZooKeeper, command: str) -> str:
    """What the tool prints, without the events of its session, which another thread prints at any time."""
    told = java_tool("org.apache.zookeeper.ZooKeeperMain", "-server", zookeeper.connect, *command.split()).stdout
    return "\n".join(line for line in told.splitlines() if not line.startswith("WatchedEvent "))


def tree_of(server: OttlaServer, folder: Path) -> Tree:
    """What the tree of a running broker says, read from a copy of its files."""
    for file in server.log_dir.glob("ottla-tree.*"):
        shutil.copy(file, folder)
    return TreeStore.open(RealDisk(), str(folder), VirtualClock(1)).tree


def test_commits_that_are_refused(pair: BrokerPair, group: str) -> None:
    pair.create_topic(group)
    member = Member(pair, group)
    member.become_stable()
    mine = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    assert commit(pair, 8, group, group, 1, **mine) == NONE
    assert commit(pair, 8, group, group, 1, **{**mine, "member_id": "nobody"}) == UNKNOWN_MEMBER_ID
    assert commit(pair, 8, group, group, 1, **{**mine, "generation_id_or_member_epoch": 9}) == ILLEGAL_GENERATION
    simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
    # A group with members does not take commits from outside.
    assert commit(pair, 8, group, group, 1, **simple) == UNKNOWN_MEMBER_ID
    commit(pair, 8, group, group + "-none", 1, **mine)
    commit(pair, 8, "", group, 1, **simple)
    commit(pair, 8, group + "-b", group, -5, **simple)
    long = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5000}]
    pair.check_alike("OffsetCommit", 8, group_id=group, topics=[{"name": group, "partitions": long}], **mine)
    unknown = [{"partition_index": 7, "committed_offset": 1, "committed_metadata": None}]
    pair.check_alike("OffsetCommit", 8, group_id=group, topics=[{"name": group, "partitions": unknown}], **mine)
    fetch_offsets(pair, 8, group, None)


def test_offsets_of_many_groups(pair: BrokerPair, group: str) -> None:
    pair.create_topic(group)
    simple = {"generation_id_or_member_epoch": -1, "member_id": ""}
    for number in range(3):
        commit(pair, 8, f"{group}-{number}", group, 10 + number, **simple)
    groups = [{"group_id": f"{group}-{number}", "topics": None} for number in range(4)]
    answer = pair.check_alike("OffsetFetch", 9, groups=groups, require_stable=True)
    assert [one["topics"][0]["partitions"][0]["committed_offset"] for one in answer["groups"][:3]] == [10, 11, 12]


@pytest.mark.parametrize("version", range(6))
def test_groups_are_described(pair: BrokerPair, group: str, version: int) -> None:
    more = {"include_authorized_operations": True} if version >= 3 else {}
    body: Json = {"groups": [group, group + "-none", ""], **more}
    pair.check_alike("DescribeGroups", version, **body)
    member = Member(pair, group)
    member.fully_join()
    pair.check_alike("DescribeGroups", version, **body)
    member.sync()
    stable = pair.check_alike("DescribeGroups", version, **body)
    assert stable["groups"][0]["group_state"] == "Stable"
    assert stable["groups"][0]["members"][0]["client_host"] == "/127.0.0.1"
    pair.create_topic(group)
    commit(pair, 8, group, group, 1, generation_id_or_member_epoch=member.generation, member_id=member.id)
    member.check_leave()
    assert pair.check_alike("DescribeGroups", version, **body)["groups"][0]["group_state"] == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(pair: BrokerPair, group: str, version: int) -> None:
    Member(pair, group).become_stable()

    def listed(**filters: Any) -> list[Json]:
        answers = pair.ask_each("ListGroups", version, **filters)
        ours, theirs = (
            [one for one in side["groups"] if one["group_id"] == group] for side in (answers.ours, answers.theirs)
        )
        assert ours == theirs
        return ours

    assert len(listed()) == 1
    if version >= 4:
        assert listed(states_filter=["Empty"]) == []
        assert len(listed(states_filter=["Stable", "Empty"])) == 1
        assert len(listed(states_filter=["stable"])) == 1
        assert listed(states_filter=["no such state"]) == []
    if version >= 5:
        assert len(listed(types_filter=["classic"])) == 1
        assert listed(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(pair: BrokerPair, group: str, version: int) -> None:
    pair.create_topic(group)
    member = Member(pair, group)
    member.become_stable()
    commit(pair, 8, group, group, 5, generation_id_or_member_epoch=member.generation, member_id=member.id)
    for name, error in ((group, NON_EMPTY_GROUP), (group + "-none", GROUP_ID_NOT_FOUND)):
        assert errors_of(pair.check_alike("DeleteGroups", version, groups_names=[name])) == {error}
    member.check_leave()
    assert errors_of(pair.check_alike("DeleteGroups", version, groups_names=[group])) == {NONE}
    assert errors_of(pair.check_alike("DeleteGroups", version, groups_names=[group])) == {GROUP_ID_NOT_FOUND}
    fetch_offsets(pair, 7, group, None)


def delete_offsets(pair: BrokerPair, group: str, *partitions: tuple[str, int]) -> Json:
    topics: dict[str, list[Json]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append({"partition_index": index})
    body = [{"name": name, "partitions": asked} for name, asked in topics.items()]
    answers = pair.ask_each("OffsetDelete", 0, group_id=group, topics=body)
    for answer in (answers.ours, answers.theirs):
        # Apache Kafka lists the refused ones first.
        answer["topics"].sort(key=lambda one: str(one["name"]))
    assert_alike(answers.ours, answers.theirs, "OffsetDelete")
    ours: Json = answers.ours
    return ours


def offset_errors(answer: Json) -> dict[str, list[int]]:
    return {topic["name"]: [one["error_code"] for one in topic["partitions"]] for topic in answer["topics"]}


@pytest.mark.spec("G2")
def test_offsets_are_deleted(pair: BrokerPair, group: str) -> None:
    pair.create_topic("t", 2)
    pair.create_topic(group, 3)
    assert delete_offsets(pair, "", (group, 0))["error_code"] == INVALID_GROUP_ID
    assert delete_offsets(pair, group + "-none", (group, 0))["error_code"] == GROUP_ID_NOT_FOUND
    member = Member(pair, group)
    member.become_stable()
    for topic in (group, "t"):
        commit(pair, 8, group, topic, 5, generation_id_or_member_epoch=member.generation, member_id=member.id)
    answer = delete_offsets(pair, group, ("t", 0), (group, 0), (group, 2), (group + "-none", 0))
    unknown = {group + "-none": [UNKNOWN_TOPIC_OR_PARTITION]}
    assert offset_errors(answer) == {"t": [GROUP_SUBSCRIBED_TO_TOPIC], group: [NONE, NONE]} | unknown
    fetch_offsets(pair, 7, group, None)
    member.check_leave()
    assert offset_errors(delete_offsets(pair, group, ("t", 0))) == {"t": [NONE]}
    assert delete_offsets(pair, group, ("t", 0))["error_code"] == GROUP_ID_NOT_FOUND, "it went with its last offset"
    fetch_offsets(pair, 7, group, None)


def test_offsets_of_a_group_that_is_none_of_consumers(pair: BrokerPair, group: str) -> None:
    pair.create_topic(group)
    member = Member(pair, group)
    while member.join(9, protocol_type="connect")["error_code"] == MEMBER_ID_REQUIRED:
        pass
    assert delete_offsets(pair, group, (group, 0))["error_code"] == NON_EMPTY_GROUP


def errors_of(answer: Json) -> set[int]:
    return {one["error_code"] for one in answer["results"]}


def test_offsets_go_with_their_topic(pair: BrokerPair, group: str) -> None:
    pair.create_topic(group)
    commit(pair, 8, group, group, 5, generation_id_or_member_epoch=-1, member_id="")
    member = Member(pair, group + "-empty")
    member.become_stable()
    member.check_leave()
    pair.check_alike("DeleteTopics", 5, topic_names=[group], timeout_ms=20_000)

    def gone(connection: RawConnection) -> bool:
        return connection.request("OffsetFetch", 7, group_id=group, topics=None)["topics"] == []

    def dead(connection: RawConnection) -> bool:
        described = connection.request("DescribeGroups", 5, groups=[group, group + "-empty"])["groups"]
        return [one["group_state"] for one in described] == ["Dead", "Dead"]

    for one in (pair.ours, pair.theirs):
        wait_until(lambda one=one: gone(one), "the end of the offsets")
        # With a topic go all groups that are left with nothing, of that topic or not.
        wait_until(lambda one=one: dead(one), "the end of the groups")


def test_two_members(pair: BrokerPair, group: str, connect: Any, shared_ottla_server: Any, apache_kafka: Any) -> None:
    first = Member(pair, group)
    first.become_stable()
    other = BrokerPair(connect(shared_ottla_server), connect(apache_kafka))
    second = Member(other, group)
    assert second.join()["error_code"] == MEMBER_ID_REQUIRED
    # The second join waits for the first member's; meanwhile its heartbeats tell it to join again.
    for connection, side in ((other.ours, "ours"), (other.theirs, "theirs")):
        body = {**second.join_body(9), "member_id": getattr(second.id, side)}
        connection.send("JoinGroup", 9, **body)
    for connection in (pair.ours, pair.theirs):
        member_id = first.id.ours if connection is pair.ours else first.id.theirs
        heart = {"group_id": group, "generation_id": 1, "member_id": member_id}
        wait_until(
            lambda c=connection, h=heart: c.request("Heartbeat", 4, **h)["error_code"] == REBALANCE_IN_PROGRESS,
            "the rebalance",
        )
    assert first.sync()["error_code"] == REBALANCE_IN_PROGRESS
    led = first.join()
    assert led["generation_id"] == 2
    assert len(led["members"]) == 2
    followed = Each(other.ours.receive("JoinGroup", 9), other.theirs.receive("JoinGroup", 9))
    compare_joins(followed)
    second.generation = 2
    assert followed.ours["leader"] == first.id.ours
    assert followed.ours["members"] == []
    assignments = [{"member_id": first.id, "assignment": b"one"}, {"member_id": second.id, "assignment": b"two"}]
    assert first.sync(assignments=assignments)["assignment"] == b"one"
    assert second.sync(assignments=[])["assignment"] == b"two"
    second.check_leave()
    assert first.heartbeat() == REBALANCE_IN_PROGRESS
