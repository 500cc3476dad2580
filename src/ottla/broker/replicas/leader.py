"""What a leader knows of one leader epoch, and how far that is committed: Kafka's rules (`Partition.scala`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

#: The end of a replica that has not fetched in this leader epoch yet.
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
        #: Where the leader epoch begins: the log's end when the leader was made.
        self.start_offset = start_offset
        #: How far each other replica is known to have the log.
        self._ends = {other: UNKNOWN_END for other in replicas if other != replica_id}
        #: Whether there is no other replica: what the leader has is committed then.
        self.is_alone = not self._ends
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr

    def set_isr(self, isr: Collection[int], pending: Collection[int] = ()) -> None:
        """The committed ISR, and the one that was proposed to the controller and is not answered yet."""
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr | frozenset(pending)

    def fetched(self, replica_id: int, end_offset: int) -> None:
        """A follower has everything below `end_offset`. One that is no replica of the partition does not count."""
        if replica_id in self._ends:
            self._ends[replica_id] = end_offset

    def effective_minimum(self, min_insync_replicas: int) -> int:
        """The size that the ISR must have: the setting, and never more than there are replicas."""
        return min(min_insync_replicas, 1 + len(self._ends))

    def has_enough(self, min_insync_replicas: int) -> bool:
        """Whether the ISR is large enough for records that all of it has to acknowledge."""
        return len(self.isr) >= self.effective_minimum(min_insync_replicas)

    def high_watermark(self, before: int, own_end: int, min_insync_replicas: int, joining: Collection[int] = ()) -> int:
        """The least end over the maximal ISR and over the replicas that are about to join it.

        It never moves back within the epoch, and stands still while the ISR is too small. `own_end` is how far this
        replica's own records count, `joining` are live replicas that have caught up.
        """
        if not self.has_enough(min_insync_replicas):
            return before
        counted = (end for other, end in self._ends.items() if other in self.maximal_isr or other in joining)
        return max(before, min((own_end, *counted)))
