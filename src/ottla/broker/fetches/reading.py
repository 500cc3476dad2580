"""Reads the partitions of one fetch, and says of each what the response holds of it."""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import CLUSTER_ACTION, CONSUMER_REPLICA_ID
from ottla.broker.cold_reads import MOST_ROUNDS, bring_in
from ottla.broker.context import RequestContext
from ottla.broker.fetch_sessions import SessionPartition, TopicKey
from ottla.broker.fetches.rack_reads import nearest_follower
from ottla.broker.fetches.requested import (
    BATCHES_SINCE,
    FOLLOWERS_SINCE,
    PARTITIONS_PER_SLICE,
    WHOLE_BATCH_SINCE,
    ZSTD_SINCE,
    BegunFetch,
    code_for_version,
    is_debugging,
    replica_id,
)
from ottla.broker.fetches.results import (
    UNKNOWN,
    Found,
    diverged,
    failed,
    not_converted,
    offsets_only,
    release,
    success,
    unknown,
)
from ottla.broker.quotas.replication import LeaderThrottle
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.traffic import TopicTraffic
from ottla.cluster.acls import Operation, ResourceType
from ottla.env.warmth import ColdRange, Range, without_waiting
from ottla.storage.log import ReadRefusal
from ottla.storage.results import LogRead
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest, PartitionData


class FetchedSoFar:
    """The data read so far for one response."""

    __slots__ = ("at_once", "budget", "cold", "found", "sizes", "throttle", "total")

    def __init__(self, budget: int) -> None:
        #: Bytes of records that may still be added.
        self.budget = budget
        self.found: Found = []
        #: Ranges that must be in the page cache before the response can be made.
        self.cold: list[Range] = []
        #: Bytes of records, in all and of each partition that has some.
        self.total = 0
        self.sizes: list[tuple[TopicTraffic, int]] = []
        #: Of a follower: limits the records of throttled partitions; None if there are none.
        self.throttle: LeaderThrottle | None = None
        #: Whether to reply at once: there is an error or, as in Kafka, data at the end of an older segment, which will
        #: not grow.
        self.at_once = False


class FetchReader:
    """Reads what one fetch asks for, now and once more after its wait; it knows who asks."""

    __slots__ = (
        "_context",
        "_incremental",
        "_is_debugging",
        "_rack",
        "_replica_id",
        "_request",
        "_terms",
        "followed_session",
        "is_follower",
        "is_late",
        "wanted",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, begun: BegunFetch) -> None:
        self._context = context
        self._request = request
        self._replica_id = replica_id(request)
        #: Whether a broker asks.
        self.is_follower = self._replica_id > CONSUMER_REPLICA_ID
        #: Whether it reads to the end of the log, of any replica.
        self._is_debugging = is_debugging(request)
        #: The rack of a consumer that should learn of followers there; empty for any other.
        self._rack = ""
        if request.rack_id and context.broker.rack_reads.names_followers and not self.is_follower:
            self._rack = request.rack_id
        #: The partitions to read.
        self.wanted = begun.wanted
        session = begun.session
        #: The session of a follower, which says what there is to read.
        self.followed_session = session if session is not None and session.due is not None else None
        self._incremental = begun.is_incremental
        #: Whether it has waited: what a follower has was noted when its fetch came.
        self.is_late = False
        #: The role and leader epoch (`term`) of each partition at the start of the wait.
        self._terms: dict[SessionPartition, int] | None = None

    def begin_late(self) -> None:
        """The wait is over: what has changed is read now."""
        self.is_late = True
        if self.followed_session is not None:
            self.wanted = self.followed_session.to_read(self._context.broker.clock.monotonic_ms())

    def _new_reading(self) -> FetchedSoFar:
        budget = min(self._request.max_bytes, self._context.broker.fetch_max_bytes)
        if self._context.charge is not None:
            budget = min(budget, self._context.charge.window_bytes or budget)
        return FetchedSoFar(budget)

    def bind_each(self) -> None:
        """As `bind`, for each partition when it is read: it may take long until all are."""
        self._terms = {}

    def bind(self) -> None:
        """Remember roles and leader epochs: a partition whose role or epoch changes is answered with an error."""
        if self._terms is None:
            found = ((wanted, self.find(wanted)) for wanted in self.wanted)
            self._terms = {wanted: partition.term for wanted, partition in found if partition is not None}

    def read_all(self) -> FetchedSoFar:
        """Read all partitions. Raises ColdRange if the loop would have to wait for the disk."""
        reading = self._new_reading()
        for wanted in self.wanted:
            self._read(wanted, reading)
        if reading.cold:
            release(reading.found)
            self.bind()
            raise ColdRange(reading.cold)
        return reading

    async def read_in_slices(self) -> FetchedSoFar:
        """As `read_all` for many partitions; waits until cold ranges are in the page cache."""
        reading = self._new_reading()
        is_complete = False
        try:
            for rounds_left in range(MOST_ROUNDS - 1, -1, -1):
                for start in range(0, len(self.wanted), PARTITIONS_PER_SLICE):
                    await self._context.broker.slices.point()
                    some = self.wanted[start : start + PARTITIONS_PER_SLICE]
                    if rounds_left:
                        without_waiting(partial(self._read_some, some, reading))
                    else:
                        self._read_some(some, reading)
                if not reading.cold:
                    is_complete = True
                    return reading
                cold = reading.cold
                release(reading.found)
                reading = self._new_reading()
                await bring_in(self._context, cold)
        finally:
            if not is_complete:
                release(reading.found)
        raise AssertionError("the last round waits for the disk and leaves nothing cold")

    def _read_some(self, some: list[SessionPartition], reading: FetchedSoFar) -> None:
        for wanted in some:
            self._read(wanted, reading)

    def find(self, wanted: SessionPartition) -> Partition | None:
        """The replica here, if there is one."""
        replica = wanted.replica
        if replica is not None and replica.watched_by.get(self._replica_id) is wanted:
            return replica
        partitions = self._context.broker.partitions
        topic = wanted.topic
        if isinstance(topic, str):
            return partitions.get(topic, wanted.index)
        return partitions.get_by_id(topic, wanted.index)

    def _read(self, wanted: SessionPartition, reading: FetchedSoFar) -> None:
        """Add a partition's data or error."""
        found = reading.found
        partition = self.find(wanted)
        refusal = self._refuse(wanted, partition)
        if partition is None or refusal is not None:
            assert refusal is not None
            found.append((wanted, refusal))
            reading.at_once = True
            return
        if self._rack and (elsewhere := self._read_elsewhere(wanted, partition)) is not None:
            found.append((wanted, elsewhere))
            reading.at_once = True
            return
        partition.traffic.reads += 1
        try:
            read = self._read_log(wanted, partition, reading)
        except ColdRange as missing:
            reading.cold += missing.ranges
            return
        if isinstance(read, ReadRefusal):
            self._context.broker.partitions.read_refused(partition, read)
            found.append((wanted, failed(wanted.index, code_for_version(read.error, self._context.api_version))))
            reading.at_once = True
            return
        if self.is_follower and not self.is_late:
            now_ms = self._context.broker.clock.monotonic_ms()
            partition.fetched(
                self._replica_id,
                wanted.fetch_offset,
                wanted.follower_log_start,
                now_ms,
                self._request.replica_state.replica_epoch,
            )
        log = partition.log
        followed = self.followed_session
        if followed is not None:
            partition.watch(self._replica_id, wanted)
        if read is None and self._incremental and wanted.knows(log.high_watermark, log.log_start_offset):
            if followed is not None and followed.due and partition.is_settled(self._replica_id):
                followed.due.pop(wanted, None)
            return
        if followed is not None and self._incremental and self._is_read_from(partition):
            reading.at_once = True
        try:
            found.append((wanted, success(wanted, partition, read, self._request.isolation_level)))
        except ColdRange as missing:
            if read is not None and read.slice is not None and read.slice.release is not None:
                read.slice.release()
            reading.cold += missing.ranges

    def _read_elsewhere(self, wanted: SessionPartition, partition: Partition) -> PartitionData | None:
        """The answer for a consumer that is to read from a follower in its rack; None if it is to read here."""
        replica_id = nearest_follower(self._context, partition, self._rack, wanted.fetch_offset)
        leader = partition.leader
        if replica_id is None or leader is None:
            return None
        broker = self._context.broker
        broker.rack_reads.referred += 1
        leader.is_read_at(replica_id, broker.clock.monotonic_ms())
        data = offsets_only(wanted, partition.log)
        data.preferred_read_replica = replica_id
        return data

    def _is_read_from(self, partition: Partition) -> bool:
        """Whether consumers wait for this follower to hear of the high watermark."""
        leader = partition.leader
        if leader is None or not leader.has_read_replicas:
            return False
        return self._replica_id in leader.read_replicas(self._context.broker.clock.monotonic_ms())

    def _read_log(
        self, wanted: SessionPartition, partition: Partition, reading: FetchedSoFar
    ) -> LogRead | ReadRefusal | None:
        """Read a partition's records, as many as the response may still hold; None if there are none.

        Raises ColdRange if the loop would have to wait for the disk.
        """
        log = partition.log
        reads_all = self.is_follower or self._is_debugging
        up_to = log.log_end_offset if reads_all else partition.visible_end(self._request.isolation_level)
        wanted.is_held_back = False
        if wanted.fetch_offset == up_to:
            return None
        most = min(wanted.max_bytes, reading.budget)
        throttle = self._throttle_of(reading) if log.config.leader_throttled else None
        if throttle is not None and (allowed := throttle.allowed(partition)) is not None:
            if not allowed:
                wanted.is_held_back = True
                return None
            most = min(most, allowed)
        read = log.read(
            wanted.fetch_offset,
            most,
            up_to_offset=up_to,
            min_one_batch=self._context.api_version >= WHOLE_BATCH_SINCE and not reading.total,
        )
        if isinstance(read, ReadRefusal):
            return read
        if throttle is not None:
            throttle.read(partition, read.size)
        reading.total += read.size
        reading.sizes.append((partition.traffic, read.size))
        if partition.leader is None:
            self._context.broker.rack_reads.bytes_read += read.size
        if read.slice is not None and not read.slice.active:
            reading.at_once = True
        reading.budget = max(reading.budget - read.size, 0)
        return read

    def _throttle_of(self, reading: FetchedSoFar) -> LeaderThrottle | None:
        """The limit of a follower's reading of throttled partitions; None for a consumer."""
        if self.is_follower and reading.throttle is None:
            broker = self._context.broker
            reading.throttle = LeaderThrottle(broker.replication_quotas.leader, broker.id, self._replica_id)
        return reading.throttle

    def _refuse(self, wanted: SessionPartition, partition: Partition | None) -> PartitionData | None:
        """Check whether this request may read a partition; None if it may."""
        version = self._context.api_version
        if self._context.permitted is not None and not self._is_permitted(wanted.topic):
            return failed(wanted.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, is_unknown=True)
        if partition is None:
            error = unknown(self._context, wanted.topic, wanted.index)
            return failed(wanted.index, error, is_unknown=error in UNKNOWN)
        if self.is_late and self.is_follower and self._terms and self._terms.get(wanted) == partition.term:
            return None  # nothing has changed since it began to wait
        error = partition.check_epoch(wanted.current_leader_epoch)
        if error is ErrorCode.NONE and (
            partition.leader_id is None
            or (partition.leader is None and version < FOLLOWERS_SINCE and not self._is_debugging)
            or (self._terms is not None and self._terms.setdefault(wanted, partition.term) != partition.term)
        ):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is ErrorCode.NONE and self.is_follower:
            error = partition.check_follower(
                self._replica_id, wanted.current_leader_epoch, self._request.replica_state.replica_epoch
            )
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.leader_id is None:
            error = unknown(self._context, wanted.topic, wanted.index)
        if error is not ErrorCode.NONE:
            return failed(wanted.index, error, is_unknown=error in UNKNOWN)
        if wanted.last_fetched_epoch >= 0:
            divergence = diverged(wanted, partition.log)
            if divergence is not None:
                return divergence
        config = partition.log.config
        if version < ZSTD_SINCE and config.compression_type == "zstd":
            return not_converted(wanted.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if version < BATCHES_SINCE and not config.message_downconversion_enable:
            return not_converted(wanted.index, ErrorCode.UNSUPPORTED_VERSION)
        return None

    def _is_permitted(self, topic: TopicKey) -> bool:
        context = self._context
        if self.is_follower:
            return context.permits(*CLUSTER_ACTION)
        name = topic if isinstance(topic, str) else context.broker.image.topic_names.get(topic)
        return name is None or context.permits(Operation.READ, ResourceType.TOPIC, name)

    def has_visible(self) -> bool:
        """Whether any partition has visible data: for consumers of committed records, which not every append makes
        visible.
        """
        isolation_level = self._request.isolation_level
        for wanted in self.wanted:
            partition = self.find(wanted)
            if partition is None or wanted.fetch_offset < partition.visible_end(isolation_level):
                return True
        return False
