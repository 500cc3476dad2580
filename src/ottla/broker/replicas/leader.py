"""The leader's state in one leader epoch, and its high watermark: Kafka's rules (`Partition.scala`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

#: The end offset of a replica that has not fetched in this leader epoch yet.
UNKNOWN_END: Final = -1


class Leader:
    """The leadership of one partition in one leader epoch.

    A record is committed once every replica of the maximal ISR has it: the committed ISR, and the replicas that a
    pending change adds to it; those that a pending change removes still count.
    """

    __slots__ = ("_ends", "epoch", "is_alone", "isr", "maximal_isr", "start_offset")

    def __init__(
        self, replica_id: int, epoch: int, replicas: Collection[int], isr: Iterable[int], start_offset: int
    ) -> None:
        self.epoch = epoch
        #: Start of the leader epoch: the log end offset when leadership began.
        self.start_offset = start_offset
        #: The known end offset of each other replica.
        self._ends = {other: UNKNOWN_END for other in replicas if other != replica_id}
        #: Whether there is no other replica, so that the leader's own records are committed.
        self.is_alone = not self._ends
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr

    def set_isr(self, isr: Collection[int], pending: Collection[int] = ()) -> None:
        """Set the committed ISR, and the one proposed to the controller and not answered yet."""
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr | frozenset(pending)

    def fetched(self, replica_id: int, end_offset: int) -> None:
        """Note that a follower has everything below `end_offset`; ignored if it is no replica of the partition."""
        if replica_id in self._ends:
            self._ends[replica_id] = end_offset

    def effective_minimum(self, min_insync_replicas: int) -> int:
        """The required ISR size: the setting, but at most the number of replicas."""
        return min(min_insync_replicas, 1 + len(self._ends))

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the ISR is large enough for acks=-1."""
        return len(self.isr) >= self.effective_minimum(min_insync_replicas)

    def high_watermark(self, before: int, own_end: int, min_insync_replicas: int, joining: Collection[int] = ()) -> int:
        """The smallest end offset of the maximal ISR and of the replicas about to join it.

        It never decreases within the epoch, and does not advance while the ISR is too small. `own_end` is the end
        of this replica's own records as far as they count, `joining` are live replicas that have caught up.
        """
        if not self.has_enough(min_insync_replicas):
            return before
        counted = (end for other, end in self._ends.items() if other in self.maximal_isr or other in joining)
        return max(before, min((own_end, *counted)))
