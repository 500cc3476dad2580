"""Roles of a broker's replicas, what they do to the high watermark, and what ends with them."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.replicas.manager import ReplicaManager
from ottla.broker.replicas.partition import Partition
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.isr import IsrProposal
from ottla.env.clock import VirtualClock
from ottla.storage.checkpoints import HIGH_WATERMARK_FILE
from ottla.storage.log import CLIENT, AppendInfo, AppendRefusal
from ottla.storage.manager import LogManager
from ottla.storage.upkeep import StorageSettings
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import NOW_MS, HandExecutor, batch, log_config

pytestmark = pytest.mark.spec("R2")

ROOT = "/data"
CONFIG = log_config()
TOPIC = TopicImage("t", UUID(int=7), (), {}, False)
BOTH = (1, 2)


class Setup:
    """A replica manager over logs in memory; nothing is forced to disk before `force`."""

    def __init__(self, disk: MemoryDisk | None = None, *, flush_on_ack: bool = False) -> None:
        self.disk = disk or MemoryDisk()
        self.executor = HandExecutor()
        settings = StorageSettings(flush_on_ack=flush_on_ack)
        self.logs = LogManager(self.disk, VirtualClock(NOW_MS), self.executor, [ROOT], lambda topic: CONFIG, settings)
        assert self.logs.open() is None
        self.replicas = ReplicaManager(self.logs, lambda: NOW_MS, flush_on_ack)
        self.logs.upkeep.on_flushed = self.replicas.flushed

    def lead(
        self, epoch: int = 0, replicas: tuple[int, ...] = (1,), isr: tuple[int, ...] | None = None, **settings: object
    ) -> Partition:
        state = PartitionImage(1, epoch, replicas, replicas if isr is None else isr)
        return self.replicas.make_leader(TOPIC, 0, state, log_config(**settings))

    def follow(self, epoch: int) -> Partition:
        return self.replicas.make_follower(TOPIC, 0, PartitionImage(2, epoch, BOTH, BOTH), CONFIG)

    def append(self, partition: Partition) -> AppendInfo:
        info = self.replicas.append(partition, batch(), CLIENT)
        assert isinstance(info, AppendInfo), info
        return info

    def force(self) -> None:
        while self.executor.works:
            self.executor.finish()


def awaited(partition: Partition, offset: int) -> list[ErrorCode]:
    reported: list[ErrorCode] = []
    partition.when_committed(offset, reported.append)
    return reported


def test_the_only_replica_commits_what_it_appends() -> None:
    setup = Setup()
    partition = setup.lead()
    setup.append(partition)
    assert partition.log.high_watermark == 3
    assert awaited(partition, 2) == [ErrorCode.NONE]
    assert partition.knows_its_end
    assert not setup.replicas.shared


class Roles(list[tuple[str, int, int | None]]):
    """What a listener was told."""

    def load(self, partition: int, leader_epoch: int) -> None:
        self.append(("led", partition, leader_epoch))

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        self.append(("not led", partition, leader_epoch))

    def take(self) -> list[tuple[str, int, int | None]]:
        told = list(self)
        self.clear()
        return told


@pytest.mark.spec("G11")
def test_a_listener_hears_of_each_role_in_its_topic() -> None:
    setup, roles = Setup(), Roles()
    setup.lead(epoch=3)
    setup.replicas.follow_roles("t", roles)
    assert roles.take() == [("led", 0, 3)], "the role that it has already"
    setup.lead(epoch=4)
    setup.follow(5)
    setup.lead(epoch=6)
    assert roles.take() == [("led", 0, 4), ("not led", 0, 5), ("led", 0, 6)]
    setup.replicas.stop("t", 0)
    setup.lead(epoch=7)
    setup.replicas.take_offline([("t", 0)])
    assert roles.take() == [("not led", 0, 6), ("led", 0, 7), ("not led", 0, 7)]
    setup.replicas.make_leader(TOPIC._replace(name="other"), 0, PartitionImage(1, 0, (1,), (1,)), CONFIG)
    assert roles == []


@pytest.mark.spec("G11")
def test_a_listener_hears_of_deletion_until_it_is_taken_away() -> None:
    setup, roles = Setup(), Roles()
    setup.replicas.follow_roles("t", roles)
    setup.lead(epoch=3)
    setup.replicas.delete("t", 0)
    assert roles.take() == [("led", 0, 3), ("not led", 0, None)]
    setup.replicas.follow_roles("t", None)
    setup.lead(epoch=0)
    assert roles == []


def test_a_leader_begins_its_epoch_at_the_logs_end_before_any_append() -> None:
    setup = Setup()
    partition = setup.lead(epoch=4)
    setup.append(partition)
    setup.lead(epoch=6)
    assert partition.log.epochs.entries == [(4, 0), (6, 3)]
    assert partition.leader is not None
    assert (partition.leader.epoch, partition.leader.start_offset) == (6, 3)


def test_after_a_start_everything_of_the_only_replica_is_committed_once_it_leads() -> None:
    setup = Setup()
    setup.append(setup.lead())
    setup.logs.close()
    setup.disk.remove(f"{ROOT}/{HIGH_WATERMARK_FILE}")  # as after a kill, nothing says how far it was committed
    again = Setup(setup.disk)
    log = again.logs.get("t", 0)
    assert log is not None
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    assert again.lead(epoch=1).log.high_watermark == 3


def test_appends_that_wait_for_the_disk_do_not_count_before() -> None:
    setup = Setup(flush_on_ack=True)
    partition = setup.lead()
    setup.append(partition)
    reported = awaited(partition, 2)
    forced: list[ErrorCode] = []
    partition.forced.add(2, forced.append)
    assert (partition.log.high_watermark, partition.own_end, reported, forced) == (0, 0, [], [])
    setup.force()
    assert (partition.log.high_watermark, partition.own_end, reported, forced) == (
        3,
        3,
        [ErrorCode.NONE],
        [ErrorCode.NONE],
    )
    assert not setup.replicas.held


def test_a_new_leader_that_answers_from_the_disk_forces_what_it_has() -> None:
    setup = Setup(flush_on_ack=True)
    partition = setup.lead()
    setup.append(partition)
    setup.follow(1)
    setup.lead(epoch=2)
    assert partition.log.high_watermark == 0
    assert not partition.knows_its_end, "a client may have seen more than this leader knows to be committed (KIP-207)"
    setup.force()
    assert partition.log.high_watermark == 3
    assert partition.knows_its_end


def fetched(partition: Partition, offset: int, now_ms: float = 0.0) -> None:
    partition.fetched(2, offset, 0, now_ms)


def test_a_small_isr_holds_the_high_watermark_until_a_follower_has_joined() -> None:
    setup = Setup()
    proposals: list[IsrProposal] = []
    setup.replicas.replication.propose = lambda _, proposal: proposals.append(proposal)
    partition = setup.lead(replicas=BOTH, isr=(1,), min_insync_replicas=2)
    assert partition in setup.replicas.shared
    setup.append(partition)
    reported = awaited(partition, 2)
    fetched(partition, 0)
    (proposal,) = proposals
    assert proposal == IsrProposal(0, 0, BOTH)
    fetched(partition, 3)
    assert (partition.log.high_watermark, reported) == (0, []), "the controller has not agreed yet"
    assert partition.isr_accepted(proposal, 0, 1, BOTH)
    assert (partition.log.high_watermark, reported) == (3, [ErrorCode.NONE])
    assert not partition.isr_accepted(proposal, 0, 1, BOTH), "an answer counts once"


@pytest.mark.parametrize("end", ["refused", "lagging"])
def test_who_did_not_join_the_isr_holds_nobody_back(end: str) -> None:
    """The others have all records by then, and fetch nothing that would move the high watermark."""
    now_ms = [0.0]
    setup = Setup()
    replication = setup.replicas.replication
    proposals: list[IsrProposal] = []
    replication.propose = lambda _, proposal: proposals.append(proposal)
    replication.monotonic_ms, replication.max_lag_ms = lambda: now_ms[0], 30_000
    partition = setup.lead(replicas=(1, 2, 3), isr=(1, 2), min_insync_replicas=2)
    fetched(partition, 0)
    partition.fetched(3, 0, 0, 0)
    (proposal,) = proposals
    if end == "lagging":
        assert not partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    setup.append(partition)
    reported = awaited(partition, 2)
    fetched(partition, 3)
    assert (partition.log.high_watermark, reported) == (0, []), "broker 3 was asked for, or is about to join"
    now_ms[0] = 40_000
    if end == "lagging":
        list(setup.replicas.check_lags())
    else:
        assert not partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert (partition.log.high_watermark, reported) == (3, [ErrorCode.NONE])


def test_a_follower_that_lacks_records_leaves_the_isr_after_the_allowed_lag() -> None:
    now_ms = [0.0]
    setup = Setup()
    replication = setup.replicas.replication
    replication.monotonic_ms, replication.max_lag_ms = lambda: now_ms[0], 30_000
    proposals: list[IsrProposal] = []
    replication.propose = lambda _, proposal: proposals.append(proposal)
    partition = setup.lead(replicas=BOTH)
    fetched(partition, 0)
    now_ms[0] = 90_000
    list(setup.replicas.check_lags())
    assert not proposals, "it was silent for long, and lacks nothing"
    setup.append(partition)
    reported = awaited(partition, 2)
    list(setup.replicas.check_lags())
    list(setup.replicas.check_lags())
    assert proposals == [IsrProposal(0, 0, (1,))], "one at a time"
    assert (partition.log.high_watermark, reported) == (0, [])
    assert partition.isr_refused(proposals[0], ErrorCode.REQUEST_TIMED_OUT), "it is sent again"
    assert partition.isr_accepted(proposals[0], 0, 1, (1,))
    assert (partition.log.high_watermark, reported) == (3, [ErrorCode.NONE])
    setup.follow(1)
    assert not partition.isr_refused(proposals[0], ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("change", ["follower", "follower and leader again", "stopped", "deleted", "offline"])
def test_who_waits_ends_with_the_role(change: str) -> None:
    setup = Setup()
    partition = setup.lead(replicas=BOTH, min_insync_replicas=2)
    setup.append(partition)
    reported, term = awaited(partition, 2), partition.term
    forced: list[ErrorCode] = []
    partition.forced.add(2, forced.append)
    if change.startswith("follower"):
        setup.follow(1)
        if change != "follower":
            setup.lead(epoch=2, replicas=BOTH)
    elif change == "stopped":
        assert setup.replicas.stop("t", 0)
    elif change == "deleted":
        assert setup.replicas.delete("t", 0)
    else:
        setup.replicas.take_offline([("t", 0)])
    error = ErrorCode.KAFKA_STORAGE_ERROR if change == "offline" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert reported == forced == [error]
    assert partition.term > term


def test_appends_wait_on_when_the_same_leader_enters_another_epoch() -> None:
    """As in Kafka: a producer that was told to try again would write the records twice."""
    setup = Setup()
    partition = setup.lead(replicas=BOTH, min_insync_replicas=2)
    setup.append(partition)
    reported, term = awaited(partition, 2), partition.term
    setup.lead(epoch=1, replicas=BOTH, min_insync_replicas=2)
    assert partition.term > term
    assert not reported
    fetched(partition, 3)
    assert reported == [ErrorCode.NONE]


def test_the_same_epoch_again_changes_nothing() -> None:
    setup = Setup()
    partition = setup.lead(replicas=BOTH, min_insync_replicas=2)
    setup.append(partition)
    reported, term, leader = awaited(partition, 2), partition.term, partition.leader
    setup.lead(replicas=BOTH, min_insync_replicas=2)
    assert (reported, partition.term, partition.leader) == ([], term, leader)


def test_a_follower_takes_no_appends_and_knows_what_the_leader_said() -> None:
    setup = Setup()
    partition = setup.lead()
    setup.append(partition)
    setup.follow(1)
    refusal = setup.replicas.append(partition, batch(), CLIENT)
    assert isinstance(refusal, AppendRefusal)
    assert refusal.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_leads(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_leads(0) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.check_epoch(1) is ErrorCode.NONE
    assert awaited(partition, 0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition.learn_high_watermark(2)
    assert partition.log.high_watermark == 2
    partition.learn_high_watermark(99)
    assert partition.log.high_watermark == 3, "never above its own end"


def test_stopping_keeps_the_log_and_deleting_takes_it() -> None:
    setup = Setup()
    partition = setup.lead()
    setup.append(partition)
    assert setup.replicas.stop("t", 0)
    # It has no role, and knows which leader epochs are past.
    assert setup.replicas.get("t", 0) is partition
    assert (partition.leader, partition.leader_epoch) == (None, 0)
    assert setup.logs.get("t", 0) is partition.log
    again = setup.lead(epoch=1)
    assert again is partition
    assert partition.leader is not None
    assert setup.replicas.delete("t", 0)
    assert setup.replicas.get("t", 0) is None
    assert setup.replicas.get_by_id(TOPIC.topic_id, 0) is None
    assert setup.logs.get("t", 0) is None
    assert not setup.replicas.stop("t", 0)
    assert not setup.replicas.delete("t", 0)


@pytest.mark.parametrize(
    ("client_epoch", "error"), [(-1, "NONE"), (5, "NONE"), (4, "FENCED_LEADER_EPOCH"), (6, "UNKNOWN_LEADER_EPOCH")]
)
def test_leader_epochs_fence(client_epoch: int, error: str) -> None:
    partition = Setup().lead(epoch=5)
    assert partition.check_epoch(client_epoch).name == error
    assert partition.check_leads(client_epoch).name == error
