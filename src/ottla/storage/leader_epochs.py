"""The start of each leader epoch of a partition (KIP-101), in Kafka's `leader-epoch-checkpoint` format. Pure."""

from __future__ import annotations

from typing import Final

from ottla.storage.checkpoints import CheckpointError, decode_entries, encode_entries
from ottla.storage.results import EpochEnd

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
UNKNOWN: Final = -1


class LeaderEpochs:
    """(epoch, first offset) pairs, both increasing. `dirty` says that the file is out of date."""

    __slots__ = ("dirty", "entries")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []
        self.dirty = False

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1][0] if self.entries else UNKNOWN

    @property
    def earliest(self) -> int:
        """The oldest epoch, -1 if there is none."""
        return self.entries[0][0] if self.entries else UNKNOWN

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`; conflicting entries are dropped. Returns whether anything changed."""
        entries = self.entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.dirty = True
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, -1 where unknown."""
        for epoch, start in reversed(self.entries):
            if start <= offset:
                return epoch
        return UNKNOWN

    def end_of(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch that is at most `epoch`, and where it ended."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return EpochEnd(UNKNOWN, UNKNOWN)
        if epoch == entries[-1][0]:
            return EpochEnd(epoch, log_end_offset)
        floor = UNKNOWN
        for known, start in entries:
            if known > epoch:
                return EpochEnd(epoch if floor == UNKNOWN else floor, start)
            floor = known
        return EpochEnd(UNKNOWN, UNKNOWN)

    def truncate_end(self, offset: int) -> None:
        """The log now ends at `offset`."""
        remaining = [entry for entry in self.entries if entry[1] < offset]
        if len(remaining) != len(self.entries):
            self.entries = remaining
            self.dirty = True

    def truncate_start(self, offset: int) -> None:
        """The log now starts at `offset`: the epoch in force there starts there."""
        entries = self.entries
        passed = sum(1 for entry in entries if entry[1] <= offset)
        if passed and entries[passed - 1][1] != offset:
            self.entries = [(entries[passed - 1][0], offset), *entries[passed:]]
            self.dirty = True
        elif passed > 1:
            self.entries = entries[passed - 1 :]
            self.dirty = True

    def encode(self) -> bytes:
        """The checkpoint file."""
        return encode_entries([f"{epoch} {start}" for epoch, start in self.entries])


def decode_leader_epochs(data: bytes, path: str) -> LeaderEpochs:
    """Read a checkpoint file (an empty one holds no epochs); raises CheckpointError, whose message names `path`."""
    entries: list[tuple[int, int]] = []
    for line in decode_entries(data, path):
        try:
            epoch, start = map(int, line.split())
        except ValueError:
            raise CheckpointError(f"{path}: not an epoch and its start offset: {line!r}") from None
        if entries and (epoch <= entries[-1][0] or start < entries[-1][1]):
            raise CheckpointError(f"{path}: epochs do not grow at {line!r}")
        entries.append((epoch, start))
    return LeaderEpochs(entries)
