from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from uuid import UUID

import pytest

from ottla.broker.control.adoption import PartitionDirectories
from ottla.broker.control.coordination import ClusterSession
from ottla.broker.control.metadata_publisher import NoHost
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.startup import Startup, generate_broker_id
from ottla.cluster.adoption import UNLIMITED_RETENTION, AdoptablePartition
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.ids import format_uuid
from ottla.cluster.image import ImageDelta, PartitionImage, RoleAction, hosted_changes
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import GROUP_METADATA_TOPIC, REBALANCE_EVIDENCE_TOPIC, TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import VirtualClock
from ottla.env.disk import Disk, DiskError
from ottla.env.randomness import Randomness
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore
from ottla.zk.tree import Operation, Result

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
CLOCK = VirtualClock(1_700_000_000_000)


class Folders(PartitionDirectories):
    """Log folders with settings beside them, and the mark of an adoption."""

    def __init__(self, settings: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.settings = settings or {}
        self.adopting: str | None = None

    def settings_of(self, topic: str, topic_id: UUID | None, partitions: Iterable[int]) -> Mapping[str, str] | None:
        return self.settings.get(topic)

    def is_adopting(self, cluster_id: str) -> bool:
        return self.adopting == cluster_id

    def begin_adopting(self, cluster_id: str) -> None:
        self.adopting = cluster_id

    def end_adopting(self) -> None:
        self.adopting = None


class RecordingHost(NoHost):
    """Notes what a broker is to host; fails over topics when told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.fails_to_begin = self.fails_to_end = False

    async def begin(self, delta: ImageDelta) -> None:
        new = names(delta, RoleAction.LEAD)
        if new and self.fails_to_begin:
            raise storage_error()
        self.begun.extend(new)

    async def end(self, delta: ImageDelta) -> None:
        gone = names(delta, RoleAction.DELETE)
        if gone and self.fails_to_end:
            raise storage_error()
        self.ended.extend(gone)


def names(delta: ImageDelta, action: RoleAction) -> list[str]:
    """The partitions with which broker 7 has to do this."""
    changes = [change for topic in delta.topics for change in hosted_changes(topic, 7)]
    return [f"{change.topic.name}-{change.partition}" for change in changes if change.action is action]


class Cluster:
    """A broker's topics over a disk, with a subscriber that notes what it is told."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        broker_id: int = 7,
        settings: dict[str, str] | None = None,
        stored_cluster_id: str | None = None,
        found: Sequence[tuple[str, UUID | None, int, int]] = (),
        directories: Folders | None = None,
        is_shared: bool = False,
    ) -> None:
        config = parse_broker_config({"broker.id": str(broker_id), **(settings or {})})
        assert isinstance(config, BrokerConfig)
        self.store = TreeStore.open(disk if disk is not None else MemoryDisk(), "/t", CLOCK)
        self.zk = LocalClient(self.store)
        self.directories = directories or Folders()
        self.directories.found = [AdoptablePartition(*one) for one in found]
        self.control = ControlPlane(
            ClusterSession(self.zk, is_shared=is_shared),
            config,
            broker_id=broker_id,
            endpoints=[ENDPOINT],
            clock=CLOCK,
            randomness=Randomness(5),
        )
        self.control.publisher.host = self.host = RecordingHost()
        self.startup = Startup(self.control, stored_cluster_id=stored_cluster_id, directories=self.directories)
        #: The names of the topics after each change.
        self.topics: list[set[str]] = []
        self.control.publisher.subscribe(lambda delta: self.topics.append(set(self.control.image.topics)))

    async def started(self) -> Cluster:
        assert await self.startup.start() is None
        return self

    async def made(self, name: str, partitions: int = 1) -> None:
        assert isinstance(await self.control.admin.create_topic(TopicSpec(name, partitions)), TopicCreated)

    def nodes(self, prefix: str) -> list[str]:
        return sorted(path for path in self.store.tree.nodes if path.startswith(prefix))


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def storage_error() -> DiskError:
    return DiskError("open", "/logs/x-0", errno.ENOSPC)


def test_a_new_cluster() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        image = cluster.control.image
        assert len(image.cluster_id) == 22
        assert (image.controller_id, list(image.brokers)) == (7, [7])
        assert image.brokers[7].endpoint("PLAINTEXT") == ENDPOINT
        assert image.brokers[7].endpoint("OTHER") is None
        assert cluster.topics == [set()]
        assert cluster.store.tree.get("/controller_epoch").data == b"1"

    run(scenario())


def test_a_topic_is_usable_when_it_was_made() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        made = await cluster.control.admin.create_topic(TopicSpec("t", 2, 1, configs={"retention.ms": "5"}))
        assert isinstance(made, TopicCreated)
        assert made.log_config.retention_ms == 5
        topic = cluster.control.image.topics["t"]
        assert topic.partitions == (PartitionImage(7, 0, (7,), (7,)),) * 2
        assert cluster.control.image.topic_names[topic.topic_id] == "t"
        assert cluster.control.topic_configs.log_config("t").retention_ms == 5
        assert cluster.topics == [set(), {"t"}]
        assert cluster.host.begun == ["t-0", "t-1"]

    run(scenario())


def test_everything_is_there_after_a_restart() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        first = await Cluster(disk).started()
        await first.made("t", 3)
        await first.made("gone")
        await first.control.admin.create_partitions("t", 5)
        await first.control.admin.delete_topic("gone")
        assert await first.control.producer_ids.next() == 0
        # Killed: nothing is closed.
        second = await Cluster(disk, stored_cluster_id=first.control.cluster_id).started()
        assert second.control.image.topics == first.control.image.topics
        assert second.control.cluster_id == first.control.cluster_id
        assert await second.control.producer_ids.next() == 1000
        assert second.store.tree.get("/controller_epoch").data == b"2"

    run(scenario())


def test_a_directory_of_another_cluster_is_refused() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        known = (await Cluster(disk).started()).control.cluster_id
        refusal = await Cluster(disk, stored_cluster_id="other", settings={"log.dirs": "/d"}).startup.start()
        assert refusal is not None
        assert refusal.error is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert refusal.message.startswith(
            f"Invalid cluster.id in: /d/meta.properties. Expected {known}, but read other."
        )

    run(scenario())


def test_the_directories_cluster_id_is_taken_into_empty_metadata() -> None:
    async def scenario() -> None:
        cluster = Cluster(stored_cluster_id="sMRGDLxiQcKT7YVaSQ2l3g")
        assert await cluster.startup.resolve_cluster_id() == "sMRGDLxiQcKT7YVaSQ2l3g"
        await cluster.started()
        assert cluster.control.image.cluster_id == "sMRGDLxiQcKT7YVaSQ2l3g"

    run(scenario())


def test_directories_that_only_look_like_partitions_are_not_adopted() -> None:
    async def scenario() -> None:
        found = [("backup", None, 20_241_121, -1), ("my data", None, 1, -1), ("orders", None, 0, -1)]
        cluster = await Cluster(found=found).started()
        assert list(cluster.control.image.topics) == ["orders"]
        assert [one.topic for one in cluster.startup.strays] == ["backup", "my data"]

    run(scenario())


def test_topics_are_adopted_from_their_directories() -> None:
    async def scenario() -> None:
        known = UUID(int=77)
        found = [("old", known, 2, 5), ("old", known, 0, -1), (GROUP_METADATA_TOPIC, None, 0, 3)]
        cluster = await Cluster(found=found).started()
        topics = cluster.control.image.topics
        assert topics["old"].topic_id == known
        assert [partition.leader_epoch for partition in topics["old"].partitions] == [0, 0, 5]
        assert topics[GROUP_METADATA_TOPIC].configs["cleanup.policy"] == "compact"
        assert topics[GROUP_METADATA_TOPIC].is_internal
        assert cluster.topics == [{"old", GROUP_METADATA_TOPIC}]
        assert "/brokers/topics/old/partitions/2/state" in cluster.store.tree.nodes
        assert cluster.startup.strays == []
        assert cluster.directories.adopting is None

    run(scenario())


def test_adopted_topics_are_kept_whole_until_their_settings_are_given(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        settings = {"log.cleanup.policy": "compact", "log.retention.ms": "1000", "log.retention.bytes": "1"}
        cluster = await Cluster(disk, settings=settings, found=[("old", None, 0, -1)]).started()
        for adopted in (cluster, await Cluster(disk, settings=settings).started()):
            assert adopted.control.image.topics["old"].configs == UNLIMITED_RETENTION
            kept = adopted.control.topic_configs.log_config("old")
            assert (kept.retention_ms, kept.retention_bytes, kept.compact) == (-1, -1, False)
        [told] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert told.startswith("1 topics were adopted from log directories, and their settings are not known: old. ")
        assert "kafka-configs.sh --bootstrap-server h:9092 --alter --entity-type topics --entity-name old" in told

    run(scenario())


def test_settings_beside_the_records_hold_again_for_adopted_topics(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        directories = Folders({"old": {"cleanup.policy": "compact"}, "plain": {}})
        found = [("old", None, 0, -1), ("plain", None, 0, -1)]
        cluster = await Cluster(directories=directories, found=found).started()
        configs = {name: topic.configs for name, topic in cluster.control.image.topics.items()}
        assert configs == {"old": {"cleanup.policy": "compact"}, "plain": {}}
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    run(scenario())


def test_directories_are_stray_where_the_tree_has_topics() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await (await Cluster(disk).started()).made("t")
        found = [("t", None, 0, -1), ("t", None, 1, -1), ("old", None, 0, -1)]
        again = await Cluster(disk, found=found).started()
        assert list(again.control.image.topics) == ["t"]
        assert [(one.topic, one.partition) for one in again.startup.strays] == [("t", 1), ("old", 0)]

    run(scenario())


@pytest.mark.parametrize("is_shared", [False, True])
def test_directories_are_stray_in_a_shared_tree_in_which_a_broker_was(is_shared: bool) -> None:
    """Without topics, too: they may have been deleted. Nobody but this broker can have been in a tree of its own."""

    async def scenario() -> None:
        disk = MemoryDisk()
        first = await Cluster(disk, is_shared=is_shared).started()
        await first.zk.create("/brokers/ids/8")
        await first.zk.delete("/brokers/ids/8")
        again = await Cluster(disk, found=[("old", None, 0, -1)], is_shared=is_shared).started()
        assert ("old" in again.control.image.topics, len(again.startup.strays)) == (not is_shared, int(is_shared))

    run(scenario())


def test_an_adoption_that_was_interrupted_is_finished() -> None:
    async def scenario() -> None:
        disk = FaultyDisk(MemoryDisk())
        directories = Folders()
        found = [("a", None, 0, -1), ("b", None, 0, -1)]
        cluster = Cluster(disk, directories=directories, found=found, is_shared=True)
        multi = cluster.zk.multi

        async def fails_at_b(operations: Sequence[Operation]) -> tuple[Result, ...]:
            if any(operation.path == "/brokers/topics/b" for operation in operations):
                raise storage_error()
            return await multi(operations)

        cluster.zk.multi = fails_at_b  # type: ignore[method-assign]
        with pytest.raises(DiskError):
            await cluster.startup.start()
        await cluster.control.close()
        assert directories.adopting == cluster.control.cluster_id
        again = await Cluster(disk, directories=directories, found=found, is_shared=True).started()
        assert list(again.control.image.topics) == ["a", "b"]
        assert directories.adopting is None

    run(scenario())


def test_a_second_broker_with_the_same_id_is_refused() -> None:
    async def scenario() -> None:
        first = await Cluster().started()
        config = parse_broker_config({"broker.id": "7"})
        assert isinstance(config, BrokerConfig)
        session = ClusterSession(LocalClient(first.store, 2))
        again = ControlPlane(session, config, broker_id=7, endpoints=[ENDPOINT], clock=CLOCK, randomness=Randomness(6))
        refusal = await Startup(again).start()
        assert refusal is not None
        assert refusal.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "another broker.id" in refusal.message

    run(scenario())


def test_a_damaged_znode_refuses_to_start() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        cluster = await Cluster(disk).started()
        await cluster.made("t")
        await cluster.zk.set("/brokers/topics/t", b"{}")
        refusal = await Cluster(disk).startup.start()
        assert refusal is not None
        assert "/brokers/topics/t" in refusal.message

    run(scenario())


def test_partitions_of_brokers_that_are_gone_have_no_leader() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        await (await Cluster(disk).started()).made("t")
        other = await Cluster(disk, broker_id=8).started()
        # Written, as Apache Kafka does, so that whoever leads later does so in an epoch of its own.
        assert other.control.image.topics["t"].partitions[0] == PartitionImage(-1, 1, (7,), (7,))
        assert b'"leader":-1' in (other.store.tree.get("/brokers/topics/t/partitions/0/state").data or b"")

    run(scenario())


def test_a_replica_in_sync_takes_over_leadership() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        cluster = await Cluster(disk).started()
        await cluster.made("t")
        state = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":4,"isr":[7]}'
        await cluster.zk.set("/brokers/topics/t/partitions/0/state", state)
        again = await Cluster(disk).started()
        assert again.control.image.topics["t"].partitions[0] == PartitionImage(7, 5, (7,), (7,))
        assert b'"leader_epoch":5' in (again.store.tree.get("/brokers/topics/t/partitions/0/state").data or b"")

    run(scenario())


def test_validating_only_changes_nothing() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        before = dict(cluster.store.tree.nodes)
        made = await cluster.control.admin.create_topic(TopicSpec("t", 2, 1), validate_only=True)
        assert isinstance(made, TopicCreated)
        assert len(made.topic.partitions) == 2
        assert cluster.store.tree.nodes == before
        assert len(cluster.topics) == 1

    run(scenario())


def test_a_log_that_cannot_be_made_takes_the_topic_back() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        before = cluster.nodes("/")

        cluster.host.fails_to_begin = True
        refusal = await cluster.control.admin.create_topic(TopicSpec("t"))
        assert isinstance(refusal, TopicRefusal)
        assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "/logs/x-0" in refusal.message
        assert "t" not in cluster.control.image.topics
        assert cluster.host.ended == ["t-0"], "what was made is to be removed again"
        assert cluster.nodes("/") == before

    run(scenario())


def test_partitions_that_cannot_be_made_are_taken_back() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        await cluster.made("t", 2)
        before = cluster.nodes("/")

        cluster.host.fails_to_begin = True
        refusal = await cluster.control.admin.create_partitions("t", 4)
        assert refusal is not None
        assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(cluster.control.image.topics["t"].partitions) == 2
        assert cluster.nodes("/") == before

    run(scenario())


def test_a_tree_that_cannot_be_written_changes_nothing() -> None:
    async def scenario() -> None:
        disk = FaultyDisk(MemoryDisk())
        cluster = await Cluster(disk).started()
        await cluster.made("t", 2)
        before, version = cluster.nodes("/"), cluster.control.image.version
        disk.capacity = 0
        for refusal in (
            await cluster.control.admin.create_topic(TopicSpec("u")),
            await cluster.control.admin.create_partitions("t", 4),
            await cluster.control.admin.delete_topic("t"),
        ):
            assert isinstance(refusal, TopicRefusal)
            assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.nodes("/") == before
        assert cluster.control.image.version == version
        disk.heal()
        assert await cluster.control.admin.delete_topic("t") is None

    run(scenario())


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        cluster = await Cluster(disk).started()
        await cluster.made("t")

        cluster.host.fails_to_end = True
        refusal = await cluster.control.admin.delete_topic("t")
        assert refusal is not None
        assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        again = await cluster.control.admin.create_topic(TopicSpec("t"))
        assert again == TopicRefusal(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' is marked for deletion.")

        restarted = await Cluster(disk, found=[("t", None, 0, -1)]).started()
        assert restarted.topics == [{"t"}, set()], "its logs are known, then deleted"
        assert restarted.nodes("/admin/delete_topics/") == []
        assert restarted.nodes("/brokers/topics/") == []
        await restarted.made("t")

    run(scenario())


def test_deletion_can_be_switched_off() -> None:
    async def scenario() -> None:
        cluster = await Cluster(settings={"delete.topic.enable": "false"}).started()
        await cluster.made("t")
        refusal = await cluster.control.admin.delete_topic("t")
        assert refusal == TopicRefusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")

    run(scenario())


@pytest.mark.spec("L1")
def test_topics_made_on_demand_have_the_brokers_defaults() -> None:
    async def scenario() -> None:
        cluster = await Cluster(settings={"num.partitions": "4", "offsets.topic.num.partitions": "9"}).started()
        assert await cluster.control.admin.ensure_topic("t") is None
        assert await cluster.control.admin.ensure_topic("t") is None
        assert await cluster.control.admin.ensure_topic(GROUP_METADATA_TOPIC) is None
        assert await cluster.control.admin.ensure_topic(REBALANCE_EVIDENCE_TOPIC) is None
        sizes = {name: len(topic.partitions) for name, topic in cluster.control.image.topics.items()}
        assert sizes == {"t": 4, GROUP_METADATA_TOPIC: 9, REBALANCE_EVIDENCE_TOPIC: 1}
        refusal = await cluster.control.admin.ensure_topic("bad name")
        assert refusal is not None
        assert refusal.error is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario())


def test_a_replication_factor_that_was_set_is_not_lowered() -> None:
    async def scenario() -> None:
        cluster = await Cluster(settings={"offsets.topic.replication.factor": "3"}).started()
        refusal = await cluster.control.admin.ensure_topic(GROUP_METADATA_TOPIC)
        assert refusal == TopicRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 3 larger than available brokers: 1."
        )

    run(scenario())


def test_settings_that_are_not_understood_any_more_are_passed_over() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        cluster = await Cluster(disk).started()
        await cluster.made("t")
        await cluster.zk.set("/config/topics/t", b'{"version":1,"config":{"segment.bytes":"5","future":"x"}}')
        again = await Cluster(disk).started()
        assert again.control.image.topics["t"].configs == {"segment.bytes": "5", "future": "x"}
        assert again.control.topic_configs.log_config("t").segment_bytes == 1 << 30

    run(scenario())


def test_changes_at_the_same_time_do_not_mix() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        results = await asyncio.gather(*(cluster.control.admin.create_topic(TopicSpec("t")) for _ in range(5)))
        assert sum(isinstance(result, TopicCreated) for result in results) == 1
        ids = await asyncio.gather(*(cluster.control.producer_ids.next() for _ in range(2500)))
        assert sorted(ids) == list(range(2500))

    run(scenario())


def test_leaving_removes_what_says_that_we_are_here() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        assert cluster.nodes("/brokers/ids/") == ["/brokers/ids/7"]
        await cluster.control.close()
        assert cluster.nodes("/brokers/ids/") == []
        assert cluster.nodes("/controller") == ["/controller_epoch"]

    run(scenario())


@pytest.mark.spec("Z3")
def test_broker_ids_are_generated_above_the_reserved_ones() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        config = parse_broker_config({})
        assert isinstance(config, BrokerConfig)
        assert await generate_broker_id(Cluster(disk).zk, config) == 1001
        assert await generate_broker_id(Cluster(disk).zk, config) == 1002

    run(scenario())


def test_topic_ids_never_begin_with_a_dash() -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        for number in range(200):
            await cluster.made(f"t{number}")
        ids = [format_uuid(topic.topic_id) for topic in cluster.control.image.topics.values()]
        assert len(set(ids)) == 200
        assert not any(text.startswith("-") for text in ids)

    run(scenario())


@pytest.mark.parametrize(
    ("seen_in_logs", "first"), [(-1, 0), (0, 1_001_000), (999, 1_001_000), (1000, 1_002_000), (2**63 - 2, 0)]
)
def test_the_first_producer_ids_lie_far_above_those_that_adopted_logs_know(seen_in_logs: int, first: int) -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        config = parse_broker_config({"broker.id": "8"})
        assert isinstance(config, BrokerConfig)
        topics = ControlPlane(
            ClusterSession(LocalClient(cluster.store, 2)),
            config,
            broker_id=8,
            endpoints=[ENDPOINT],
            clock=CLOCK,
            randomness=Randomness(5),
            highest_producer_id=seen_in_logs,
        )
        assert await topics.producer_ids.next() == first
        # Once the tree has a block, it alone counts.
        assert await cluster.control.producer_ids.next() == first + 1000

    run(scenario())


def retention_of(value: str | None) -> Callable[[Mapping[str, str]], dict[str, str]]:
    """A change of `retention.ms`; None removes it."""
    return lambda present: {
        **{name: old for name, old in present.items() if name != "retention.ms"},
        **({} if value is None else {"retention.ms": value}),
    }


@pytest.mark.spec("L4")
def test_settings_change_with_their_logs() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        cluster = await Cluster(disk).started()
        await cluster.made("t")
        told: list[tuple[str, int]] = []
        cluster.control.topic_configs.subscribe(lambda name, config: told.append((name, config.retention_ms)))
        change = cluster.control.topic_configs.change
        assert await change("t", retention_of("5"), validate_only=True) is None
        assert (told, cluster.nodes("/config/changes/")) == ([], [])
        assert await change("t", retention_of("5"), validate_only=False) is None
        assert (await cluster.zk.get("/config/topics/t"))[0] == b'{"version":1,"config":{"retention.ms":"5"}}'
        assert await change("t", retention_of("5"), validate_only=False) is None
        assert len(cluster.nodes("/config/changes/")) == 1
        assert (await Cluster(disk).started()).control.image.topics["t"].configs == {"retention.ms": "5"}
        assert await change("t", retention_of(None), validate_only=False) is None
        assert told == [("t", 5), ("t", 604_800_000)]
        assert cluster.control.image.topics["t"].configs == {}

    run(scenario())


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    ("topic", "name", "value", "error"),
    [
        ("nope", "retention.ms", "5", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", "retention.ms", "x", ErrorCode.INVALID_CONFIG),
        ("t", "nonsense", "5", ErrorCode.INVALID_CONFIG),
        ("t", "follower.replication.throttled.replicas", "0:1," * 9_000, ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_are_refused_change_nothing(topic: str, name: str, value: str, error: ErrorCode) -> None:
    async def scenario() -> None:
        cluster = await Cluster().started()
        await cluster.made("t")
        refusal = await cluster.control.topic_configs.change(topic, lambda _: {name: value}, validate_only=False)
        assert refusal is not None
        assert refusal.error is error
        assert (cluster.control.image.topics["t"].configs, cluster.nodes("/config/changes/")) == ({}, [])
        refusal = await cluster.control.admin.create_topic(TopicSpec("u", configs={name: value}))
        assert isinstance(refusal, TopicRefusal) is (error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    run(scenario())


@pytest.mark.spec("L4")
def test_settings_that_the_disk_does_not_take_do_not_hold() -> None:
    async def scenario() -> None:
        disk = FaultyDisk(MemoryDisk())
        cluster = await Cluster(disk).started()
        await cluster.made("t")
        disk.fail("write", "*", errno.ENOSPC)
        refusal = await cluster.control.topic_configs.change("t", retention_of("5"), validate_only=False)
        assert refusal is not None
        assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.control.topic_configs.log_config("t").retention_ms == 604_800_000
        disk.heal()
        assert await cluster.control.topic_configs.change("t", retention_of("5"), validate_only=False) is None

    run(scenario())
