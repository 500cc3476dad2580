"""The state machine of one transactional id. Pure: events and time in, steps out.

Theory of operation. A producer gets a producer id and epoch with InitProducerId, adds partitions to a transaction, and
ends it. The decision (PrepareCommit, PrepareAbort) is one record of `__transaction_state`; once it is committed, the
producer has its answer and the leaders of the partitions are asked to write markers. When each partition has its
marker, another record says so (CompleteCommit, CompleteAbort). A transaction without partitions has both records in one
batch. A coordinator that finds only the decision in the log sends all markers again.

The state in the log (`metadata`) changes in `replay` alone, which the shell calls for each record right after it was
appended, and for every record when it loads the partition. In memory only is which partitions still need a marker.

Rules by state are in `ottla.txn.states`. Source: Apache Kafka 3.9, `kafka.coordinator.transaction`; KIP-98, 360, 664,
890; for the newer protocol (KIP-890, part 2) the same of 4.0. Intentional differences:

- a request that comes while an earlier write is not committed is not refused (`CONCURRENT_TRANSACTIONS`): its own
  answer waits until that write is committed;
- a failed attempt to fence a producer leaves its epoch as it was, since the log has nothing of it;
- timeouts and expiry take effect when they are due, not at the next look some seconds or an hour later;
- after InitProducerId the start of the transaction before is not shown any more, as it is not in the log, either;
- InitProducerId of a producer that was fenced in the last epoch of its id gets `PRODUCER_FENCED`, not an internal
  error;
- newer protocol: a transaction that the coordinator aborts rotates an exhausted producer id, too (KAFKA-20090); EndTxn
  with the bumped epoch while markers are written is asked to wait, not fenced; the epoch before the bump is that of a
  repeated EndTxn only where the newer protocol did bump it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.txn.events import (
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    MarkerToken,
    PartitionsResult,
    TransactionBatch,
    TransactionReply,
    TransactionRequest,
    TransactionStep,
    TransactionView,
    VerifyPartitionsInTxn,
)
from ottla.txn.failures import failed_result, refused
from ottla.txn.markers import MarkerResult, marker_request, marker_result
from ottla.txn.metadata import (
    BUMPING_VERSION,
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
    TransactionMetadata,
)
from ottla.txn.records import TransactionRecord
from ottla.txn.states import RULES, AddRule, EndRule, EndRules, InitRule, TransactionRules, TransactionState, VerifyRule
from ottla.wire.broker_requests import BrokerOutcome
from ottla.wire.errors import ErrorCode

RETRY_BACKOFF_MS = 100
"""Pause before a marker is sent again, or a write that the log refused is tried again."""
STORY_LIMIT = 16


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """The settings of the transaction coordinator; times in milliseconds."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


@dataclass(slots=True)
class TransactionContext:
    """The surroundings of the state machines of one partition; the shell keeps them up to date."""

    limits: TransactionLimits
    take_producer_id: Callable[[], int | None]
    """A new producer id; None if the broker has none at hand."""
    transaction_version: int = 0
    """The finalized level of the feature `transaction.version`."""
    coordinator_epoch: int = -1
    """The leader epoch of the partition."""


class TransactionMachine:
    """One transactional id, as a state machine: `handle`, `replay`, `next_deadline_ms`, `expire`, and queries."""

    __slots__ = (
        "_context",
        "_is_fenced",
        "_retry_at_ms",
        "_story",
        "_to_send",
        "metadata",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str, context: TransactionContext) -> None:
        self.transactional_id = transactional_id
        self._context = context
        #: What the log says; None before the first record and after the tombstone.
        self.metadata: TransactionMetadata | None = None
        #: While a transaction ends: the partitions without marker, as far as is known.
        self.unmarked: set[TopicPartition] = set()
        #: Those of them whose marker was not written, and has to be sent again.
        self._to_send: set[TopicPartition] = set()
        #: Whether a leader knows a newer coordinator or producer.
        self._is_fenced = False
        self._retry_at_ms: int | None = None
        self._story: deque[tuple[int, str]] = deque(maxlen=STORY_LIMIT)

    def handle(self, event: TransactionRequest, now_ms: int) -> TransactionStep:
        """Handle a request; the shell appends the step's batches, replays their records, then replies."""
        step = self._new_step()
        _HANDLERS[type(event)](self, event, step, now_ms)
        return step

    def replay(self, metadata: TransactionMetadata | None) -> None:
        """Apply a record that is in the log."""
        self.metadata = metadata
        self.unmarked = set(metadata.partitions) if metadata is not None and metadata.is_ending else set()
        self._forget_attempts()

    def append_failed(self, step: TransactionStep, error: ErrorCode, now_ms: int) -> TransactionStep:
        """Answer in place of a step whose batch the log refused. Nothing has changed."""
        self._note(now_ms, f"append failed: {error.name}")
        self._retry_at_ms = now_ms + RETRY_BACKOFF_MS
        failed = self._new_step()
        failed.replies += [TransactionReply(each.token, failed_result(each.result, error)) for each in step.replies]
        return failed

    def resume(self, now_ms: int) -> TransactionStep:
        """Continue what the log has begun: after loading, and in each new epoch of the coordinator."""
        step = self._new_step()
        self._forget_attempts()
        metadata = self.metadata
        if metadata is not None and metadata.is_ending:
            self._send_or_complete(metadata, self.unmarked, step, now_ms)
        return step

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called, None for never."""
        metadata = self.metadata
        if metadata is None:
            return None
        if metadata.is_ending:
            return self._retry_at_ms
        if metadata.state is TransactionState.ONGOING:
            at_ms = metadata.start_ms + metadata.timeout_ms + 1
        else:
            at_ms = metadata.last_update_ms + self._context.limits.id_expiration_ms
        return at_ms if self._retry_at_ms is None else max(at_ms, self._retry_at_ms)

    def expire(self, now_ms: int) -> TransactionStep:
        """Handle the deadline, if it has passed."""
        step = self._new_step()
        at_ms, metadata = self.next_deadline_ms(), self.metadata
        if metadata is None or at_ms is None or at_ms > now_ms:
            return step
        self._retry_at_ms = None
        if metadata.is_ending:
            again = set(self._to_send)
            self._to_send.clear()
            self._send_or_complete(metadata, again, step, now_ms)
        elif metadata.state is TransactionState.ONGOING:
            self._note(now_ms, "the timeout has passed")
            if not self._fence(metadata, step, now_ms):
                self._retry_at_ms = now_ms + RETRY_BACKOFF_MS
        else:
            assert RULES[metadata.state].expires, self.story()
            self._append(step, [None], now_ms)
        return step

    def marker_done(self, token: MarkerToken, outcome: BrokerOutcome, now_ms: int) -> TransactionStep:
        """Handle the outcome of a request to write a marker; that of a former transaction or epoch is ignored."""
        step = self._new_step()
        metadata = self.metadata
        if metadata is None or token.partition not in self.unmarked or token != self._token(metadata, token.partition):
            return step
        result = marker_result(outcome)
        if result is MarkerResult.FENCED:
            self._note(now_ms, f"fenced by the leader of {token.partition}")
            self._is_fenced = True
            self._retry_at_ms = None
        elif result is MarkerResult.RETRY:
            self._to_send.add(token.partition)
            if self._retry_at_ms is None and not self._is_fenced:
                self._retry_at_ms = now_ms + RETRY_BACKOFF_MS
        else:
            self.unmarked.discard(token.partition)
            if not self.unmarked:
                self._append(step, [metadata.completed(now_ms)], now_ms)
        return step

    # Queries

    def view(self) -> TransactionView | None:
        """The state as administrators see it; None if there is none."""
        metadata = self.metadata
        if metadata is None:
            return None
        return TransactionView(
            self.transactional_id,
            metadata.state,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.start_ms,
            frozenset(self.unmarked) if metadata.is_ending else metadata.partitions,
        )

    def story(self) -> str:
        """The latest events, the newest last."""
        lines = [f"transactional id {self.transactional_id!r}: {self.metadata}"]
        lines += [f"  {at_ms} {text}" for at_ms, text in self._story]
        return "\n".join(lines)

    def check_invariants(self) -> None:
        """Raise AssertionError, with the latest events, if an invariant is violated."""
        found = problems(self)
        if found:
            raise AssertionError("; ".join(found) + "\n" + self.story())

    # Requests

    def _init(self, event: InitProducerId, step: TransactionStep, now_ms: int) -> None:
        metadata = self.metadata
        if metadata is None:
            self._initialize(self._created(event, now_ms), event, step, now_ms)
            return
        rule = RULES[metadata.state].init
        if rule is InitRule.WAIT:
            self._answer(event, ErrorCode.CONCURRENT_TRANSACTIONS, step)
        elif not _names(event, metadata):
            self._answer(event, ErrorCode.PRODUCER_FENCED, step)
        elif rule is InitRule.FENCE:
            can_fence = self._fence(metadata, step, now_ms)
            error = ErrorCode.CONCURRENT_TRANSACTIONS if can_fence else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._answer(event, error, step)
        else:
            self._initialize(self._next_epoch(metadata, event, now_ms), event, step, now_ms)

    def _initialize(
        self, metadata: TransactionMetadata | ErrorCode, event: InitProducerId, step: TransactionStep, now_ms: int
    ) -> None:
        if isinstance(metadata, ErrorCode):
            self._answer(event, metadata, step)
            return
        self._append(step, [metadata], now_ms)
        result = InitProducerIdResult(ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch)
        step.replies.append(TransactionReply(event.token, result))

    def _created(self, event: InitProducerId, now_ms: int) -> TransactionMetadata | ErrorCode:
        producer_id = self._context.take_producer_id()
        if producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return TransactionMetadata(producer_id, 0, event.timeout_ms, TransactionState.EMPTY, now_ms)

    def _next_epoch(
        self, metadata: TransactionMetadata, event: InitProducerId, now_ms: int
    ) -> TransactionMetadata | ErrorCode:
        """The state after InitProducerId: with the next epoch, a new producer id, or as it is for a repeated one."""
        is_named = event.producer_id != NO_PRODUCER_ID
        is_current = event.producer_epoch == metadata.producer_epoch
        producer_id, epoch = metadata.producer_id, metadata.producer_epoch
        last_epoch = epoch if is_named else NO_PRODUCER_EPOCH
        if is_named and not is_current:
            if event.producer_epoch != metadata.last_producer_epoch:
                return ErrorCode.PRODUCER_FENCED
            last_epoch = metadata.last_producer_epoch
        elif metadata.is_exhausted:
            new_id = self._context.take_producer_id()
            if new_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            producer_id, epoch = new_id, 0
        else:
            epoch += 1
        return metadata.initialized(producer_id, epoch, last_epoch, event.timeout_ms, now_ms)

    def _add_partitions(self, event: AddPartitionsToTxn, step: TransactionStep, now_ms: int) -> None:
        metadata = self._known()
        added = NO_PARTITIONS.union(event.partitions)
        error = _identity_error(event, metadata)
        rule = RULES[metadata.state].add
        if error is ErrorCode.NONE and rule is AddRule.WAIT:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is ErrorCode.NONE and not (rule is AddRule.ADD and added <= metadata.partitions):
            self._append(step, [metadata.added(added, event.transaction_version, now_ms)], now_ms)
        self._answer(event, error, step)

    def _verify_partitions(self, event: VerifyPartitionsInTxn, step: TransactionStep, now_ms: int) -> None:
        metadata = self._known()
        error = _identity_error(event, metadata)
        if error is ErrorCode.NONE and RULES[metadata.state].verify is VerifyRule.WAIT:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            self._answer(event, error, step)
            return
        missing = ErrorCode.TRANSACTION_ABORTABLE
        errors = {each: ErrorCode.NONE if each in metadata.partitions else missing for each in event.partitions}
        step.replies.append(TransactionReply(event.token, PartitionsResult(errors, ErrorCode.NONE)))

    def _end(self, event: EndTxn, step: TransactionStep, now_ms: int) -> None:
        metadata = self._known()
        is_bumping = event.transaction_version >= BUMPING_VERSION
        is_repeated = is_bumping and _is_repeated(event, metadata)
        if not is_repeated:
            if event.producer_id != metadata.producer_id:
                self._answer(event, ErrorCode.INVALID_PRODUCER_ID_MAPPING, step)
                return
            if event.producer_epoch != metadata.producer_epoch:
                self._answer(event, ErrorCode.PRODUCER_FENCED, step)
                return
        rules = _end_rules(RULES[metadata.state], is_bumping, is_repeated)
        rule = rules.commit if event.is_commit else rules.abort
        if rule in (EndRule.END, EndRule.END_EMPTY):
            self._decide(metadata, event, step, now_ms)
        elif rule is EndRule.DONE:
            result = EndTxnResult(ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch)
            step.replies.append(TransactionReply(event.token, result))
        else:
            self._answer(event, ErrorCode[rule.value], step)

    def _decide(self, metadata: TransactionMetadata, event: EndTxn, step: TransactionStep, now_ms: int) -> None:
        version = event.transaction_version
        next_id = self._next_producer_id(metadata, version)
        if next_id is None:
            self._answer(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, step)
            return
        prepared = metadata.prepared(event.is_commit, version, now_ms, next_id)
        self._prepare(prepared, step, now_ms)
        following = prepared.completed(now_ms)
        result = EndTxnResult(ErrorCode.NONE, following.producer_id, following.producer_epoch)
        step.replies.append(TransactionReply(event.token, result))

    # Transitions

    def _fence(self, metadata: TransactionMetadata, step: TransactionStep, now_ms: int) -> bool:
        """Abort the transaction under way with the next epoch; False if it needs a producer id and none is at hand."""
        version = self._context.transaction_version
        next_id = self._next_producer_id(metadata, version)
        if next_id is None:
            return False
        self._check_transition(metadata.state, TransactionState.PREPARE_EPOCH_FENCE)
        self._prepare(
            metadata.fenced(version, now_ms, next_id), step, now_ms, before=TransactionState.PREPARE_EPOCH_FENCE
        )
        return True

    def _next_producer_id(self, metadata: TransactionMetadata, version: int) -> int | None:
        """The producer id after this transaction: -1 unless its end bumps an exhausted epoch, None if none is left."""
        if version < BUMPING_VERSION or not metadata.is_exhausted:
            return NO_PRODUCER_ID
        return self._context.take_producer_id()

    def _prepare(
        self,
        prepared: TransactionMetadata,
        step: TransactionStep,
        now_ms: int,
        before: TransactionState | None = None,
    ) -> None:
        """Write the decision, and have the markers sent once it is committed; without partitions nothing is left."""
        if prepared.partitions:
            self._append(step, [prepared], now_ms, before)
            self._send(prepared, prepared.partitions, step)
        else:
            self._append(step, [prepared, prepared.completed(now_ms)], now_ms, before)

    def _send_or_complete(
        self, metadata: TransactionMetadata, partitions: Iterable[TopicPartition], step: TransactionStep, now_ms: int
    ) -> None:
        if self.unmarked:
            self._send(metadata, partitions, step)
        else:
            self._append(step, [metadata.completed(now_ms)], now_ms)

    def _send(self, metadata: TransactionMetadata, partitions: Iterable[TopicPartition], step: TransactionStep) -> None:
        is_commit = metadata.state is TransactionState.PREPARE_COMMIT
        step.requests += [marker_request(self._token(metadata, each), is_commit) for each in sorted(partitions)]

    def _append(
        self,
        step: TransactionStep,
        states: Iterable[TransactionMetadata | None],
        now_ms: int,
        before: TransactionState | None = None,
    ) -> None:
        """Write these states, one after the other in one batch; `before` is a state that is not in the log."""
        records = []
        current = before if before is not None or self.metadata is None else self.metadata.state
        for metadata in states:
            following = TransactionState.DEAD if metadata is None else metadata.state
            if current is not None:
                self._check_transition(current, following)
            entered = following.value if metadata is None else f"{following.value} in epoch {metadata.producer_epoch}"
            self._note(now_ms, f"{'new' if current is None else current.value} -> {entered}")
            records.append(TransactionRecord(self.transactional_id, metadata))
            current = following
        step.batches.append(TransactionBatch(records))

    def _check_transition(self, source: TransactionState, target: TransactionState) -> None:
        assert target in RULES[source].exits, f"no way from {source.value} to {target.value}\n{self.story()}"

    def _token(self, metadata: TransactionMetadata, partition: TopicPartition) -> MarkerToken:
        producer_id, epoch = metadata.producer_id, metadata.producer_epoch
        return MarkerToken(self.transactional_id, partition, producer_id, epoch, self._context.coordinator_epoch)

    def _forget_attempts(self) -> None:
        self._to_send.clear()
        self._is_fenced = False
        self._retry_at_ms = None

    def _known(self) -> TransactionMetadata:
        assert self.metadata is not None, self.story()
        return self.metadata

    def _answer(self, event: TransactionRequest, error: ErrorCode, step: TransactionStep) -> None:
        step.replies.append(TransactionReply(event.token, refused(event, error)))

    def _new_step(self) -> TransactionStep:
        return TransactionStep(self.transactional_id)

    def _note(self, now_ms: int, text: str) -> None:
        self._story.append((now_ms, text))


_HANDLERS: dict[type[TransactionRequest], Callable[[TransactionMachine, Any, TransactionStep, int], None]] = {
    InitProducerId: TransactionMachine._init,
    AddPartitionsToTxn: TransactionMachine._add_partitions,
    VerifyPartitionsInTxn: TransactionMachine._verify_partitions,
    EndTxn: TransactionMachine._end,
}


def _names(event: InitProducerId, metadata: TransactionMetadata) -> bool:
    """Whether the producer is the current one, or may be the one before a rotation (KIP-360), or does not say."""
    is_former = event.producer_id == metadata.previous_producer_id and event.producer_epoch >= EXHAUSTED_EPOCH
    return event.producer_id in (NO_PRODUCER_ID, metadata.producer_id) or is_former


def _identity_error(event: AddPartitionsToTxn | VerifyPartitionsInTxn, metadata: TransactionMetadata) -> ErrorCode:
    if event.producer_id != metadata.producer_id:
        # Only the producer knows the id that it gets when this transaction has ended; it has to wait for that.
        is_early = event.producer_id == metadata.next_producer_id != NO_PRODUCER_ID
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_early else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if event.producer_epoch == metadata.producer_epoch else ErrorCode.PRODUCER_FENCED


def _is_repeated(event: EndTxn, metadata: TransactionMetadata) -> bool:
    """Whether the request has the producer id and epoch from before the bump that the newer protocol made last."""
    is_before_bump = event.producer_id == metadata.producer_id and event.producer_epoch + 1 == metadata.producer_epoch
    is_before_rotation = (
        event.producer_id == metadata.previous_producer_id
        and event.producer_epoch == EXHAUSTED_EPOCH
        and metadata.producer_epoch == 0
    )
    return metadata.bumps and (is_before_bump or is_before_rotation)


def _end_rules(rules: TransactionRules, is_bumping: bool, is_repeated: bool) -> EndRules:
    if is_repeated:
        return rules.repeated_end
    return rules.bumping_end if is_bumping else rules.end


def problems(machine: TransactionMachine) -> list[str]:
    """Violated invariants between two steps; empty if there are none."""
    metadata = machine.metadata
    if metadata is None:
        return ["markers are missing of a transactional id that is not there"] if machine.unmarked else []
    found = []
    if not 0 <= metadata.producer_epoch <= MAX_EPOCH:
        found.append(f"epoch {metadata.producer_epoch}")
    if RULES[metadata.state].expires and metadata.partitions:
        found.append(f"{metadata.state.value} with {len(metadata.partitions)} partitions")
    if metadata.state is TransactionState.EMPTY and metadata.start_ms != NO_TIMESTAMP:
        found.append(f"Empty since {metadata.start_ms}")
    if not metadata.is_ending and metadata.next_producer_id != NO_PRODUCER_ID:
        found.append(f"{metadata.state.value} with the next producer id {metadata.next_producer_id}")
    if not machine.unmarked <= metadata.partitions or (machine.unmarked and not metadata.is_ending):
        found.append(f"{metadata.state.value} lacks markers in {sorted(machine.unmarked)}")
    return found
