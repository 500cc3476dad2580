"""Groups as an administrator sees them."""

from __future__ import annotations

import pytest

from ottla.assign.consumer_protocol import encode_assignment, encode_subscription
from ottla.client.errors import BrokerError
from ottla.client.groups import Groups
from ottla.client.model import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsResponse

pytestmark = pytest.mark.spec("G2")


def member(name, metadata=b"", assignment=b""):
    return DescribedGroupMember(
        member_id=f"{name}-id",
        client_id=name,
        client_host="/10.0.0.7",
        member_metadata=metadata,
        member_assignment=assignment,
    )


def group(name, *members, state="Stable", protocol_type="consumer"):
    return DescribedGroup(
        group_id=name, group_state=state, protocol_type=protocol_type, protocol_data="range", members=list(members)
    )


def groups(work):
    return lambda cluster: work(Groups(cluster))


def test_members_with_what_they_have_and_want(fake, with_cluster):
    anna = member("anna", encode_subscription(["t", "a"]), encode_assignment({"t": [2, 0], "a": [1]}))
    fake.groups["g"] = group("g", anna, member("ben"))
    found = with_cluster(fake, groups(lambda g: g.describe("g")))
    assert (found.state, found.assignor, found.is_active, found.coordinator.node_id) == ("Stable", "range", True, 0)
    first, second = found.members
    assert first.partitions == (TopicPartition("a", 1), TopicPartition("t", 0), TopicPartition("t", 2))
    assert (first.subscribed_topics, first.client_host) == (("a", "t"), "10.0.0.7")
    assert (second.partitions, second.subscribed_topics) == ((), ())


@pytest.mark.parametrize("garbage", [b"\x00", b"\xff\xff\xff", b"\x00\x01" + b"\x7f" * 9])
def test_garbage_of_a_member_is_nothing(fake, with_cluster, garbage):
    fake.groups["g"] = group("g", member("anna", garbage, garbage))
    [anna] = with_cluster(fake, groups(lambda g: g.describe("g"))).members
    assert (anna.partitions, anna.subscribed_topics) == ((), ())


def test_bytes_of_other_protocols_are_not_read(fake, with_cluster):
    connect = member("worker", encode_subscription(["t"]), encode_assignment({"t": [0]}))
    fake.groups["c"] = group("c", connect, protocol_type="connect")
    assert with_cluster(fake, groups(lambda g: g.describe("c"))).members[0].partitions == ()


def test_a_group_that_is_not_there_is_dead(fake, with_cluster):
    found = with_cluster(fake, groups(lambda g: g.describe("nobody")))
    assert (found.state, found.is_active, found.members) == ("Dead", False, ())
    fake.faults[ApiKey.DESCRIBE_GROUPS].append(ErrorCode.GROUP_ID_NOT_FOUND)  # as Kafka 4 says it
    assert with_cluster(fake, groups(lambda g: g.describe("nobody"))).state == "Dead"


def test_a_group_with_the_consumer_protocol_is_found(fake, with_cluster):
    """It is listed, and described as dead."""
    listed = ListedGroup(group_id="new", protocol_type="consumer", group_state="Stable", group_type="consumer")
    fake.faults[ApiKey.LIST_GROUPS].append(lambda request: ListGroupsResponse(groups=[listed]))
    found = with_cluster(fake, groups(lambda g: g.find("new")))
    assert (found.state, found.group_type, found.member_count) == ("Stable", "consumer", None)
    found = with_cluster(fake, groups(lambda g: g.find("nobody")))
    assert (found.state, found.member_count) == ("Dead", 0)


def test_all_brokers_are_asked_for_their_groups(fakes, with_cluster):
    fakes.coordinator = 2
    fakes.groups |= {name: group(name) for name in ("b", "a", "c")}
    listed = with_cluster(fakes, groups(lambda g: g.list_all()))
    assert [(each.group_id, each.coordinator.node_id) for each in listed] == [("a", 2), ("b", 2), ("c", 2)]
    assert len(fakes.requests_of(ApiKey.LIST_GROUPS)) == 3
    assert len(fakes.requests_of(ApiKey.DESCRIBE_GROUPS)) == 1


@pytest.mark.parametrize("fault", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, "DROP"])
@pytest.mark.parametrize("api_key", [ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS])
def test_what_passes_is_waited_for(fake, with_cluster, faults, fault, api_key):
    fake.groups["g"] = group("g")
    fake.faults[api_key].extend([faults.get(fault, fault)] * 2)
    assert [each.state for each in with_cluster(fake, groups(lambda g: g.list_all()))] == ["Stable"]
    fake.faults[ApiKey.DESCRIBE_GROUPS].append(faults.get(fault, fault))
    assert with_cluster(fake, groups(lambda g: g.describe("g"))).state == "Stable"


def test_delete(fake, with_cluster):
    fake.groups |= {"empty": group("empty", state="Empty"), "busy": group("busy", member("anna"))}
    with_cluster(fake, groups(lambda g: g.delete("empty")))
    assert list(fake.groups) == ["busy"]
    with pytest.raises(BrokerError, match=r"group busy: it is not deleted: .*NON_EMPTY_GROUP"):
        with_cluster(fake, groups(lambda g: g.delete("busy")))
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        with_cluster(fake, groups(lambda g: g.delete("empty")))


@pytest.mark.parametrize("fault", ["DROP", "DROP_AFTER"])
def test_deletion_survives_a_lost_answer(fake, with_cluster, faults, fault):
    fake.groups["g"] = group("g", state="Empty")
    fake.faults[ApiKey.DELETE_GROUPS].append(faults[fault])
    with_cluster(fake, groups(lambda g: g.delete("g")))
    assert fake.groups == {}
