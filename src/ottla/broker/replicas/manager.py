"""The replicas on this broker: roles, appends, flushes that are due, and the handling of disk errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ottla.broker.replicas.losses import LossReports
from ottla.broker.replicas.partition import Partition, Replication, is_report_due
from ottla.broker.replicas.traffic import KNOWN_OF_READS, TopicTraffic
from ottla.cluster.image import NO_LEADER
from ottla.config.topic import LONGEST, LogConfig
from ottla.storage.following import append_as_follower
from ottla.storage.results import AppendRefusal, FollowerAppend
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.replicas.fetching.fetchers import ReplicaFetcherManager
    from ottla.broker.replicas.moving import ReplicaMover
    from ottla.cluster.image import PartitionImage, TopicImage
    from ottla.storage.log import AppendInfo, PartitionLog
    from ottla.storage.manager import LogManager
    from ottla.storage.producer_state import Verification
    from ottla.storage.results import ReadRefusal

log = logging.getLogger("ottla.broker")

#: Partitions that background work looks at in one slice.
PARTITIONS_PER_SLICE = 1_000
#: No timer is armed for longer intervals of `flush.ms`: the flush of all logs comes first.
LATEST_FLUSH_MS = 24 * 3600 * 1000


class RoleListener(Protocol):
    """Learns of this broker's roles in the partitions of one topic, in the order in which they change."""

    def load(self, partition: int, leader_epoch: int) -> None:
        """Note that this broker leads the partition in `leader_epoch`, as it may have done before."""

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        """Note that this broker does not lead the partition in `leader_epoch`; None: its replica is deleted."""


class FlushTimer:
    """`flush.ms`: flushes a log this long after the first record that is not on the disk.

    There is one timer for each log with unflushed records and a `flush.ms` setting.
    """

    def __init__(self, clock_now_ms: Callable[[], int], flush: Callable[[Sequence[PartitionLog]], None]) -> None:
        self._now_ms = clock_now_ms
        self._flush = flush
        self._armed: dict[PartitionLog, asyncio.TimerHandle] = {}

    def appended(self, log: PartitionLog) -> None:
        """Make sure that the log is flushed in time."""
        if log.config.flush_ms <= LATEST_FLUSH_MS and log not in self._armed:
            self._arm(log)

    def _arm(self, log: PartitionLog) -> None:
        due_ms = log.unflushed.last_flush_ms + log.config.flush_ms
        seconds = max(due_ms - self._now_ms(), 0) / 1000
        self._armed[log] = asyncio.get_running_loop().call_later(seconds, self._expired, log)

    def _expired(self, log: PartitionLog) -> None:
        del self._armed[log]
        if log.closed or not log.unflushed.bytes or log.config.flush_ms > LATEST_FLUSH_MS:
            return
        if self._now_ms() - log.unflushed.last_flush_ms >= log.config.flush_ms:
            self._flush([log])
        else:
            self._arm(log)

    def stop(self) -> None:
        """Cancel all timers."""
        for handle in self._armed.values():
            handle.cancel()
        self._armed.clear()


class ReplicaManager:
    """All partitions of which this broker holds replicas, by name and by topic id.

    With `flush_on_ack` every append counts as committed only once it is on the disk; without it only those that
    `flush.messages` flushes. `logs` is asked to flush (it may do so later, for many appends at once), and `flushed`
    handles the outcome. `replication` is what its leaders need to know of the other brokers.
    """

    def __init__(
        self,
        logs: LogManager,
        clock_now_ms: Callable[[], int],
        flush_on_ack: bool = False,
        replication: Replication | None = None,
    ) -> None:
        self._logs = logs
        self.replication = replication if replication is not None else Replication(clock_now_ms)
        self.flush_timer = FlushTimer(clock_now_ms, logs.upkeep.flushes.add)
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}
        #: By topic, while there is a partition of it here.
        self.traffic: dict[str, TopicTraffic] = {}
        #: Bytes that followers here have copied, and that followers elsewhere have read here.
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self._now_ms = clock_now_ms
        self._flush_on_ack = flush_on_ack
        #: When the leaders look for followers that lag next.
        self._lags_due_ms = 0.0
        #: Partitions of this broker whose log directory has failed.
        self._offline: dict[str, set[int]] = {}
        #: `held`: partitions with appends that wait for the disk. `shared`: led partitions with other replicas. An
        #: append to any other partition is committed at once.
        self.held: set[Partition] = set()
        self.shared: dict[Partition, None] = {}
        self._listeners: dict[str, RoleListener] = {}
        #: Reports of lost records.
        self.losses = LossReports(clock_now_ms)
        #: Copies followed partitions from their leaders; None while there are none.
        self.fetchers: ReplicaFetcherManager | None = None
        #: Moves partitions to other log directories; None while none was moved.
        self.mover: ReplicaMover | None = None
        #: Makes it for the first moved partition; None in tests of single parts.
        self.make_mover: Callable[[], ReplicaMover] | None = None
        #: Makes it for the first followed partition; None in tests of single parts.
        self.make_fetchers: Callable[[], ReplicaFetcherManager] | None = None

    def __iter__(self) -> Iterator[Partition]:
        # Copies: some who iterate let others work meanwhile.
        for partitions in tuple(self._by_name.values()):
            yield from tuple(partitions.values())

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if this broker does not host it."""
        partitions = self._by_name.get(topic)
        return partitions.get(index) if partitions is not None else None

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        """As `get`, by topic id."""
        partitions = self._by_id.get(topic_id)
        return partitions.get(index) if partitions is not None else None

    @property
    def offline_count(self) -> int:
        """Number of partitions in failed log directories."""
        return sum(map(len, self._offline.values()))

    @property
    def move_lag(self) -> int:
        """The largest lag of a move between log directories, in records."""
        return self.mover.largest_lag if self.mover is not None else 0

    def hosts(self, topic: str | UUID, index: int) -> bool:
        """Whether the partition is online here; the topic is given by name or by id."""
        found = self.get(topic, index) if isinstance(topic, str) else self.get_by_id(topic, index)
        return found is not None

    def missing(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that is not online here, or has no role."""
        if self.is_offline(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.replication.exists(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # another broker's: the client is to look for its leader
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the partition is in a failed log directory of this broker."""
        return index in self._offline.get(topic, ())

    def topics(self) -> list[str]:
        """The names of the topics with partitions here, online or offline."""
        return list(dict.fromkeys((*self._by_name, *self._offline)))

    def indexes(self, topic: str) -> list[int]:
        """A topic's partitions here, online or offline."""
        return sorted((*self._by_name.get(topic, ()), *self._offline.get(topic, ())))

    # -- roles

    def follow_roles(self, topic: str, listener: RoleListener | None) -> None:
        """Tell `listener` which partitions of a topic are led here, and of each later change; None ends that."""
        self._listeners.pop(topic, None)
        if listener is None:
            return
        self._listeners[topic] = listener
        for partition in tuple(self._by_name.get(topic, {}).values()):
            if partition.leader is not None:
                listener.load(partition.index, partition.leader_epoch)

    def _tell_not_led(self, partition: Partition, leader_epoch: int | None) -> None:
        listener = self._listeners.get(partition.topic)
        if listener is not None:
            listener.unload(partition.index, leader_epoch)

    def make_leader(
        self,
        topic: TopicImage,
        index: int,
        state: PartitionImage,
        config: LogConfig,
        partition_epoch: int = 0,
        *,
        is_recovering: bool = False,
    ) -> Partition:
        """Become leader of the partition in `state.leader_epoch`; create its log if there is none.

        The epoch starts at the log end offset, which is recorded before any append. `partition_epoch` is the version of
        the state, `is_recovering` says that the leader was elected without being in sync (KIP-704). Raises DiskError.
        """
        partition = self.host(topic, index, config)
        if is_recovering and partition.leader is None:
            self.losses.elected(partition, state.leader, state.leader_epoch)
        self._stop_fetching(partition)
        hosted = partition.log
        # Others copy what a leader has: it must not go back to fill its gap once it is one of the ISR.
        hosted.gap_offset = None
        own_end = hosted.recovery_point if self._flush_on_ack else hosted.log_end_offset
        partition.lead(state, own_end, partition_epoch)
        assert partition.leader is not None
        if partition.leader.is_alone:
            self.shared.pop(partition, None)
        else:
            self.shared[partition] = None
        if own_end < hosted.log_end_offset:
            self._hold(partition)
        listener = self._listeners.get(topic.name)
        if listener is not None:
            listener.load(index, partition.leader_epoch)
        return partition

    def make_follower(self, topic: TopicImage, index: int, state: PartitionImage, config: LogConfig) -> Partition:
        """Follow `state.leader` in `state.leader_epoch`; create the log if there is none. Raises DiskError."""
        partition = self.host(topic, index, config)
        partition.follow(state)
        self._tell_not_led(partition, partition.leader_epoch)
        self.shared.pop(partition, None)
        self.held.discard(partition)
        if state.leader == NO_LEADER:
            self._stop_fetching(partition)
            return partition
        if self.fetchers is None and self.make_fetchers is not None:
            self.fetchers = self.make_fetchers()
        if self.fetchers is not None:
            self.fetchers.follow(partition, state.leader)
        return partition

    async def end_fetching(self) -> None:
        """Copy nothing any more, whatever roles are still to come: the broker stops."""
        self.make_fetchers = None
        if self.mover is not None:
            await self.mover.stop()
        if self.fetchers is not None:
            await self.fetchers.stop()

    def _stop_fetching(self, partition: Partition) -> None:
        if self.fetchers is not None:
            self.fetchers.forget(partition.topic, partition.index)

    def _stop_copying(self, partition: Partition) -> None:
        self._stop_fetching(partition)
        if self.mover is not None:
            self.mover.end(partition.topic, partition.index)

    def host(self, topic: TopicImage, index: int, config: LogConfig) -> Partition:
        """Hold the partition, in a role only if it has one; create its log if there is none. Raises DiskError.

        A topic without an id has the zero one.
        """
        topic_id = topic.topic_id if topic.topic_id.int else None
        hosted = self._logs.create(topic.name, topic_id, index, config)
        hosted.config = config
        partition = self.get(topic.name, index)
        if partition is None or partition.log is not hosted:
            partition = Partition(topic.name, topic.topic_id, index, hosted, topic.is_internal, self.replication)
            partition.traffic = self.traffic.setdefault(topic.name, partition.traffic)
            self._by_name.setdefault(topic.name, {})[index] = partition
        if topic_id is not None and topic_id not in self._by_id:
            partition.topic_id = topic_id
            self._by_id[topic_id] = self._by_name[topic.name]
        if self.make_mover is not None and self._logs.placement.futures.get((topic.name, index)) is not None:
            self.moves().resume(topic.name, index)
        return partition

    def moves(self) -> ReplicaMover:
        """The mover of partitions to other log directories, made for the first one."""
        if self.mover is None:
            assert self.make_mover is not None, "a broker has it"
            self.mover = self.make_mover()
        return self.mover

    def replace_log(self, topic: str, index: int, hosted: PartitionLog) -> None:
        """Have the partition use another log, which holds the same records."""
        partition = self.get(topic, index)
        if partition is not None:
            partition.log = hosted
            if partition in self.held:
                self._logs.upkeep.flushes.add([hosted])

    def stop(self, topic: str, index: int) -> bool:
        """Stop leading or following the partition, and keep its log and leader epoch; False: it is not here."""
        partition = self.get(topic, index)
        if partition is not None:
            self.held.discard(partition)
            self.shared.pop(partition, None)
            self._stop_copying(partition)
            partition.end_role(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._tell_not_led(partition, partition.leader_epoch)
        return partition is not None

    def delete(self, topic: str, index: int) -> bool:
        """Stop the partition and delete its log, online or offline; return False if there is none. Raises DiskError."""
        partition = self.get(topic, index)
        if partition is not None:
            self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._tell_not_led(partition, None)
        self.losses.forget(topic, index)
        offline = self._offline.get(topic, set())
        offline.discard(index)
        if not offline:
            self._offline.pop(topic, None)
        return self._logs.delete(topic, index)

    def take_offline(self, keys: Iterable[tuple[str, int]]) -> None:
        """Take the partitions of a failed log directory offline, and fail the requests that wait for them."""
        for topic, index in keys:
            self._offline.setdefault(topic, set()).add(index)
            partition = self.get(topic, index)
            if partition is not None:
                self._remove(partition, ErrorCode.KAFKA_STORAGE_ERROR)
                self._tell_not_led(partition, partition.leader_epoch)

    def _remove(self, partition: Partition, error: ErrorCode) -> None:
        partitions = self._by_name[partition.topic]
        del partitions[partition.index]
        if not partitions:
            del self._by_name[partition.topic]
            self.traffic.pop(partition.topic, None)
            self._by_id.pop(partition.topic_id, None)
        self.held.discard(partition)
        self.shared.pop(partition, None)
        self._stop_copying(partition)
        partition.end_role(error)

    def maintain_in_slices(self) -> Generator[None, None, None]:
        """Look for followers that lag, each half of `replica.lag.time.max.ms`, in slices."""
        now_ms = self.replication.monotonic_ms()
        if now_ms >= self._lags_due_ms:
            self._lags_due_ms = now_ms + self.replication.max_lag_ms / 2
            yield from self.check_lags()

    def check_lags(self) -> Generator[None, None, None]:
        """Have the leaders propose to remove followers that lag, in slices."""
        for count, partition in enumerate(tuple(self.shared), 1):
            if partition in self.shared:
                partition.check_lag(self.replication.monotonic_ms())
            if count % PARTITIONS_PER_SLICE == 0:
                yield

    # -- records

    def append(
        self,
        partition: Partition,
        records: memoryview,
        origin: int,
        *,
        records_checked: bool = False,
        verification: Verification | None = None,
    ) -> AppendInfo | AppendRefusal:
        """Append batches as leader; the high watermark advances at once, or after the flush and replication.

        `records_checked` and `verification` are those of `PartitionLog.append`.
        """
        leader = partition.leader
        if leader is None:
            return AppendRefusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.log.name} is not led here")
        hosted = partition.log
        before = hosted.log_end_offset
        now_ms = self._now_ms()
        info = hosted.append(
            records,
            None,
            leader_epoch=leader.epoch,
            now_ms=now_ms,
            origin=origin,
            records_checked=records_checked,
            verification=verification,
        )
        end = hosted.log_end_offset
        traffic = partition.traffic
        traffic.appends += 1
        if end != before:
            traffic.records_in += end - before
            traffic.bytes_in += len(records)
            if partition.watched_by or partition.waiting_followers:
                partition.wake_followers(len(records))
            config = hosted.config
            if config.flush_ms != LONGEST:
                self.flush_timer.appended(hosted)
            must_be_flushed = self._flush_on_ack or hosted.unflushed.records >= config.flush_messages
            if must_be_flushed:
                self._hold(partition)
            # Records after an append that waits for the disk count only after it.
            if must_be_flushed or partition in self.held:
                partition.hidden_bytes += len(records)
            elif leader.is_alone:
                partition.own_end = hosted.high_watermark = end
                if partition.waiting:
                    partition.wake(len(records))
            else:
                partition.own_end = end
                partition.hidden_bytes += len(records)
                partition.advance()
        if isinstance(info, AppendRefusal):
            traffic.refused(info.error, len(records))
            if info.error is ErrorCode.KAFKA_STORAGE_ERROR:
                _report(partition, info.message, now_ms)
                self._logs.suspect(hosted)
        return info

    def append_fetched(self, partition: Partition, records: memoryview) -> FollowerAppend | AppendRefusal:
        """Append what the leader of a followed partition sent, as it came."""
        hosted = partition.log
        now_ms = self._now_ms()
        done = append_as_follower(hosted, records, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        if isinstance(done, AppendRefusal):
            if done.error is ErrorCode.KAFKA_STORAGE_ERROR:
                self._logs.suspect(hosted)
        elif done.size:
            self.replication_bytes_in += done.size
            partition.hidden_bytes += done.size
            config = hosted.config
            if config.flush_ms != LONGEST:
                self.flush_timer.appended(hosted)
            if self._flush_on_ack or hosted.unflushed.records >= config.flush_messages:
                partition.own_end = 0
                self._hold(partition)
        return done

    def _hold(self, partition: Partition) -> None:
        """Make all records of the log wait for the disk before they count."""
        partition.forced_to = partition.log.log_end_offset
        self.held.add(partition)
        self._logs.upkeep.flushes.add([partition.log])

    def read_refused(self, partition: Partition, refusal: ReadRefusal) -> None:
        """Handle a failed read: report it to the operator if the disk or damaged data is the cause."""
        partition.traffic.failed_reads += refusal.error not in KNOWN_OF_READS
        if refusal.error is ErrorCode.KAFKA_STORAGE_ERROR:
            _report(partition, refusal.message, self._now_ms())
            self._logs.suspect(partition.log)
        elif refusal.error is ErrorCode.CORRUPT_MESSAGE:
            _report(partition, refusal.message, self._now_ms(), "cannot give records")

    def flushed(self, log: PartitionLog, size: int, error: BaseException | None) -> None:
        """Handle the completion of a flush (`size` bytes), or its failure (`error`)."""
        partition = self.get(log.topic, log.partition)
        if partition is None or partition.log is not log or partition not in self.held:
            return
        if error is not None:
            _report(partition, str(error), self._now_ms())
            partition.forced.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            partition.committed.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        reached = log.recovery_point
        if reached >= partition.forced_to:
            self.held.discard(partition)
            reached = log.log_end_offset
        partition.own_end = max(partition.own_end, reached)
        partition.forced.reached(partition.own_end)
        partition.advance()


def _report(partition: Partition, message: str, now_ms: int, trouble: str = "refuses records") -> None:
    """Log a partition's disk error, at intervals and not for every request."""
    if is_report_due(partition.reported_ms, now_ms):
        partition.reported_ms = now_ms
        log.error("partition %s-%d %s: %s", partition.topic, partition.index, trouble, message)
