"""The requests of a look, and brokers that do not answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.model import TopicPartition
from ottla.groups.evidence import EVIDENCE_TOPIC, RebalanceRecorder
from ottla.ops import cluster_look
from ottla.ops.cluster_look import ClusterLooks
from ottla.ops.cluster_view import BrokerPresence
from ottla.peer.cluster import Cluster
from ottla.records.record import Record, encode_batch
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup
from support.fake_cluster import DROP, FakeCluster

pytestmark = pytest.mark.spec("U2")

WithCluster = Callable[..., Any]
EVIDENCE = TopicPartition(EVIDENCE_TOPIC, 0)
SETTLED = (ApiKey.API_VERSIONS, ApiKey.METADATA)


def group(name: str, state: str = "Stable") -> DescribedGroup:
    return DescribedGroup(group_id=name, group_state=state, protocol_type="consumer")


def looks_of(fakes: FakeCluster, with_cluster: WithCluster, *between: Callable[[], None]) -> list[Any]:
    """A look, and one after each of these."""

    async def work(cluster: Cluster) -> list[Any]:
        looks = ClusterLooks(cluster)
        found = [await looks.next()]
        for each in between:
            each()
            found.append(await looks.next())
        return found

    found: list[Any] = with_cluster(fakes, work)
    return found


def test_each_broker_gets_one_request_of_a_kind(
    fakes: FakeCluster, with_cluster: WithCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups take one DescribeGroups; more partitions than a request has take one more ListOffsets."""
    monkeypatch.setattr(cluster_look, "PARTITIONS_A_REQUEST", 2)
    a, *_ = fakes.topic("t", 0, 0, 0, 1)
    fakes.fill(a, 100)
    fakes.committed |= {a: 25}
    fakes.groups |= {"g": group("g"), "h": group("h")}
    [rates] = looks_of(fakes, with_cluster)
    keys = Counter((node, key) for node, key, _ in fakes.requests if key not in SETTLED)
    of_all = {(node, key): 1 for node in range(3) for key in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_GROUPS)}
    of_groups = {(0, ApiKey.DESCRIBE_GROUPS): 1, (0, ApiKey.OFFSET_FETCH): 2}
    assert keys == of_all | of_groups | {(0, ApiKey.LIST_OFFSETS): 2, (1, ApiKey.LIST_OFFSETS): 1}
    asked = [key for _, key, _ in fakes.requests]
    assert asked.index(ApiKey.LIST_OFFSETS) > len(asked) - 1 - asked[::-1].index(ApiKey.OFFSET_FETCH)
    assert [(each.group.group_id, each.lag) for each in rates.groups] == [("g", 75), ("h", 75)]
    assert rates.rebalances is None


def test_a_broker_that_hangs_up_is_silent_and_comes_back(fakes: FakeCluster, with_cluster: WithCluster) -> None:
    fakes.topic("t", 0, 1)

    def drop() -> None:
        fakes.on_describe_log_dirs = lambda node, request, code: (  # type: ignore[method-assign]
            DROP if node == 1 else FakeCluster.on_describe_log_dirs(fakes, node, request, code)
        )

    def heal() -> None:
        del fakes.on_describe_log_dirs

    def states(rates: Any) -> list[BrokerPresence]:
        return [each.state for each in rates.brokers]

    before, during, after = looks_of(fakes, with_cluster, drop, heal)
    up = [BrokerPresence.UP] * 3
    assert (states(before), states(after)) == (up, up)
    assert states(during) == [BrokerPresence.UP, BrokerPresence.SILENT, BrokerPresence.UP]
    assert [each.records_per_s for each in during.brokers] == [0, None, None]
    assert during.brokers[1].problem


def test_a_refusal_is_not_silence(fakes: FakeCluster, with_cluster: WithCluster) -> None:
    fakes.topic("t", 0)
    fakes.faults[ApiKey.LIST_GROUPS].append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    [rates] = looks_of(fakes, with_cluster)
    assert {each.state for each in rates.brokers} == {BrokerPresence.UP}
    assert [each.problem for each in rates.brokers if each.problem]


def test_groups_beyond_the_limit_are_counted(
    fakes: FakeCluster, with_cluster: WithCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_look, "MOST_GROUPS", 2)
    fakes.groups |= {name: group(name) for name in ("a", "b", "c")}
    [rates] = looks_of(fakes, with_cluster)
    assert ([each.group.group_id for each in rates.groups], rates.group_count) == (["a", "b"], 3)


def test_offsets_that_may_not_be_read(fakes: FakeCluster, with_cluster: WithCluster) -> None:
    fakes.groups["g"] = group("g")
    fakes.faults[ApiKey.OFFSET_FETCH].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    [rates] = looks_of(fakes, with_cluster)
    assert [(each.group.state, each.lag) for each in rates.groups] == [("Stable", None)]


def write_evidence(fakes: FakeCluster, generation: int) -> None:
    made = RebalanceRecorder("g", "consumer", generation - 1, 1000, {})
    made.outcome = "empty"
    value = made.close(generation, None, None, [], 1500).encode()
    fakes.leaders[EVIDENCE] = 0
    fakes.logs[EVIDENCE].append(encode_batch([Record(0, 1000, b"g", value)]))


@pytest.mark.parametrize("recorded", [0, 1])
def test_rebalances_since_the_first_look(fakes: FakeCluster, with_cluster: WithCluster, recorded: int) -> None:
    """Those before it are not shown; where there is no evidence yet, the first one is."""
    for generation in range(1, recorded + 1):
        write_evidence(fakes, generation)
    looks = looks_of(fakes, with_cluster, lambda: write_evidence(fakes, recorded + 1), lambda: None)
    found = [
        None if each.rebalances is None else [one.value["generation"] for one in each.rebalances] for each in looks
    ]
    assert found == [[] if recorded else None, [recorded + 1], []]


def test_evidence_that_cannot_be_read_is_left_for_later(fakes: FakeCluster, with_cluster: WithCluster) -> None:
    write_evidence(fakes, 1)
    fakes.leaders[EVIDENCE] = -1

    def lead() -> None:
        fakes.leaders[EVIDENCE] = 0

    looks = looks_of(fakes, with_cluster, lead, lambda: write_evidence(fakes, 2))
    assert [len(each.rebalances) for each in looks] == [0, 0, 1]
