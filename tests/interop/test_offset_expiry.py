"""Offsets expire beside Apache Kafka's: which go with an expiry run, which stay, and what becomes of their groups.

Both brokers look for expired offsets several times a second and keep them for a minute, the least that
`offsets.retention.minutes` can say. Nobody waits for that minute: version 1 of OffsetCommit says when an offset was
committed, and version 2 how long it is to be kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interop.both_brokers import BrokerPair, coordinator_is_up
from interop.raw import RawConnection
from interop.test_raw_groups import Member
from interop.wire_json import Definitions
from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("G12")]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.retention.check.interval.ms": "200",
    "offsets.retention.minutes": "1",
    "offsets.topic.num.partitions": "4",
}
TOPICS = ("t", "u")
OLD_MS = 61_000
#: Members of JoinGroup up to version 3 get their id with the answer to their first request.
ONE_REQUEST_JOIN = 3


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper, definitions: Definitions
) -> Iterator[BrokerPair]:
    """Both brokers with topics `t` (that members of these tests subscribe to) and `u`, two partitions each."""
    folder = tmp_path_factory.mktemp("expiry")
    ours = OttlaServer(folder / "ottla", overrides=SETTINGS, arguments=["--id", "1"])
    apart = {"zookeeper.connect": f"{apache_zookeeper.connect}/expiry"}
    theirs = ApacheKafka(folder / "kafka", zookeeper=apache_zookeeper, overrides=SETTINGS | apart)
    try:
        ours.start()
        theirs.start()
        with RawConnection(ours.bootstrap, definitions) as one, RawConnection(theirs.bootstrap, definitions) as other:
            pair = BrokerPair(one, other)
            for topic in TOPICS:
                pair.create_topic(topic, partitions=2)
            yield pair
    finally:
        ours.stop()
        theirs.stop()


@pytest.fixture
def group(pair: BrokerPair, unique: str) -> str:
    for one in (pair.ours, pair.theirs):
        for name in (unique, f"{unique}-marker"):
            wait_until(lambda one=one, name=name: coordinator_is_up(one, name), "the coordinator")
    return unique


def commit(
    pair: BrokerPair, group: str, topic: str, index: int, *, version: int = 1, age_ms: int = 0, **more: Any
) -> None:
    """Commit on both, as a member by `generation_id_or_member_epoch` and `member_id`, or as nobody's."""
    at: dict[str, Any] = {"partition_index": index, "committed_offset": 5, "committed_metadata": "m"}
    if version == 1:
        at["commit_timestamp"] = int(time.time() * 1000) - age_ms
    body = {"generation_id_or_member_epoch": -1, "member_id": ""} | more
    topics = [{"name": topic, "partitions": [at]}]
    answer = pair.check_alike("OffsetCommit", version, group_id=group, topics=topics, **body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0


def kept(connection: RawConnection, group: str) -> set[tuple[str, int]]:
    answer = connection.request("OffsetFetch", 7, group_id=group, topics=None)
    return {(one["name"], at["partition_index"]) for one in answer["topics"] for at in one["partitions"]}


def state(connection: RawConnection, group: str) -> str:
    described: str = connection.request("DescribeGroups", 5, groups=[group])["groups"][0]["group_state"]
    return described


def on_both(pair: BrokerPair, condition: Callable[[RawConnection], bool], what: str) -> None:
    for name, one in (("ottla", pair.ours), ("Apache Kafka", pair.theirs)):
        wait_until(lambda one=one: condition(one), f"{what} on {name}")


def let_expire(pair: BrokerPair, group: str) -> None:
    """Wait for a whole expiry run on both.

    A marker that went three times was seen by three runs. The first may have begun before this, and the last may be
    under way still; that between them was a whole one. The marker's group keeps another offset: Apache Kafka refuses
    commits (COORDINATOR_NOT_AVAILABLE) to a group that an expiry run is just removing.
    """
    marker = f"{group}-marker"
    commit(pair, marker, "u", 0)
    for _ in range(3):
        commit(pair, marker, "t", 0, age_ms=OLD_MS)
        on_both(pair, lambda one: kept(one, marker) == {("u", 0)}, "the expiry run")


def joined(pair: BrokerPair, group: str, protocol_type: str = "consumer") -> Member:
    """The only member of a stable group.

    It joins with a version that needs one request: an expiry run between the two of newer versions removes the group,
    which has neither members nor offsets then, and with it the member id that was given.
    """
    member = Member(pair, group)
    assert member.join(ONE_REQUEST_JOIN, protocol_type=protocol_type)["generation_id"] == 1
    member.sync(protocol_type=protocol_type)
    return member


def check_group(pair: BrokerPair, group: str, offsets: set[tuple[str, int]], in_state: str) -> None:
    for one in (pair.ours, pair.theirs):
        assert (kept(one, group), state(one, group)) == (offsets, in_state)


def test_a_group_without_members_counts_from_its_commits(pair: BrokerPair, group: str) -> None:
    commit(pair, group, "t", 1, age_ms=OLD_MS - 30_000)
    commit(pair, group, "t", 0, age_ms=OLD_MS)
    let_expire(pair, group)
    check_group(pair, group, {("t", 1)}, "Empty")
    commit(pair, group, "t", 1, age_ms=OLD_MS)
    let_expire(pair, group)
    check_group(pair, group, set(), "Dead")


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_of_its_own_goes_before_the_brokers(pair: BrokerPair, group: str, version: int) -> None:
    commit(pair, group, "t", 1, version=version, retention_time_ms=600_000)
    commit(pair, group, "t", 0, version=version, retention_time_ms=1)
    commit(pair, group, "u", 0, version=version, retention_time_ms=-1)
    let_expire(pair, group)
    check_group(pair, group, {("t", 1), ("u", 0)}, "Empty")


def test_members_keep_what_they_subscribe_to(pair: BrokerPair, group: str) -> None:
    member = joined(pair, group)
    mine = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    for topic in TOPICS:
        commit(pair, group, topic, 0, age_ms=OLD_MS, **mine)
        commit(pair, group, topic, 1, **mine)
    commit(pair, group, "t", 1, version=2, retention_time_ms=1, **mine)
    let_expire(pair, group)
    assert member.heartbeat() == 0
    check_group(pair, group, {("t", 0), ("t", 1), ("u", 1)}, "Stable")
    # Without members it counts from when the last one went, for all alike; what has its own retention goes.
    member.check_leave()
    let_expire(pair, group)
    check_group(pair, group, {("t", 0), ("u", 1)}, "Empty")


def test_offsets_of_other_protocols_stay_while_there_are_members(pair: BrokerPair, group: str) -> None:
    member = joined(pair, group, "connect")
    mine = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    for topic in TOPICS:
        commit(pair, group, topic, 0, age_ms=OLD_MS, **mine)
    let_expire(pair, group)
    assert member.heartbeat() == 0
    check_group(pair, group, {("t", 0), ("u", 0)}, "Stable")


def test_an_empty_group_without_offsets_goes_with_the_next_run(pair: BrokerPair, group: str) -> None:
    member = joined(pair, group)
    member.check_leave()
    let_expire(pair, group)
    check_group(pair, group, set(), "Dead")
    assert member.heartbeat() == 25


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_minute_passes(pair: BrokerPair, group: str) -> None:
    """Of a group whose members have gone, and of one that never had any."""
    member = joined(pair, group)
    mine = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
    commit(pair, group, "t", 0, **mine)
    member.check_leave()
    commit(pair, f"{group}-simple", "t", 0)
    begun = time.monotonic()
    for one in (pair.ours, pair.theirs):
        for name in (group, f"{group}-simple"):
            wait_until(lambda one=one, name=name: state(one, name) == "Dead", "the end of the group", timeout_s=75)
        assert time.monotonic() - begun > 55
