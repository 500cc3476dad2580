"""The state of a transactional id as the log keeps it, and what each transition makes of it.

Source: Apache Kafka 3.9, `kafka.coordinator.transaction.TransactionMetadata`; for the newer protocol that of 4.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ottla.txn.states import TransactionState

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 2**15 - 1
EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""The last epoch that a producer gets; the one after it is for fencing that producer."""
BUMPING_VERSION = 2
"""The first `transaction.version` in which the end of each transaction bumps the epoch (KIP-890)."""

TopicPartition = tuple[str, int]
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id. Times are milliseconds since the Unix epoch; -1 stands for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    """Those of the transaction under way, or about to end."""
    start_ms: int = NO_TIMESTAMP
    """When the latest transaction began; -1 if none has since InitProducerId."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last rotation or InitProducerId: a repeated request may still have it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id from the end of this transaction on, if its epochs are exhausted (newer protocol)."""
    client_transaction_version: int = 0
    """The `transaction.version` that the client speaks, as far as the latest transaction showed it."""
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    """The epoch before the last bump, by which a repeated InitProducerId is known (KIP-360).

    It is not in the log: after loading, such a request is fenced, as in Apache Kafka.
    """

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a producer."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def bumps(self) -> bool:
        """Whether the newer protocol ends, or ended, the latest transaction."""
        return self.client_transaction_version >= BUMPING_VERSION

    @property
    def is_ending(self) -> bool:
        """Whether the end of the transaction is decided, and not complete."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    def initialized(
        self, producer_id: int, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """After an InitProducerId."""
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        )

    def added(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> TransactionMetadata:
        """With partitions added, in the first transaction or in the one under way."""
        is_new = self.state is not TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if is_new else self.start_ms,
            last_update_ms=now_ms,
            client_transaction_version=version,
        )

    def prepared(
        self, is_commit: bool, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """With its end decided by the producer; the newer protocol bumps the epoch."""
        decided = replace(
            self,
            state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            next_producer_id=next_producer_id,
            client_transaction_version=version,
        )
        return decided._bumped(self.producer_epoch) if decided.bumps else decided

    def fenced(self, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> TransactionMetadata:
        """With its abort decided by the coordinator; the next epoch fences the producer in either protocol."""
        decided = self.prepared(False, version, now_ms, next_producer_id)
        return decided if decided.bumps else decided._bumped(NO_PRODUCER_EPOCH)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """With all markers written."""
        is_rotated = self.bumps and self.next_producer_id != NO_PRODUCER_ID
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return replace(
            self,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            producer_epoch=0 if is_rotated else self.producer_epoch,
            previous_producer_id=self.producer_id if self.bumps else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=NO_PARTITIONS,
            last_update_ms=now_ms,
        )

    def _bumped(self, last_producer_epoch: int) -> TransactionMetadata:
        epoch = min(self.producer_epoch + 1, MAX_EPOCH)
        return replace(self, producer_epoch=epoch, last_producer_epoch=last_producer_epoch)
