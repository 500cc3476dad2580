"""Every kind of finding: facts that give it, its cure, and that a healthy cluster has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from ottla.client.admin.model import ConfigEntry, LogDirDescription, ReplicaSize
from ottla.client.model import Node, TopicPartition
from ottla.ops.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus, ReplicaStatus, TopicStatus
from ottla.ops.health.brokers import WAITING_DELETIONS
from ottla.ops.health.facts import BrokerView, HealthFacts
from ottla.ops.health.findings import ClusterFinding, HealthKind, HealthLevel
from ottla.ops.health.judging import judge, worst
from ottla.wire.lost_records import LostRecords

pytestmark = pytest.mark.spec("R1")

GB = 10**9


def broker(
    number: int,
    rack: str | None = None,
    *,
    used: float = 0.5,
    size: int = 100,
    failed: bool = False,
    refusals: Mapping[TopicPartition, str] | None = None,
) -> BrokerStatus:
    logs = {
        "/logs": LogDirDescription(
            "/logs",
            {TopicPartition("t", 0): ReplicaSize(size, 0, False)},
            100,
            round(100 * (1 - used)),
            refusals=refusals or {},
        )
    }
    if failed:
        logs["/bad"] = LogDirDescription("/bad", {}, error="Disk error (KAFKA_STORAGE_ERROR)")
    return BrokerStatus(Node(number, f"host{number}", 9092, rack), logs)


def partition(
    index: int = 0,
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    minimum: int = 1,
    lag: int = 0,
    end: int = 50,
    adding: tuple[int, ...] = (),
    topic: str = "orders",
    gone: tuple[int, ...] = (),
) -> PartitionStatus:
    in_sync = replicas if isr is None else isr
    return PartitionStatus(
        TopicPartition(topic, index),
        replicas[0] if leader is None else leader,
        0,
        tuple(
            ReplicaStatus(
                each,
                each in in_sync,
                each in gone,
                None if each in gone else end - (0 if each in in_sync else lag),
                None if each in gone else 0 if each in in_sync else lag,
            )
            for each in replicas
        ),
        min_insync_replicas=minimum,
        is_leader_alive=leader != -1,
        adding=adding,
    )


def cluster(*partitions: PartitionStatus, brokers: tuple[BrokerStatus, ...] | None = None) -> HealthFacts:
    topics: dict[str, list[PartitionStatus]] = {}
    for each in partitions:
        topics.setdefault(each.partition.topic, []).append(each)
    return HealthFacts(
        ClusterStatus(
            "abc",
            1,
            (broker(1), broker(2), broker(3)) if brokers is None else brokers,
            tuple(TopicStatus(name, tuple(each)) for name, each in topics.items()),
            {},
        )
    )


def with_status(facts: HealthFacts, **changes: object) -> HealthFacts:
    return replace(facts, status=replace(facts.status, **changes))  # type: ignore[arg-type]


def with_brokers(*brokers: BrokerStatus) -> HealthFacts:
    return cluster(partition(), brokers=brokers)


def settings(**values: str) -> dict[str, ConfigEntry]:
    return {
        name.replace("_", "."): ConfigEntry(name.replace("_", "."), each, "STATIC_BROKER_CONFIG")
        for name, each in values.items()
    }


def loss(*, is_election: bool) -> HealthFacts:
    report = LostRecords(is_election, 1, 3, 3, (0,), 2, 5, 1_000)
    logs = LogDirDescription("/logs", {}, lost_records={TopicPartition("orders", 0): [report]})
    return with_brokers(BrokerStatus(Node(1, "h", 1), {"/logs": logs}), broker(2), broker(3))


HEALTHY = cluster(partition(), partition(1, replicas=(2, 3, 1)), partition(2, replicas=(3, 1, 2)))
TWO_LEFT = (broker(1), broker(2))
RACKED = (broker(1, "a"), broker(2, "a"), broker(3, "b"))

FOUND: dict[HealthKind, tuple[HealthFacts, str, str]] = {
    HealthKind.NO_CONTROLLER: (
        with_status(HEALTHY, controller=None),
        "no broker is the controller",
        "ottla cluster status",
    ),
    HealthKind.UNSETTLED_CONTROLLER: (
        replace(HEALTHY, views={1: BrokerView(1, frozenset()), 2: BrokerView(3, frozenset())}),
        "brokers do not agree on the controller: broker 1 says 1, broker 2 says 3",
        "ottla cluster health --watch",
    ),
    HealthKind.OFFLINE_PARTITIONS: (
        cluster(partition(leader=-1, isr=(3,), gone=(3,)), brokers=TWO_LEFT),
        "1 partition without a leader, neither written nor read: orders-0",
        "Start broker 3 again",
    ),
    HealthKind.OFFSETS_TOPIC_OFFLINE: (
        cluster(partition(topic="__consumer_offsets", leader=-1, isr=(3,), gone=(3,)), brokers=TWO_LEFT),
        "1 partition of __consumer_offsets without a leader",
        "ottla leader-election --election-type unclean __consumer_offsets-0",
    ),
    HealthKind.UNDER_MIN_ISR: (
        cluster(partition(isr=(1,), minimum=2, gone=(3,), lag=5)),
        "1 partition below min.insync.replicas",
        "ottla topic alter orders --config min.insync.replicas=1",
    ),
    HealthKind.AT_MIN_ISR: (
        cluster(partition(isr=(1, 2), minimum=2, gone=(3,)), brokers=TWO_LEFT),
        "1 partition at min.insync.replicas",
        "Start broker 3 again, before anything else is restarted.",
    ),
    HealthKind.UNDER_REPLICATED: (
        cluster(partition(isr=(1, 2), lag=7)),
        "1 partition with replicas that are not in sync: orders-0",
        "Look at disk, network and log of broker 3, whose replicas lag.",
    ),
    HealthKind.LAGGING_REPLICAS: (
        replace(cluster(partition(isr=(1, 2), lag=7)), ages_ms={TopicPartition("orders", 0): 65_000}),
        "1 replica of broker 3 lags by up to 7 records, the oldest 65 s old",
        "Look at disk, network and load of broker 3",
    ),
    HealthKind.STUCK_REASSIGNMENT: (
        cluster(partition(replicas=(1, 2, 3), isr=(1, 2), adding=(3,), gone=(3,)), brokers=TWO_LEFT),
        "1 partition in moves that wait for broker 3: orders-0",
        "ottla reassign cancel FILE",
    ),
    HealthKind.STUCK_DELETION: (
        replace(HEALTHY, metrics={1: {WAITING_DELETIONS: 2.0}, 2: {}}),
        "the deletion of 2 topics waits for a broker or a log directory",
        "Start the broker again",
    ),
    HealthKind.FAILED_LOG_DIRECTORY: (
        with_brokers(broker(1, failed=True), broker(2), broker(3)),
        "log directory /bad of broker 1 has failed: Disk error",
        "replace the disk of /bad",
    ),
    HealthKind.REFUSED_RECORDS: (
        with_brokers(
            broker(1, used=0.94, refusals={TopicPartition("orders", 0): "cannot write /0.log: No space left"}),
            broker(2),
            broker(3),
        ),
        "broker 1 could not write the last records of orders-0: cannot write /0.log: No space left",
        "Make room if its disk is full",
    ),
    HealthKind.DISK_FULL: (
        with_brokers(broker(1, used=0.97), broker(2), broker(3)),
        "the volume of /logs of broker 1 is 97% full",
        "retention.bytes",
    ),
    HealthKind.DISK_FILLING: (
        with_brokers(broker(1, used=0.9), broker(2), broker(3)),
        "the volume of /logs of broker 1 is 90% full",
        "ottla reassign plan --even",
    ),
    HealthKind.SILENT_BROKER: (
        with_brokers(broker(1), broker(2), BrokerStatus(Node(3, "host3", 9092), problem="it hangs")),
        "broker 3 is registered and does not answer: it hangs",
        "host3:9092",
    ),
    HealthKind.ABSENT_BROKER: (
        cluster(partition(gone=(3,), isr=(1, 2)), brokers=TWO_LEFT),
        "broker 3 is not there, and has 1 replica",
        "ottla reassign plan --empty 3 --output moves.json",
    ),
    HealthKind.UNCLEAN_ELECTION: (
        loss(is_election=True), "leaders were elected that were not in sync: orders-0", "ottla cluster status",
    ),
    HealthKind.LOST_RECORDS: (
        loss(is_election=False), "replicas removed records that were acknowledged: orders-0", "ottla cluster status",
    ),
    HealthKind.LEADERS_NOT_PREFERRED: (
        cluster(partition(leader=2)),
        "1 partition not led by their preferred replicas",
        "ottla leader-election --all-topic-partitions",
    ),
    HealthKind.CROWDED_RACKS: (
        cluster(partition(replicas=(1, 2)), brokers=RACKED),
        "1 partition with more replicas in one rack than need be",
        "ottla reassign plan --racks",
    ),
    HealthKind.MISSING_RACK: (
        with_brokers(broker(1, "a"), broker(2, "b"), broker(3)),
        "broker 3 has no rack, and others have",
        "Set broker.rack of 3",
    ),
    HealthKind.DIFFERENT_SETTINGS: (
        replace(
            HEALTHY,
            settings={
                1: settings(num_replica_fetchers="1", log_dirs="/a"),
                2: settings(num_replica_fetchers="4", log_dirs="/b"),
            },
        ),
        "settings differ between brokers: num.replica.fetchers (1: 1, 2: 4)",
        "Give num.replica.fetchers one value",
    ),
    HealthKind.DIFFERENT_VERSIONS: (
        replace(HEALTHY, versions={1: {0: (0, 9)}, 2: {0: (0, 11)}, 3: {0: (0, 9)}}),
        "brokers are of different releases or makes: 1, 3 | 2",
        "Finish the upgrade",
    ),
    HealthKind.UNEVEN_LOAD: (
        with_brokers(broker(1, size=3 * GB), broker(2, size=GB), broker(3, size=2 * GB)),
        "brokers have more or fewer bytes than the mean: 1: +50%, 2: -50%",
        "ottla reassign plan --even",
    ),
    HealthKind.NO_SPARE_REPLICA: (
        cluster(partition(replicas=(1, 2), minimum=2)),
        "1 partition with no more replicas than min.insync.replicas",
        "ottla reassign plan --replication-factor 3 --topic orders",
    ),
}  # fmt: skip


def finding(facts: HealthFacts, kind: HealthKind, before: HealthFacts | None = None) -> ClusterFinding:
    (found,) = [each for each in judge(facts, before) if each.kind is kind]
    return found


def test_a_healthy_cluster_has_no_finding() -> None:
    assert judge(HEALTHY, HEALTHY) == []
    assert worst([]) is HealthLevel.NOTICE


def test_every_kind_is_tested_here() -> None:
    assert set(FOUND) == set(HealthKind)


@pytest.mark.parametrize("kind", HealthKind, ids=lambda kind: kind.slug)
def test_finding(kind: HealthKind) -> None:
    facts, what, cure = FOUND[kind]
    found = finding(facts, kind)
    assert what in found.what
    assert cure in found.cure
    assert found.cure.rstrip().endswith(".")
    assert found.row()["see"] == f"docs/operations.md#{kind.slug}"
    assert worst(judge(facts)) >= kind.level


# What tells one case from another


def test_two_looks_see_whether_replicas_catch_up() -> None:
    kind = HealthKind.LAGGING_REPLICAS
    behind, nearer = cluster(partition(isr=(1, 2), lag=70)), cluster(partition(isr=(1, 2), lag=7))
    assert "catching up" in finding(nearer, kind, behind).what
    assert finding(nearer, kind, behind).cure.startswith("Wait: broker 3 catches up")
    assert "not catching up" in finding(behind, kind, nearer).what
    assert "not catching up" in finding(behind, kind, behind).what


def test_acks_all_needs_no_more_replicas_than_there_are() -> None:
    """As in Apache Kafka: min.insync.replicas=2 refuses nothing where one replica is all that there is."""
    alone = cluster(partition(replicas=(1,), minimum=2), brokers=(broker(1),))
    assert HealthKind.UNDER_MIN_ISR not in {each.kind for each in judge(alone)}
    two = finding(cluster(partition(replicas=(1, 2), isr=(1,), minimum=3)), HealthKind.UNDER_MIN_ISR)
    assert "1 partition below min.insync.replicas" in two.what


def test_a_move_that_copies_is_not_stuck() -> None:
    kind = HealthKind.STUCK_REASSIGNMENT

    def moving(lag: int) -> HealthFacts:
        return cluster(partition(isr=(1, 2), adding=(3,), lag=lag))

    assert judge(moving(7)) == []
    assert judge(moving(7), moving(9)) == []
    assert "that have not copied anything meanwhile" in finding(moving(7), kind, moving(7)).what


def test_a_controller_that_changes_between_two_looks() -> None:
    after = with_status(HEALTHY, controller=2)
    assert "from broker 1 to broker 2" in finding(after, HealthKind.UNSETTLED_CONTROLLER, HEALTHY).what


NOT_FOUND: dict[str, Callable[[], HealthFacts]] = {
    "a topic of one replica that needs one": lambda: cluster(partition(replicas=(1,))),
    "an offset that an in-sync follower does not have yet": lambda: cluster(
        replace(partition(), replicas=(ReplicaStatus(1, True, lag=0), ReplicaStatus(2, True, lag=3)))
    ),
    "a leader of many that is elsewhere": lambda: cluster(partition(leader=2), *(partition(at) for at in range(1, 20))),
    "a leader that changes with a move": lambda: cluster(partition(leader=2, isr=(1, 2), adding=(3,), lag=3)),
    "racks that nobody has": lambda: cluster(partition(replicas=(1, 2))),
    "small brokers of different sizes": lambda: with_brokers(broker(1, size=5), broker(2, size=500), broker(3)),
    "settings that each broker has for itself": lambda: replace(
        HEALTHY, settings={1: settings(broker_id="1", listeners="x"), 2: settings(broker_id="2", listeners="y")}
    ),
    "defaults of two makes": lambda: replace(
        HEALTHY,
        settings={
            1: {"a": ConfigEntry("a", "1", "DEFAULT_CONFIG")},
            2: {"a": ConfigEntry("a", "2", "DEFAULT_CONFIG")},
        },
    ),
    "a disk whose size is not known": lambda: with_brokers(
        BrokerStatus(Node(1, "h", 1), {"/logs": LogDirDescription("/logs", {})}), broker(2), broker(3)
    ),
}


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_no_finding(name: str) -> None:
    assert judge(NOT_FOUND[name]()) == []


def test_the_worst_comes_first_and_many_partitions_are_not_all_named() -> None:
    facts = cluster(*(partition(at, leader=-1, isr=(3,), gone=(3,)) for at in range(8)), brokers=TWO_LEFT)
    found = judge(facts)
    assert [each.kind for each in found] == [HealthKind.OFFLINE_PARTITIONS, HealthKind.ABSENT_BROKER]
    assert found[0].what.endswith("orders-3, orders-4 and 3 more")
    assert len(found[0].partitions) == 8
    assert worst(found) is HealthLevel.CRITICAL


def test_the_disk_of_the_only_replica_in_sync_is_not_to_be_replaced() -> None:
    """With an empty one the records that nobody else has are lost."""
    offline = partition(replicas=(1, 2, 3), isr=(3,), leader=-1, gone=(3,))
    found = judge(cluster(offline, brokers=(broker(1), broker(2))), None)
    [absent] = [each for each in found if each.kind is HealthKind.ABSENT_BROKER]
    assert absent.cure == ("Start broker 3 again with its disk: no other live broker has all records of orders-0.")
    found = judge(cluster(offline, brokers=(broker(1), broker(2), broker(3, failed=True))), None)
    [failed] = [each for each in found if each.kind is HealthKind.FAILED_LOG_DIRECTORY]
    assert "replace" not in failed.cure
    assert "Repair the disk of /bad with what is on it" in failed.cure


def test_no_unclean_election_is_advised_where_no_other_replica_is_alive() -> None:
    found = judge(cluster(partition(replicas=(3,), isr=(3,), leader=-1, gone=(3,)), brokers=TWO_LEFT))
    assert found[0].kind is HealthKind.OFFLINE_PARTITIONS
    assert "leader-election" not in found[0].cure
    assert found[0].cure.endswith("; no other replica has any of them.")
