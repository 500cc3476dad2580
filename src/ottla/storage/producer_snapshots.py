"""Producer snapshot files in a partition directory, and rebuilding the producers' state from them and the log."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.env.disk import Disk
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    MAGIC,
    PRODUCER_EPOCH_AT,
    TRANSACTIONAL_FLAG,
    parse_batch_header,
)
from ottla.storage.damage import segment_batches
from ottla.storage.files import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_file_name, offsets_of
from ottla.storage.producer_state import ProducerState
from ottla.storage.scan import ScannedBatch
from ottla.storage.segment import Segment

#: An expiration time that never passes.
NEVER_MS: Final = 2**63 - 1

#: Producer epoch and first sequence number.
_SEQUENCE: Final = struct.Struct(">hi")
_ATTRIBUTES_LOW_BYTE: Final = ATTRIBUTES_AT + 1


class ProducerSnapshots:
    """The snapshot files of one partition, by their offsets."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str, names: Sequence[str]) -> None:
        self._disk = disk
        self._directory = directory
        #: Increasing.
        self.offsets = sorted(offsets_of(names, SNAPSHOT_SUFFIX))

    @property
    def newest(self) -> int:
        """Offset of the newest snapshot, 0 if there is none."""
        return self.offsets[-1] if self.offsets else 0

    def load_newest(self, state: ProducerState, at_most: int, now_ms: int, expiration_ms: int) -> None:
        """Load `state` from the newest intact snapshot up to `at_most`; newer and damaged ones are removed. DiskError.

        If there is none, the state is empty, with end offset 0.
        """
        state.clear()
        while self.offsets:
            offset = self.offsets[-1]
            path = f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
            if offset <= at_most and state.load(self._disk.read_bytes(path), offset, now_ms, expiration_ms):
                return
            self.offsets.pop()
            self._disk.remove(path)

    def rewind(
        self, state: ProducerState, segments: Sequence[Segment], end_offset: int, now_ms: int, expiration_ms: int
    ) -> None:
        """Set `state` back to what it was at `end_offset`, where the log was cut; newer snapshots are removed.

        Raises DiskError.
        """
        ended = [each for each in state.unreplicated if each.last_offset < end_offset]
        if len(state):
            self.load_newest(state, end_offset, now_ms, expiration_ms)
            replay_log(state, segments, state.end_offset)
        else:  # there were none at any time that counts, so that nothing needs to be read
            while self.offsets and self.offsets[-1] > end_offset:
                self._disk.remove(f"{self._directory}/{offset_file_name(self.offsets.pop(), SNAPSHOT_SUFFIX)}")
        state.unreplicated = ended
        state.end_offset = end_offset

    def peek(self, state: ProducerState, at_most: int, now_ms: int) -> None:
        """Load `state` from the newest intact snapshot up to `at_most`, or empty; no file is changed. Raises DiskError.

        No producer is expired.
        """
        state.clear()
        for offset in reversed(self.offsets):
            path = f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
            if offset <= at_most and state.load(self._disk.read_bytes(path), offset, now_ms, NEVER_MS):
                return


def drop_snapshot(disk: Disk, directory: str, offset: int) -> list[str]:
    """Rename the snapshot of this offset, if there is one; returns the renamed file, to be deleted later. DiskError."""
    path = f"{directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
    if not disk.exists(path):
        return []
    disk.rename(path, path + DELETED_SUFFIX)
    return [path + DELETED_SUFFIX]


def replay_batch(state: ProducerState, batch: ScannedBatch) -> None:
    """Apply a batch of the log to the state, unless it is included already."""
    if batch.magic == MAGIC and batch.last_offset >= state.end_offset:
        data = batch.data
        if batch.producer_id < 0:
            state.end_offset = batch.last_offset + 1
        elif data[_ATTRIBUTES_LOW_BYTE] & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
            state.replay(parse_batch_header(data), data)
        else:
            epoch, sequence = _SEQUENCE.unpack_from(data, PRODUCER_EPOCH_AT)
            state.replay_plain(
                batch.producer_id, epoch, sequence, batch.first_offset, batch.last_offset, batch.max_timestamp
            )


def intact_batches(
    segments: Sequence[Segment], from_offset: int, to_number: int | None = None
) -> Iterator[tuple[Segment, ScannedBatch]]:
    """The intact batches from the one that holds `from_offset` on, up to the segment of that number; damaged ones are
    skipped. Raises DiskError.
    """
    for number, segment in enumerate(segments[:to_number]):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is None or following > from_offset:
            for found in segment_batches(segment, from_offset, following):
                if isinstance(found, ScannedBatch):
                    yield segment, found


def replay_log(state: ProducerState, segments: Sequence[Segment], from_offset: int) -> None:
    """Apply the batches from `from_offset` on to the state. Raises DiskError."""
    for _, batch in intact_batches(segments, from_offset):
        replay_batch(state, batch)
