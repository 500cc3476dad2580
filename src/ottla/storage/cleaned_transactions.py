"""Which batches of a log belong to aborted transactions, and which markers have outlived their transactions' records.

The cleaner shows every batch of a stretch of log, in order. Rules as in Apache Kafka's `CleanedTransactionMetadata`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ottla.records.batch import BatchHeader
from ottla.records.control import ControlRecordType, control_record_type
from ottla.records.record import decode_batch
from ottla.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the place in the log that the cleaner has reached."""

    __slots__ = ("_aborted", "_committed", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._waiting)
        #: Aborted transactions that are open here: [transaction, whether a batch of it was seen].
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        #: Producers of other transactions of which a batch was seen.
        self._committed: set[int] = set()
        #: Aborted transactions whose markers stay, for the new index; taken and emptied by the cleaner.
        self.kept: list[AbortedTransaction] = []

    def batch_is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch; whether its transaction was aborted, so that its records may go."""
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
        """Take note of a control batch (`data` is the whole of it); whether no batch of its transaction is left."""
        self._begin_up_to(header.last_offset)
        if not header.records_count:
            return True
        kind = control_record_type(decode_batch(data, header)[0].key)
        if kind == ControlRecordType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is not None and found[1]:
                self.kept.append(found[0])
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

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers stayed since the last call."""
        kept, self.kept = self.kept, []
        return kept
