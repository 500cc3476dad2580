"""One replica fetcher: a connection to a leader, one Fetch in flight, and the records appended to the logs.

The state machine (`machine`) decides; this sends requests, appends and truncates, in slices.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from ottla.broker.quotas.replication import is_throttled
from ottla.broker.replicas.fetching.machine import (
    EARLIEST,
    LATEST,
    NOT_HEARD_OF_YET,
    Action,
    AskOffset,
    FetcherMachine,
    LogEnds,
    PartitionAnswer,
    PartitionKey,
    StartAt,
    TakeRecords,
    TruncateByEpoch,
    TruncateTo,
    truncation_offset,
)
from ottla.broker.replicas.fetching.requests import ReplicaFetcherSettings, fetch_request, list_offsets_request
from ottla.broker.replicas.losses import epochs_between
from ottla.broker.replicas.partition import is_report_due
from ottla.env.clock import Clock
from ottla.env.disk import DiskError
from ottla.env.futures import settle
from ottla.peer.errors import KNOWN_CODES, ClientError
from ottla.records.errors import BatchError
from ottla.storage.results import AppendRefusal
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.quotas.replication import ReplicationQuota
    from ottla.broker.replicas.manager import ReplicaManager
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.slices import LoopSlices
    from ottla.env.clock import Clock
    from ottla.peer.connection import PeerConnection
    from ottla.storage.log import PartitionLog
    from ottla.storage.manager import LogManager
    from ottla.wire.messages.fetch import FetchResponse, PartitionData
    from ottla.wire.messages.list_offsets import ListOffsetsResponse

log = logging.getLogger("ottla.broker")

#: A fetcher without partitions closes its connection after this time.
IDLE_S: Final = 10.0
#: While a quota is exceeded, its limit is looked at again after this time.
LONGEST_HOLD_S: Final = 1.0
#: Fetch with topic ids, and without.
FETCH_VERSION: Final = 17
FETCH_BY_NAME_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 9
#: Most partitions that a line of the log names.
MOST_NAMED: Final = 3


class FetcherContext(NamedTuple):
    """The surroundings that all fetchers of a broker share."""

    broker_id: int
    #: The broker's epoch now, -1 if unknown.
    broker_epoch: Callable[[], int]
    replicas: ReplicaManager
    logs: LogManager
    slices: LoopSlices
    clock: Clock
    settings: ReplicaFetcherSettings
    #: Connects to a broker, with a client id. Raises ClientError.
    connect: Callable[[int, str], Awaitable[PeerConnection]]
    #: How much of throttled partitions may be fetched.
    quota: ReplicationQuota
    #: Whether this broker's replica is in sync, as far as it knows.
    is_in_sync: Callable[[Partition], bool]


class CopyAgain(NamedTuple):
    """Remove the records from this offset on, where some are missing: the leader has them all."""

    offset: int


def ends_of(hosted: PartitionLog) -> LogEnds:
    """The ends of a log, as the machine needs them."""
    return LogEnds(hosted.log_end_offset, hosted.leader_epoch, hosted.log_start_offset)


class ReplicaFetcher:
    """Copies some of the partitions that one broker leads; with `catches_up` those that are far behind.

    `moves` is called after a response with each partition that was found to belong to the other kind.
    """

    def __init__(
        self,
        leader_id: int,
        number: int,
        context: FetcherContext,
        catches_up: bool = False,
        moves: Callable[[ReplicaFetcher, Partition], None] = lambda _fetcher, _partition: None,
    ) -> None:
        self.leader_id = leader_id
        self.number = number
        self.catches_up = catches_up
        self._moves = moves
        #: Partitions that belong to the other kind of fetcher, by the response in work.
        self._misplaced: list[Partition] = []
        self._broker = context
        self.machine = FetcherMachine(context.settings.backoff_ms)
        self._client_id = f"broker-{context.broker_id}-fetcher-{number}{'-behind' if catches_up else ''}"
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: PeerConnection | None = None
        #: The request under way, when it was sent, and the timer that looks whether one is answered too late.
        self._in_flight: Any = None
        self._sent_ms = 0.0
        self._late_timer: asyncio.TimerHandle | None = None
        self._trouble = FetchTrouble(leader_id, context.clock)
        #: Whether logs were truncated whose recovery points are not stored yet.
        self._was_cut = False
        #: Bytes of batches appended so far.
        self.bytes_in = 0

    def follow(self, partition: Partition) -> None:
        """Fetch this partition in its present leader epoch; what lies behind a gap of its log is fetched again."""
        hosted = partition.log
        key = (partition.topic, partition.index)
        epoch = partition.leader_epoch
        self.machine.follow(key, partition.topic_id, epoch, ends_of(hosted), hosted.high_watermark)
        followed = self.machine.get(key)
        if hosted.gap_offset is not None and followed is not None:
            # Records without leader epochs are cut at the high watermark; that may lie before the gap.
            first_cut = hosted.gap_offset if followed.first_cut is None else followed.first_cut
            self._act(key, epoch, CopyAgain(min(hosted.gap_offset, first_cut)), None)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, key: PartitionKey) -> None:
        """Fetch this partition no more."""
        self.machine.forget(key)
        self._trouble.forget(key)

    async def stop(self) -> None:
        """End; a request under way is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()

    # -- the loop

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                try:
                    if not await self._round() and not await self._wait():
                        return
                except ClientError as error:
                    self._failed(error)
                except Exception:
                    log.exception("the fetcher %d of broker %d failed", self.number, self.leader_id)
                    self._disconnect()
                    self.machine.failed_round(self._now_ms())
        finally:
            self._disconnect()

    async def _wait(self) -> bool:
        """Wait for the next partition or the end of a delay; False if there is nothing to do any more."""
        deadline_ms = self.machine.next_deadline_ms
        seconds = IDLE_S if deadline_ms is None else max(0.0, deadline_ms - self._now_ms()) / 1000
        if self.machine.holds_any:
            seconds = min(seconds, self._broker.quota.wait_ms / 1000, LONGEST_HOLD_S)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return bool(len(self.machine))
        return True

    async def _round(self) -> bool:
        """Ask and take one answer; False if there is nothing to ask. Raises ClientError."""
        machine, settings = self.machine, self._broker.settings
        for key, leader_epoch, action in machine.first_cuts():
            self._act(key, leader_epoch, action, None)
        await self._store_cuts()
        quota = self._broker.quota
        machine.hold(self._is_throttled if quota.is_exceeded else None)
        for _ in machine.prepare(self._now_ms()):
            await self._broker.slices.point()
        requested = machine.plan()
        if requested is None:
            return False
        request = fetch_request(
            requested,
            settings,
            self._topic_id_of,
            self._broker.broker_id,
            self._broker.broker_epoch(),
            self._max_bytes_of(requested.changed) if quota.is_limited else None,
            math.ceil(quota.wait_ms) if machine.holds_any else None,
        )
        version = FETCH_VERSION if requested.with_topic_ids else FETCH_BY_NAME_VERSION
        response: FetchResponse = await self._request(request, version)
        error = KNOWN_CODES.get(response.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        if machine.received(error, response.session_id, self._now_ms()):
            await self._take(response)
        elif error is not ErrorCode.NONE:
            log.debug("fetch from broker %d: %s", self.leader_id, error.name)
        return True

    def _topic_id_of(self, key: PartitionKey) -> UUID:
        followed = self.machine.get(key)
        assert followed is not None, "what is asked for is followed"
        return followed.topic_id

    def _is_throttled(self, key: PartitionKey) -> bool:
        """Whether the topic's settings throttle this broker's replica."""
        partition = self._broker.replicas.get(*key)
        if partition is None:
            return False
        return is_throttled(partition.log.config.follower_throttled, key[1], self._broker.broker_id)

    def _max_bytes_of(self, requested: Iterable[PartitionKey]) -> Callable[[PartitionKey], int]:
        """How many bytes to ask for of each partition: all throttled ones together no more than the quota allows."""
        most = self._broker.settings.max_bytes
        limited = {key for key in requested if self._is_throttled(key)}
        share = max(1, min(most, self._broker.quota.most_at_once // max(1, len(limited))))
        return lambda key: share if key in limited else most

    async def _request(self, message: Any, version: int) -> Any:
        """Send a request on the fetcher's connection, which is opened if need be. Raises ClientError."""
        versions = (version, version)
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = self._connection = await self._broker.connect(self.leader_id, self._client_id)
            return await connection.request(message, timeout_ms=self._broker.settings.timeout_ms, versions=versions)
        # After the first request, whose failure is explained, in fewer steps: there are thousands a second.
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.submit(message, partial(settle, answer), versions=versions)
        self._in_flight, self._sent_ms = message, self._now_ms()
        self._watch()
        try:
            return await answer
        finally:
            self._in_flight = None

    def _watch(self) -> None:
        """Close the connection if the present request is not answered in time; one timer watches many requests."""
        if self._late_timer is None:
            left_ms = self._sent_ms + self._broker.settings.timeout_ms - self._now_ms()
            # What is rounded off must not bring the timer back at the same moment.
            self._late_timer = asyncio.get_running_loop().call_later(max(left_ms, 1.0) / 1000, self._check_late)

    def _check_late(self) -> None:
        self._late_timer = None
        requested, connection = self._in_flight, self._connection
        if requested is None or connection is None:
            return
        timeout_ms = self._broker.settings.timeout_ms
        if self._now_ms() - self._sent_ms < timeout_ms:
            self._watch()
        else:
            connection.close_because(connection.late(requested, timeout_ms))

    def _failed(self, error: ClientError) -> None:
        self._trouble.cannot_fetch(error)
        self._disconnect()
        self.machine.failed_round(self._now_ms())

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        timer, self._late_timer = self._late_timer, None
        if timer is not None:
            timer.cancel()

    def _now_ms(self) -> float:
        return self._broker.clock.monotonic_ms()

    # -- answers

    async def _take(self, response: FetchResponse) -> None:
        """Append, truncate and ask what the answer calls for. Raises ClientError."""
        questions: list[PartitionKey] = []
        held: list[Partition] = []
        slices = self._broker.slices
        slices.begin()
        for topic in response.responses:
            for data in topic.partitions:
                await slices.point()
                key = self._key_of(topic.topic, topic.topic_id, data.partition_index)
                if key is not None:
                    self._take_partition(key, data, questions, held)
        self._trouble.log_refused()
        if questions:
            await self._ask_offsets(questions)
        await self._store_cuts()
        for partition in held:
            await self._until_on_disk(partition)
        misplaced, self._misplaced = self._misplaced, []
        for partition in misplaced:
            self._moves(self, partition)

    def _key_of(self, name: str, topic_id: UUID, index: int) -> PartitionKey | None:
        if name:
            return name, index
        partition = self._broker.replicas.get_by_id(topic_id, index)
        return None if partition is None else (partition.topic, index)

    def _take_partition(
        self, key: PartitionKey, data: PartitionData, questions: list[PartitionKey], held: list[Partition]
    ) -> None:
        machine = self.machine
        followed = machine.get(key)
        if followed is None:
            return
        error = KNOWN_CODES.get(data.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
        diverging = data.diverging_epoch
        answer = PartitionAnswer(error, data.high_watermark, diverging.epoch, diverging.end_offset)
        action = machine.answered(key, answer, self._now_ms())
        if isinstance(action, AskOffset):
            questions.append(key)
        elif action is not None:
            partition = self._act(key, followed.position.leader_epoch, action, data)
            if partition is not None and partition in self._broker.replicas.held:
                held.append(partition)
        elif self._is_trouble(key, error):
            self._trouble.refused(key, error)

    def _is_trouble(self, key: PartitionKey, error: ErrorCode) -> bool:
        """Whether an error is more than the time that brokers take to hear of an election."""
        if error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
            return False
        return error not in NOT_HEARD_OF_YET or self.machine.is_patient(key)

    def _act(
        self, key: PartitionKey, leader_epoch: int, action: Action | CopyAgain, data: PartitionData | None
    ) -> Partition | None:
        """Do what the machine decided, if the replica still has this role; returns the partition then."""
        partition = self._broker.replicas.get(*key)
        if partition is None or partition.leader is not None or partition.leader_epoch != leader_epoch:
            return None
        hosted = partition.log
        try:
            if isinstance(action, TakeRecords):
                assert data is not None
                self._take_records(key, partition, data)
            elif isinstance(action, StartAt):
                log.warning("%s: begins again at %d, the start of the leader's log", hosted.name, action.offset)
                self._broker.logs.truncate_fully(hosted, action.offset)
                self._moved_back(key, partition)
            elif isinstance(action, CopyAgain):
                end = hosted.log_end_offset
                log.warning("%s: copied again from %d to %d, records are missing", hosted.name, action.offset, end)
                self._broker.logs.truncate(hosted, action.offset)
                self._moved_back(key, partition)
            elif isinstance(action, TruncateTo | TruncateByEpoch):
                self._truncate(key, partition, action)
        except (DiskError, BatchError) as error:
            self._trouble.cannot_follow(key, error)
            self.machine.gave_up(key, leader_epoch, ErrorCode.KAFKA_STORAGE_ERROR)
            self._broker.logs.suspect(hosted)
        return partition

    def _take_records(self, key: PartitionKey, partition: Partition, data: PartitionData) -> None:
        hosted, machine, leader_epoch = partition.log, self.machine, partition.leader_epoch
        followed = machine.get(key)
        if followed is None or followed.position.log.end_offset != hosted.log_end_offset:
            machine.moved(key, leader_epoch, ends_of(hosted))
            return
        if data.records:
            done = self._broker.replicas.append_fetched(partition, memoryview(data.records))
            if isinstance(done, AppendRefusal):
                self._trouble.cannot_follow(key, done.message)
                machine.moved(key, leader_epoch, ends_of(hosted))
                if hosted.failure is None:
                    machine.refused(key, leader_epoch, self._now_ms())
                else:
                    machine.gave_up(key, leader_epoch, done.error)
                return
            self.bytes_in += done.size
            if hosted.config.follower_throttled and self._is_throttled(key):
                self._broker.quota.record(done.size, is_free=not followed.lags)
        partition.learn_high_watermark(data.high_watermark)
        hosted.raise_log_start(min(data.log_start_offset, hosted.high_watermark))
        machine.moved(key, leader_epoch, ends_of(hosted), data.high_watermark)
        # Half of what was asked for: there is more.
        is_behind = len(data.records or b"") * 2 >= self._broker.settings.max_bytes
        if is_behind is not self.catches_up:
            self._misplaced.append(partition)

    def _truncate(self, key: PartitionKey, partition: Partition, action: TruncateTo | TruncateByEpoch) -> None:
        hosted = partition.log
        if isinstance(action, TruncateByEpoch):
            own = hosted.epochs.end_of(action.epoch, hosted.log_end_offset)
            offset = truncation_offset(action, own.leader_epoch, own.end_offset, hosted.log_end_offset)
        else:
            offset = action.offset
        before, high_watermark = hosted.log_end_offset, hosted.high_watermark
        epochs = epochs_between(hosted.epochs.entries, offset, before)
        self._broker.logs.truncate(hosted, offset)
        if offset < before:
            self._broker.replicas.losses.removed(partition, offset, before, high_watermark, epochs, self.leader_id)
        self._moved_back(key, partition)

    def _moved_back(self, key: PartitionKey, partition: Partition) -> None:
        self._was_cut = True
        self.machine.moved(key, partition.leader_epoch, ends_of(partition.log))

    async def _store_cuts(self) -> None:
        """Store the recovery points before more is appended: below them nothing is checked after a power loss."""
        while self._was_cut:  # another role may cut another log meanwhile
            self._was_cut = False
            stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._broker.logs.checkpoints.store_recovery_points(partial(settle, stored, None))
            await stored

    async def _until_on_disk(self, partition: Partition) -> None:
        """Wait for the flush of what was appended: the next fetch tells the leader that this replica has it."""
        if partition in self._broker.replicas.held and partition.leader is None:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            last = partition.log.log_end_offset - 1
            partition.forced.add(last, lambda _error: None if flushed.done() else flushed.set_result(None))
            await flushed

    # -- offsets out of range

    async def _ask_offsets(self, keys: list[PartitionKey]) -> None:
        """Ask for the ends of the leader's logs, then for the starts of some. Raises ClientError."""
        for timestamp in (LATEST, EARLIEST):
            epochs = {key: followed.position.leader_epoch for key in keys if (followed := self.machine.get(key))}
            if not epochs:
                return
            request = list_offsets_request(epochs, timestamp, self._broker.broker_id)
            response: ListOffsetsResponse = await self._request(request, LIST_OFFSETS_VERSION)
            keys = []
            for topic in response.topics:
                for found in topic.partitions:
                    await self._broker.slices.point()
                    key = (topic.name, found.partition_index)
                    if key not in epochs:
                        continue
                    error = KNOWN_CODES.get(found.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
                    action = self.machine.offset_found(key, epochs[key], timestamp, error, found.offset, self._now_ms())
                    if isinstance(action, AskOffset):
                        keys.append(key)
                    elif action is not None:
                        self._act(key, epochs[key], action, None)


class FetchTrouble:
    """The log of one fetcher's failures: few lines, not repeated. What is remembered of a partition goes with `forget`.

    After the death of a controller a leader refuses thousands of partitions for a moment: a response gives one line for
    each kind of refusal, which names a few partitions and counts the others.
    """

    def __init__(self, leader_id: int, clock: Clock) -> None:
        self._leader_id = leader_id
        self._clock = clock
        #: When trouble of a partition was logged last; None: of the connection.
        self._logged_ms: dict[PartitionKey | None, float] = {}
        #: What the leader refused in the response in work.
        self._refused: dict[ErrorCode, list[PartitionKey]] = {}

    def cannot_fetch(self, error: object) -> None:
        """The leader cannot be reached, or its answer not be read."""
        if self._is_due(None):
            log.warning("cannot fetch from broker %d: %s", self._leader_id, error)

    def cannot_follow(self, key: PartitionKey, error: object) -> None:
        """The replica of this broker cannot take what the leader sent."""
        if self._is_due(key):
            log.warning("%s-%d cannot follow broker %d: %s", *key, self._leader_id, error)

    def refused(self, key: PartitionKey, error: ErrorCode) -> None:
        """The leader answered with an error; logged by `log_refused`."""
        if self._is_due(key):
            self._refused.setdefault(error, []).append(key)

    def log_refused(self) -> None:
        """Log what the response that was taken refused, in one line for each error."""
        refused, self._refused = self._refused, {}
        for error, keys in refused.items():
            named = ", ".join(f"{topic}-{index}" for topic, index in keys[:MOST_NAMED])
            more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
            log.warning("%s%s of broker %d: %s", named, more, self._leader_id, error.name)

    def forget(self, key: PartitionKey) -> None:
        """The partition is fetched no more."""
        self._logged_ms.pop(key, None)

    def _is_due(self, key: PartitionKey | None) -> bool:
        now_ms = self._clock.monotonic_ms()
        is_due = is_report_due(self._logged_ms.get(key), now_ms)
        if is_due:
            self._logged_ms[key] = now_ms
        return is_due
