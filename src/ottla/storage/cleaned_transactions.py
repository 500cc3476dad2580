"""Which batches of a log belong to aborted transactions, and which markers have no records of their transaction left.

The cleaner passes in every batch of a range of the log, in order. Rules as in Kafka's `CleanedTransactionMetadata`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.record import decode_batch
from ottla.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the cleaner's position in the log."""

    __slots__ = ("_aborted", "_committed", "_waiting", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._waiting)
        #: Aborted transactions that are open here, and whether a batch of each was seen, by producer id.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        #: Producers of other transactions of which a batch was seen.
        self._committed: set[int] = set()
        #: Aborted transactions whose markers are kept, for the new index; the cleaner takes and clears them.
        self.retained: list[AbortedTransaction] = []

    def batch_is_aborted(self, header: BatchHeader) -> bool:
        """Register a data batch; returns whether its transaction was aborted, so that its records may be removed."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker_is_spent(self, header: BatchHeader, data: memoryview) -> bool:
        """Register a control batch (`data` is the whole batch); returns whether no batch of its transaction is left."""
        self._begin_up_to(header.last_offset)
        if not header.records_count:
            return True
        kind = control_record_type(decode_batch(data, header)[0].key)
        if kind == ControlRecordType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                self.retained.append(found[0])
                return False
            return True
        if kind == ControlRecordType.COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            transaction = heapq.heappop(waiting)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def take_retained(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call."""
        retained, self.retained = self.retained, []
        return retained
