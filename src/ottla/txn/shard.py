"""All transactional ids of one partition of `__transaction_state`, and one heap of their deadlines.

It has the runtime's protocol for shards. Beside that it needs the leader epoch of its partition, which markers carry:
`context.coordinator_epoch` is set before `loaded`, and each later epoch of the same leader begins with `lead`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ottla.deadlines import Deadlines
from ottla.records.control import TransactionMarker
from ottla.txn.events import (
    InitProducerId,
    MarkerToken,
    TransactionReply,
    TransactionRequest,
    TransactionStep,
    TransactionView,
)
from ottla.txn.failures import refused
from ottla.txn.machine import TransactionContext, TransactionLimits, TransactionMachine
from ottla.txn.metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.txn.records import TransactionRecord
from ottla.txn.states import TransactionState
from ottla.wire.broker_requests import BrokerOutcome
from ottla.wire.errors import ErrorCode


class TransactionShard:
    """The transactional ids of one partition. `loading` until `loaded` has been called."""

    __slots__ = ("_deadlines", "context", "loading", "machines", "partition")

    def __init__(self, partition: int, limits: TransactionLimits, take_producer_id: Callable[[], int | None]) -> None:
        self.partition = partition
        self.context = TransactionContext(limits, take_producer_id)
        self.loading = True
        self.machines: dict[str, TransactionMachine] = {}
        self._deadlines: Deadlines[str] = Deadlines()

    def handle(self, event: TransactionRequest, now_ms: int) -> TransactionStep:
        """Handle a request; the shell carries the step out and then calls `settle` with it."""
        error = self._refusal(event)
        if error is not ErrorCode.NONE:
            reply = TransactionReply(event.token, refused(event, error))
            return TransactionStep(event.transactional_id, replies=[reply])
        return self._machine(event.transactional_id).handle(event, now_ms)

    def request_done(self, outcome: BrokerOutcome, now_ms: int) -> TransactionStep:
        """Handle the outcome of a request to write a marker."""
        token = outcome.token
        assert isinstance(token, MarkerToken)
        machine = self.machines.get(token.transactional_id)
        if machine is None:
            return TransactionStep(token.transactional_id)
        return machine.marker_done(token, outcome, now_ms)

    def append_failed(self, step: TransactionStep, error: ErrorCode, now_ms: int) -> TransactionStep:
        """Handle a failed append of the batch of `step`."""
        return self.machines[step.transactional_id].append_failed(step, error, now_ms)

    def settle(self, step: TransactionStep) -> None:
        """The step was carried out: register its next deadline, or forget an id of which the log has nothing."""
        transactional_id = step.transactional_id
        machine = self.machines.get(transactional_id)
        if machine is None:
            return
        if machine.metadata is None:
            del self.machines[transactional_id]
        at_ms = machine.next_deadline_ms()
        if at_ms is None:
            self._deadlines.cancel(transactional_id)
        else:
            self._deadlines.set(transactional_id, at_ms)

    def next_deadline_ms(self) -> int | None:
        """The latest time at which `expire` must be called; it may find that nothing is due yet."""
        return self._deadlines.next()

    def expire(self, now_ms: int) -> TransactionStep | None:
        """Handle one passed deadline; None if there is none. The shell carries the step out and settles it."""
        transactional_id = self._deadlines.pop_due(now_ms)
        return None if transactional_id is None else self.machines[transactional_id].expire(now_ms)

    def replay(self, record: TransactionRecord, log_offset: int, producer_id: int = -1) -> None:
        """Apply a record that is in the log."""
        if record.metadata is not None or record.transactional_id in self.machines:
            self._machine(record.transactional_id).replay(record.metadata)

    def replay_marker(self, marker: TransactionMarker, log_offset: int) -> None:
        """Nothing: no transaction writes to this topic."""

    def committed(self, high_watermark: int) -> None:
        """Nothing: replies and requests wait for the high watermark in the runtime, and nothing else does."""

    def loaded(self, now_ms: int) -> Iterator[TransactionStep]:
        """Finish loading; each step is carried out and settled like any other, and then requests are accepted."""
        epoch = None
        while epoch != self.context.coordinator_epoch:  # a newer one may begin between two steps
            epoch = self.context.coordinator_epoch
            yield from self._resumed(now_ms)
        self.loading = False

    def lead(self, coordinator_epoch: int, now_ms: int) -> Iterator[TransactionStep]:
        """Continue in a newer epoch as the same leader: markers that are not written yet are sent in that epoch."""
        self.context.coordinator_epoch = coordinator_epoch
        return iter(()) if self.loading else self._resumed(now_ms)

    def unload(self, now_ms: int) -> Iterator[TransactionStep]:
        """Resign as coordinator: no request waits in a state machine."""
        return iter(())

    def describe(self, transactional_id: str) -> TransactionView | ErrorCode:
        """The state of one transactional id, or why there is none (DescribeTransactions)."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        machine = self.machines.get(transactional_id)
        view = None if machine is None else machine.view()
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if view is None else view

    def list(
        self,
        now_ms: int,
        producer_ids: Collection[int] = (),
        states: Collection[TransactionState] | None = None,
        longer_than_ms: int = -1,
    ) -> Iterator[TransactionView]:
        """The transactional ids (ListTransactions) of these producers, if any are named, and in these states.

        With `longer_than_ms` from 0 on, those whose latest transaction began longer ago than that. As in Apache Kafka,
        one that has had no transaction since InitProducerId counts as begun at the Unix epoch.
        """
        for machine in self.machines.values():
            view = machine.view()
            if (
                view is not None
                and (not producer_ids or view.producer_id in producer_ids)
                and (states is None or view.state in states)
                and (longer_than_ms < 0 or now_ms - view.start_ms > longer_than_ms)
            ):
                yield view

    def _refusal(self, event: TransactionRequest) -> ErrorCode:
        if isinstance(event, InitProducerId):
            has_epoch = event.producer_epoch != NO_PRODUCER_EPOCH
            if not event.transactional_id or has_epoch != (event.producer_id != NO_PRODUCER_ID):
                return ErrorCode.INVALID_REQUEST
            is_allowed = 0 < event.timeout_ms <= self.context.limits.max_timeout_ms
            return ErrorCode.NONE if is_allowed else ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if not event.transactional_id:
            return ErrorCode.INVALID_REQUEST
        is_known = event.transactional_id in self.machines
        return ErrorCode.NONE if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _resumed(self, now_ms: int) -> Iterator[TransactionStep]:
        for machine in list(self.machines.values()):
            yield machine.resume(now_ms)

    def _machine(self, transactional_id: str) -> TransactionMachine:
        machine = self.machines.get(transactional_id)
        if machine is None:
            machine = self.machines[transactional_id] = TransactionMachine(transactional_id, self.context)
        return machine
