"""Every kind of fault: facts that give it, and facts beside them that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from ottla.client.admin.model import ConfigEntry
from ottla.client.groups import GroupDescription, GroupMember
from ottla.client.model import Node, TopicPartition
from ottla.inspection.directories import LogDirectoryListing, PartitionDirectory
from ottla.ops.doctor.disk import OTHER_FILES, cluster, open_files, space
from ottla.ops.doctor.examining import DoctorFacts, cluster_faults
from ottla.ops.doctor.faults import DoctorFault, FaultKind, fault
from ottla.ops.doctor.groups import FREQUENT_REBALANCES, SLOW_REBALANCE_MS, GroupFacts
from ottla.ops.doctor.reaching import CURES, SeenServer, advertised_fault, different_clusters, senseless_addresses
from ottla.ops.doctor.topics import CLOCK_MS, FUTURE_MS
from ottla.ops.group_lag import GroupLag, PartitionLag
from ottla.ops.health.facts import HealthFacts
from ottla.ops.rebalances import RebalanceRecord
from ottla.testing.disk_memory import MemoryDisk
from unit.ops.health import test_judging as made

pytestmark = pytest.mark.spec("U2")

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ORDERS = TopicPartition("orders", 0)
A, B = Node(1, "a", 9092), Node(2, "b", 9092)
Found = Iterable[DoctorFault]


def entries(values: Mapping[str, str], source: str = "DYNAMIC_TOPIC_CONFIG") -> dict[str, ConfigEntry]:
    return {name: ConfigEntry(name, value, source) for name, value in values.items()}


def with_topic(
    *,
    topic: str = "orders",
    replicas: tuple[int, ...] = (1, 2, 3),
    brokers: Mapping[str, str] | None = None,
    **configs: str,
) -> HealthFacts:
    """Facts of three brokers, a topic of theirs with these settings, and settings of the brokers."""
    minimum = int(configs.get("min_insync_replicas", "1"))
    facts = made.cluster(made.partition(replicas=replicas, topic=topic, minimum=minimum))
    (status,) = facts.status.topics
    names = {name.replace("_", "."): value for name, value in configs.items()}
    facts = made.with_status(facts, topics=(replace(status, configs=entries(names)),))
    known = entries(brokers or {}, "STATIC_BROKER_CONFIG")
    return replace(facts, settings=dict.fromkeys((1, 2, 3), known) if known else {})


def of_health(facts: HealthFacts, newest_ms: int = 0) -> Found:
    return cluster_faults(DoctorFacts(facts, newest_ms={ORDERS: newest_ms}, at_ms=NOW_MS))


def lag(committed: int | None = 5, *, start: int = 0, end: int = 5, age_ms: int = 0) -> GroupLag:
    unread = None if committed is None or committed >= end else NOW_MS - age_ms
    return GroupLag(NOW_MS, NOW_MS, (PartitionLag(ORDERS, committed, None, start, end, unread, NOW_MS),))


def member(*topics: str, partitions: tuple[TopicPartition, ...] = (ORDERS,)) -> GroupMember:
    return GroupMember("m-1", None, "m", "h", partitions, topics or ("orders",))


def group(state: str = "Stable", measured: GroupLag | None = None, *members: GroupMember, **more: Any) -> GroupFacts:
    its = () if state == "Empty" else members or (member(),)
    description = GroupDescription("g", state, "consumer", "range", A, its)
    return GroupFacts(description, lag() if measured is None else measured, **more)


def of_group(now: GroupFacts, before: GroupFacts | None = None, **configs: str) -> Found:
    health = with_topic(**configs)
    looks = [None if each is None else DoctorFacts(health, {"g": each}, at_ms=NOW_MS) for each in (now, before)]
    assert looks[0] is not None
    return cluster_faults(looks[0], looks[1])


def rebalance(*, duration_ms: int = 10, ago_ms: int = 1000) -> RebalanceRecord:
    return RebalanceRecord({"duration_ms": duration_ms, "started_at_ms": NOW_MS - ago_ms})


def refused(address: str, kind: FaultKind = FaultKind.CONNECTION_REFUSED) -> SeenServer:
    return SeenServer((address, 9092), fault=fault(kind, address, "cannot connect", CURES[kind]))


def of_address(found: SeenServer, first: SeenServer | None = None) -> Found:
    return filter(None, [advertised_fault(A, found, first or SeenServer(("b", 1), "x"))])


def listing(files: int) -> LogDirectoryListing:
    names = {f"{number:020}.log": made_name for number, made_name in zip(range(files), [None] * files, strict=True)}
    return LogDirectoryListing("/logs", [PartitionDirectory("/logs/t-0", "t", 0, names)], [])  # type: ignore[arg-type]


class SmallDisk(MemoryDisk):
    """A disk with 100 bytes."""

    usable = 50

    def space(self, path: str) -> tuple[int, int]:
        return 100, self.usable


def disk(usable: int = 50, meta: str = "version=0\nbroker.id=1\ncluster.id=abc\n") -> SmallDisk:
    small = SmallDisk(lambda: NOW_MS)
    small.usable = usable
    small.mkdirs("/logs")
    small.write_atomic("/logs/meta.properties", meta.encode())
    return small


META = LogDirectoryListing("/logs", [], ["meta.properties"])
#: For each kind: facts that give it, and facts that are nearly the same and do not.
FACTS: dict[FaultKind, tuple[Callable[[], Found], Callable[[], Found]]] = {
    FaultKind.TWO_CLUSTERS: (
        lambda: different_clusters([SeenServer(("a", 1), "x"), SeenServer(("b", 1), "y"), refused("c")]),
        lambda: different_clusters([SeenServer(("a", 1), "x"), SeenServer(("b", 1), "x"), refused("c")]),
    ),
    FaultKind.ADVERTISED_ANY: (
        lambda: [each for _, each in senseless_addresses([A, Node(2, "0.0.0.0", 9092)])],
        lambda: [each for _, each in senseless_addresses([A, B])],
    ),
    FaultKind.ADVERTISED_LOOPBACK: (
        lambda: of_address(replace(refused("a"), is_loopback=True)),
        lambda: of_address(SeenServer(("a", 1), "x", is_loopback=True)),
    ),
    FaultKind.ADVERTISED_UNKNOWN_HOST: (
        lambda: of_address(refused("a", FaultKind.UNKNOWN_HOST)),
        lambda: of_address(SeenServer(("a", 1), "x")),
    ),
    FaultKind.ADVERTISED_UNREACHABLE: (
        lambda: of_address(refused("a")),
        lambda: of_address(SeenServer(("a", 1), None)),
    ),
    FaultKind.ADVERTISED_ELSEWHERE: (
        lambda: of_address(SeenServer(("a", 1), "y", is_loopback=True), SeenServer(("b", 1), "x", is_loopback=True)),
        lambda: of_address(SeenServer(("a", 1), "x"), SeenServer(("b", 1), None)),
    ),
    FaultKind.SINGLE_REPLICA: (
        lambda: of_health(with_topic(replicas=(1,))),
        lambda: of_health(with_topic(replicas=(1, 2))),
    ),
    FaultKind.MIN_ISR_ABOVE_FACTOR: (
        lambda: of_health(with_topic(replicas=(1, 2), min_insync_replicas="3")),
        lambda: of_health(with_topic(replicas=(1, 2), min_insync_replicas="2")),
    ),
    FaultKind.OFFSETS_TOPIC_MISSING: (
        lambda: of_health(with_topic(brokers={"offsets.topic.replication.factor": "4"})),
        lambda: of_health(with_topic(brokers={"offsets.topic.replication.factor": "3"})),
    ),
    FaultKind.OFFSETS_TOPIC_THIN: (
        lambda: of_health(with_topic(topic="__consumer_offsets", replicas=(1,))),
        lambda: of_health(with_topic(topic="__consumer_offsets")),
    ),
    FaultKind.ABOVE_REQUEST_LIMIT: (
        lambda: of_health(with_topic(max_message_bytes="2000", brokers={"socket.request.max.bytes": "1999"})),
        lambda: of_health(with_topic(max_message_bytes="2000", brokers={"socket.request.max.bytes": "2000"})),
    ),
    FaultKind.ABOVE_FETCH_LIMIT: (
        lambda: of_health(with_topic(max_message_bytes="1048589", brokers={"replica.fetch.max.bytes": "1048576"})),
        lambda: of_health(with_topic(max_message_bytes="1048588", brokers={"replica.fetch.max.bytes": "1048576"})),
    ),
    FaultKind.UNCLEAN_ELECTION_ENABLED: (
        lambda: of_health(with_topic(unclean_leader_election_enable="true")),
        lambda: of_health(with_topic(unclean_leader_election_enable="false")),
    ),
    FaultKind.FUTURE_TIMESTAMPS: (
        lambda: of_health(with_topic(retention_ms="1000", cleanup_policy="delete"), NOW_MS + FUTURE_MS + 1),
        lambda: of_health(with_topic(retention_ms="-1", cleanup_policy="delete"), NOW_MS + FUTURE_MS + 1),
    ),
    FaultKind.CLOCK_AHEAD: (
        lambda: of_health(with_topic(message_timestamp_type="LogAppendTime"), NOW_MS + CLOCK_MS + 1),
        lambda: of_health(with_topic(message_timestamp_type="LogAppendTime"), NOW_MS + CLOCK_MS),
    ),
    FaultKind.GROUP_UNANSWERED: (
        lambda: cluster_faults(DoctorFacts(made.HEALTHY, unanswered={"g": "no coordinator"})),
        lambda: cluster_faults(DoctorFacts(made.HEALTHY)),
    ),
    FaultKind.TOPIC_MISSING: (
        lambda: of_group(*[group("Stable", None, member("orders", "odrers"))] * 2),
        lambda: of_group(group("Stable", None, member("orders", "odrers")), group()),
    ),
    FaultKind.UNASSIGNED_PARTITIONS: (
        lambda: of_group(*[group("Stable", None, member(partitions=()))] * 2),
        lambda: of_group(group("Stable", None, member(partitions=())), group()),
    ),
    FaultKind.LAG_WITHOUT_MEMBERS: (
        lambda: of_group(group("Empty", lag(3)), group("Empty", lag(3))),
        lambda: of_group(group("Empty", lag(4)), group("Empty", lag(3))),
    ),
    FaultKind.OFFSET_OUT_OF_RANGE: (lambda: of_group(group("Stable", lag(3, start=5))), lambda: of_group(group())),
    FaultKind.OFFSET_BEYOND_END: (
        lambda: of_group(group("Stable", lag(6))),
        lambda: of_group(group("Stable", lag(None))),
    ),
    FaultKind.LAG_NEAR_RETENTION: (
        lambda: of_group(
            group("Stable", lag(3, age_ms=9 * DAY_MS)), retention_ms=f"{10 * DAY_MS}", cleanup_policy="delete"
        ),
        lambda: of_group(
            group("Stable", lag(3, age_ms=9 * DAY_MS)), retention_ms=f"{10 * DAY_MS}", cleanup_policy="compact"
        ),
    ),
    FaultKind.STUCK_REBALANCE: (
        lambda: of_group(group("PreparingRebalance"), group("CompletingRebalance")),
        lambda: of_group(group("PreparingRebalance"), group("Stable")),
    ),
    FaultKind.SLOW_REBALANCE: (
        lambda: of_group(group(rebalances=[rebalance(duration_ms=SLOW_REBALANCE_MS + 1, ago_ms=DAY_MS)])),
        lambda: of_group(group(rebalances=[rebalance(duration_ms=SLOW_REBALANCE_MS + 1), rebalance()])),
    ),
    FaultKind.FREQUENT_REBALANCES: (
        lambda: of_group(group(rebalances=[rebalance()] * FREQUENT_REBALANCES)),
        lambda: of_group(group(rebalances=[rebalance(ago_ms=DAY_MS), *[rebalance()] * (FREQUENT_REBALANCES - 1)])),
    ),
    FaultKind.NO_PROGRESS: (
        lambda: of_group(group("Stable", lag(3, end=9)), group("Stable", lag(3))),
        lambda: of_group(group("Stable", lag(4, end=9)), group("Stable", lag(3))),
    ),
    FaultKind.TOO_FEW_OPEN_FILES: (
        lambda: open_files(listing(25), OTHER_FILES + 24),
        lambda: open_files(listing(25), OTHER_FILES + 25),
    ),
    FaultKind.DAMAGED_META: (
        lambda: cluster(disk(meta="garbage"), META, "abc"),
        lambda: cluster(disk(meta="version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=d\n"), META, "abc"),
    ),
    FaultKind.WRONG_CLUSTER: (lambda: cluster(disk(), META, "xyz"), lambda: cluster(disk(), META, "abc")),
}


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.slug)
def test_each_fault(kind: FaultKind) -> None:
    wrong, right = FACTS[kind]
    (found,) = wrong()
    assert found.fault == kind.slug
    assert found.where
    assert found.what[0].islower() or found.what[0].isdigit()
    assert found.cure.endswith(".")
    assert list(right()) == []


def test_no_kind_is_left_out() -> None:
    """Those of addresses have their cures in a table; tests/unit/cli/test_doctor.py makes each."""
    assert {*FACTS, *CURES} == set(FaultKind)
    assert len({each.slug for each in FaultKind}) == len(FaultKind)


def test_a_volume_that_fills() -> None:
    assert [each.fault for each in space(disk(4), "/logs")] == ["disk-full"]
    assert [each.fault for each in space(disk(14), "/logs")] == ["disk-filling"]
    assert list(space(disk(15), "/logs")) == []


def test_warnings_of_health_are_faults_and_notices_are_not() -> None:
    down = made.cluster(made.partition(leader=-1, isr=(1,)))
    assert [each.fault for each in of_health(down)] == ["offline-partitions"]
    assert list(of_health(made.HEALTHY)) == []
    assert list(of_health(made.cluster(made.partition(minimum=3)))) == []


def test_a_lost_replica_counts_where_min_insync_replicas_is_above_the_factor() -> None:
    """As in Apache Kafka, acks=all is refused only while one of the replicas there are is not in sync."""
    whole, lacking = (made.partition(replicas=(1, 2), isr=isr, minimum=3) for isr in ((1, 2), (1,)))
    assert "under-min-isr" not in {each.fault for each in of_health(made.cluster(whole))}
    assert "under-min-isr" in {each.fault for each in of_health(made.cluster(lacking))}
