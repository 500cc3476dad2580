"""Transactions of a producer: the calls of its user, the requests to the coordinators, and the errors of both.

Everything runs in the producer's event loop. `ProducerTransaction` has the state; this is its shell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.assign.assignor import GroupMetadata
from ottla.client.configs import ProducerConfig
from ottla.client.coordinator import CoordinatorFinder, GroupCoordinator, TransactionalIdCoordinator
from ottla.client.errors import (
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    IllegalStateError,
    InvalidArgumentError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from ottla.client.group_offsets import offset_and_metadata
from ottla.client.model import OffsetAndMetadata, TopicPartition, by_topic
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.failures import Failures
from ottla.client.producer.sequences import NO_IDENTITY, NO_SEQUENCE, ProducerIdentity, Sequences
from ottla.client.producer.transaction_states import (
    ErrorHandling,
    ProducerTransaction,
    TransactionCall,
    TransactionPhase,
    handling_of,
    must_abort,
)
from ottla.peer import arguments
from ottla.peer.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.client.producer.completion import BatchCompletion

logger = logging.getLogger(__name__)

KEEPS_ID = (3, 5)
"""Versions of InitProducerId that bump the epoch of a producer that names its own (KIP-360, Apache Kafka 2.5)."""
KNOWS_MEMBERS = (3, 4)
"""Versions of TxnOffsetCommit with generation and member (KIP-447, Apache Kafka 2.5)."""
NO_GENERATION = -1
UNDER_WAY = (
    TransactionPhase.IN_TRANSACTION,
    TransactionPhase.COMMITTING,
    TransactionPhase.ABORTING,
    TransactionPhase.ABORTABLE_ERROR,
)
NO_TRANSACTIONAL_ID = (
    "this producer has no transactions; set transactional.id to a name that it keeps across restarts, and that no "
    "other running producer has"
)


OffsetsToSend = Mapping[TopicPartition, OffsetAndMetadata | int]


class TransactedConsumer(Protocol):
    """A consumer whose positions go into a transaction."""

    def positions(self) -> Any:
        """See `Consumer.positions`."""

    def group_metadata(self) -> Any:
        """See `Consumer.group_metadata`."""


class ProducerTransactions:
    """Transactions of one producer. Without a transactional id every call is an error.

    `drain` waits until all records are acknowledged or failed; `changed` is called after each change of the state.
    `failures` gets the batches that failed, with and without a transactional id; an abort forgets them.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        failures: Failures,
        drain: Callable[[int | None], Awaitable[bool]],
        changed: Callable[[], None],
    ) -> None:
        self.state = ProducerTransaction()
        self._cluster = cluster
        self._config = config
        self._id = config.transactional_id or ""
        self._drain = drain
        self._changed = changed
        self._failures = failures
        self._coordinator = TransactionalIdCoordinator(cluster, self._id)
        self._groups: dict[str, GroupCoordinator] = {}
        self._calls = asyncio.Lock()
        self._adding: asyncio.Task[None] | None = None
        self._identity = NO_IDENTITY

    @property
    def is_enabled(self) -> bool:
        """Whether the producer has a transactional id."""
        return bool(self._id)

    def connect(
        self,
        sequences: Sequences,
        completion: BatchCompletion,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        wake: Callable[[], None],
    ) -> None:
        """Use this sender's parts from now on."""
        self._sequences = sequences
        self._completion = completion
        self._spawn = spawn
        self._wake = wake

    # Calls of the user

    def refusal(self, call: TransactionCall) -> ClientError | None:
        """Return the error of a call that is not possible now; None if it is."""
        if not self.is_enabled:
            return None if call is TransactionCall.SEND else IllegalStateError(NO_TRANSACTIONAL_ID)
        return self.state.refusal(call)

    def _check(self, call: TransactionCall) -> None:
        if (refusal := self.refusal(call)) is not None:
            raise refusal

    def _move(self, phase: TransactionPhase) -> None:
        self.state.move(phase)
        self._changed()

    async def initialize(self) -> None:
        """Get a producer id and epoch; fences other producers of the transactional id, and aborts what they left."""
        async with self._calls:
            self._check(TransactionCall.INIT)
            self._move(TransactionPhase.INITIALIZING)
            await self._identify(NO_IDENTITY, None)
            self._move(TransactionPhase.READY)

    async def begin(self) -> None:
        """Begin a transaction: nothing is sent yet."""
        async with self._calls:
            self._check(TransactionCall.BEGIN)
            self._move(TransactionPhase.IN_TRANSACTION)

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commit offsets of a group as part of the transaction."""
        async with self._calls:
            self._check(TransactionCall.SEND_OFFSETS)
            if not offsets:
                return
            deadline_ms = self._deadline_ms()
            try:
                await self._add_offsets(group.group_id, deadline_ms)
                await self._commit_offsets(offsets, group, deadline_ms)
            except asyncio.CancelledError:
                what = "send_offsets_to_transaction was cancelled, and its outcome is not known"
                self._failed(ClientError(what), ErrorHandling.ABORT_AND_RENEW)
                raise

    async def commit(self) -> None:
        """Send everything, then commit."""
        async with self._calls:
            self._check(TransactionCall.COMMIT)
            self._move(TransactionPhase.COMMITTING)
            deadline_ms = self._deadline_ms()
            await self._drain_until(deadline_ms, TransactionCall.COMMIT)
            self.state.end()
            if self.state.has_end:
                await self._end(deadline_ms, committed=True)
            self._move(TransactionPhase.READY)

    async def abort(self) -> None:
        """Fail what is not sent yet, wait for what is, then abort, and get a new epoch where one is needed."""
        async with self._calls:
            await self._abort()

    async def _abort(self) -> None:
        self._check(TransactionCall.ABORT)
        self._move(TransactionPhase.ABORTING)
        deadline_ms = self._deadline_ms()
        self._fail_batches()
        if self._adding is not None:
            await asyncio.wait([self._adding], timeout=self._left_ms(deadline_ms) / 1000)
        await self._drain_until(deadline_ms, TransactionCall.ABORT)
        if self.state.has_end:
            try:
                await self._end(deadline_ms, committed=False)
            except TransactionAbortableError:
                self.state.needs_epoch = True  # the coordinator does not know the producer any more
            self.state.has_end = False
        if self.state.needs_epoch:
            await self._identify(self._identity, deadline_ms)
        self._failures.take()
        self._move(TransactionPhase.READY)

    @property
    def is_new(self) -> bool:
        """Whether `initialize` has not succeeded yet."""
        return self.is_enabled and self.state.refusal(TransactionCall.INIT) is None

    @property
    def is_open(self) -> bool:
        """Whether a transaction can be aborted."""
        return self.is_enabled and self.state.refusal(TransactionCall.ABORT) is None

    async def close(self, timeout_ms: float | None) -> None:
        """Let a commit or an abort end, and abort what is open; where that fails, the transaction's timeout ends it."""
        if self.state.phase not in UNDER_WAY:
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000), self._calls:
                if self.is_open:
                    logger.warning(
                        "a producer is closed with an open transaction (transactional.id=%s); it is aborted", self._id
                    )
                    await self._abort()
        except (ClientError, TimeoutError) as error:
            logger.warning("the transaction is not aborted, and ends after transaction.timeout.ms: %r", error)

    def _deadline_ms(self) -> float:
        return self._cluster.clock.monotonic_ms() + self._config.max_block_ms

    def _left_ms(self, deadline_ms: float) -> int:
        return max(int(deadline_ms - self._cluster.clock.monotonic_ms()), 0)

    async def _drain_until(self, deadline_ms: float, call: TransactionCall) -> None:
        drained = await self._drain(self._left_ms(deadline_ms))
        self._check(call)
        if not drained:
            raise ClientTimeoutError(
                f"{call.value}: not all records were acknowledged within max.block.ms ({self._config.max_block_ms})"
                f"{self._completion.hindrance()}; call it again"
            )

    # Errors

    def batch_failed(self, batch: ProducerBatch, error: ClientError) -> None:
        """Record the failure of a batch; a transaction without it must not be committed."""
        self._failures.add(batch, error)
        is_too_late = self.state.is_ending and batch.base_sequence == NO_SEQUENCE  # for this transaction
        if not self.is_enabled or is_too_late or isinstance(error, ClientClosedError):
            return
        handling = handling_of(ApiKey.PRODUCE, error)
        if handling is ErrorHandling.ABORT_AND_RENEW and batch.base_sequence == NO_SEQUENCE:
            handling = ErrorHandling.ABORT
        self._failed(error, handling)

    def _failed(self, error: ClientError, handling: ErrorHandling) -> None:
        before = self.state.phase
        self.state.failed(error, handling)
        if self.state.phase is not before:
            self._changed()
            # Not at once: the sender may be about to handle other batches.
            asyncio.get_running_loop().call_soon(self._fail_batches)

    def _fail_batches(self) -> None:
        """Fail the batches that cannot be sent in this state."""
        if self.state.takes_records:
            return
        phase = self.state.phase
        error: ClientError | None = self.state.refusal(TransactionCall.SEND)
        if phase is TransactionPhase.ABORTING:
            error = TransactionAbortedError("the transaction was aborted before the record was sent")
        if error is not None:
            self._completion.fail_all(error, only_unsent=phase is not TransactionPhase.FATAL_ERROR)

    # Requests

    async def _ask(
        self,
        what: str,
        coordinator: CoordinatorFinder,
        request: Message,
        check: Callable[[Any], None],
        deadline_ms: float | None = None,
        versions: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Return the coordinator's response that passes `check`; retriable errors are retried until the deadline.

        The deadline is that of the whole call, by default `timeout_ms` (max.block.ms) from now on. The final error
        changes the state. Raises it, or TransactionAbortableError.
        """

        async def attempt() -> Any:
            answer = await coordinator.ask(request, versions=versions)
            check(answer)
            return answer

        timeout_ms = self._config.max_block_ms if timeout_ms is None else timeout_ms
        left_ms = timeout_ms if deadline_ms is None else self._left_ms(deadline_ms)
        try:
            return await self._cluster.retry(what, attempt, left_ms, whole_ms=timeout_ms)
        except ClientClosedError:
            raise
        except ClientError as error:
            handling = handling_of(ApiKey(request.SCHEMA.api_key or 0), error)
            self._failed(error, handling)
            if handling in (ErrorHandling.ABORT, ErrorHandling.ABORT_AND_RENEW):
                raise must_abort(error) from error
            raise

    def _check_code(self, coordinator: CoordinatorFinder, code: int, context: str) -> None:
        """Raise the error of a response, ProducerFencedError for both codes that say so."""
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            code = ErrorCode.PRODUCER_FENCED
        coordinator.check(code, context)

    async def _identify(self, own: ProducerIdentity, deadline_ms: float | None) -> None:
        """Get an identity; `own` is the present one, whose epoch is to grow."""
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=own.producer_id,
            producer_epoch=own.epoch,
        )

        def check(answer: InitProducerIdResponse) -> None:
            self._check_code(self._coordinator, answer.error_code, "it gets no producer id")

        versions = None if own == NO_IDENTITY else KEEPS_ID
        what = f"getting a producer id for transactional id {self._id}"
        answer = await self._ask(what, self._coordinator, request, check, deadline_ms, versions)
        self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._sequences.restart(self._identity)

    async def _end(self, deadline_ms: float, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=committed,
        )
        verb = "committed" if committed else "aborted"

        def check(answer: EndTxnResponse) -> None:
            code = answer.error_code
            if code == ErrorCode.INVALID_TXN_STATE and not committed and not self.state.is_known:
                return  # no request that would have begun it has reached the coordinator
            self._check_code(self._coordinator, code, f"the transaction is not {verb}")

        what = f"having the transaction of transactional id {self._id} {verb}"
        await self._ask(what, self._coordinator, request, check, deadline_ms)

    def proceed(self) -> None:
        """After each round of the sender: add the partitions with waiting batches, or fail batches that come too late.

        Another thread may have been about to append a record when the state changed. It must neither wait nor be part
        of the next transaction. While partitions are being added, others follow.
        """
        self._fail_batches()
        if self.state.to_add and self._adding is None:
            self._adding = self._spawn(self._add_partitions())

    async def _add_partitions(self) -> None:
        try:
            while self.state.to_add:
                partitions = self.state.begin_to_add()
                try:
                    await self._add(partitions)
                except ClientError:
                    self.state.added(())
                else:
                    self.state.added(partitions)
                self._wake()
        finally:
            self._adding = None

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        wanted = by_topic({each: each.partition for each in partitions})
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in wanted.items()
            ],
        )

        def check(answer: AddPartitionsToTxnResponse) -> None:
            codes = {
                f"{topic.name}-{each.partition_index}": each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            # A partition may be refused because of another one: that one's error is raised.
            for partition, code in sorted(codes.items(), key=lambda one: one[1] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                self._check_code(self._coordinator, code, f"{partition} cannot be added to the transaction")

        what = f"adding partitions to the transaction of transactional id {self._id}"
        await self._ask(what, self._coordinator, request, check, timeout_ms=self._config.delivery_timeout_ms)

    async def _add_offsets(self, group_id: str, deadline_ms: float) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group_id=group_id,
        )

        def check(answer: AddOffsetsToTxnResponse) -> None:
            context = f"offsets of group {group_id} cannot be added to the transaction"
            self._check_code(self._coordinator, answer.error_code, context)

        self.state.adds_offsets()
        await self._ask(f"adding offsets of group {group_id}", self._coordinator, request, check, deadline_ms)
        self.state.offsets_added()

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline_ms: float
    ) -> None:
        coordinator = self._groups.setdefault(group.group_id, GroupCoordinator(self._cluster, group.group_id))
        wanted = {
            partition: TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            )
            for partition, each in offsets.items()
        }
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic(wanted).items()],
        )

        def check(answer: TxnOffsetCommitResponse) -> None:
            for topic in answer.topics:
                for each in topic.partitions:
                    context = f"the offset of {topic.name}-{each.partition_index} is not part of the transaction"
                    self._check_code(coordinator, each.error_code, context)

        is_member = bool(group.member_id) or group.generation_id != NO_GENERATION or group.group_instance_id is not None
        versions = KNOWS_MEMBERS if is_member else None
        what = f"sending offsets of group {group.group_id} to the transaction"
        await self._ask(what, coordinator, request, check, deadline_ms, versions)


class Consumed:
    """The progress of a consumer from the beginning of a transaction to its end.

    Raises InvalidArgumentError for a consumer that commits by itself: it would also commit what is aborted.
    """

    def __init__(self, consumer: TransactedConsumer) -> None:
        if getattr(getattr(consumer, "config", None), "enable_auto_commit", False):
            raise InvalidArgumentError(
                "the consumer commits its positions by itself, also those of transactions that are aborted; give it "
                "enable.auto.commit=false"
            )
        self._consumer = consumer
        self._group = group_of(consumer)
        self._partitions = set(consumer.positions())

    def offsets(self) -> tuple[OffsetsToSend, GroupMetadata]:
        """Return the positions and the member whose they are.

        Raises TransactionAbortableError if the transaction may have records whose offsets would not be in it: those of
        partitions that a rebalance took away, be it to give them back, at an earlier offset.
        """
        group = group_of(self._consumer)
        positions = self._consumer.positions()
        lost = self._partitions.difference(positions)
        has_joined = self._group.generation_id != NO_GENERATION
        if lost or (has_joined and group != self._group):
            which = f": it has lost {', '.join(map(str, sorted(lost)))}" if lost else ""
            raise TransactionAbortableError(
                f"the consumer of group {group.group_id} had a rebalance inside of the transaction{which}; the "
                "transaction may have records that others read, too. Poll before a transaction, not in it, or commit "
                "in the rebalance listener"
            )
        return positions, group


def offsets_to_send(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets for `send_offsets_to_transaction` with their metadata. Raises InvalidArgumentError."""
    wanted = arguments.by_partition("offsets", offsets)
    return {each: offset_and_metadata(each, at) for each, at in wanted.items()}


def group_of(group: Any) -> GroupMetadata:
    """Return group and member of a consumer, or of what its `group_metadata` gave. Raises InvalidArgumentError."""
    if isinstance(group, GroupMetadata):
        return group
    if callable(ask := getattr(group, "group_metadata", None)) and isinstance(found := ask(), GroupMetadata):
        return found
    raise InvalidArgumentError(
        f"the group is a consumer of ottla, or what its group_metadata() gives, not {group!r:.80}"
    )
