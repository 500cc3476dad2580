"""The replicas of a partition on the disks of their brokers, compared batch for batch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from support.waiting import wait_until

#: Base offset, and the bytes that follow these twelve.
_BATCH_HEAD = struct.Struct(">qi")
SETTLE_TIMEOUT_S = 120.0


def batches(partition_directory: Path) -> dict[int, bytes]:
    """All whole batches in the segments of a partition, by their base offsets."""
    found: dict[int, bytes] = {}
    for segment in sorted(partition_directory.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + _BATCH_HEAD.size <= len(data):
            offset, size = _BATCH_HEAD.unpack_from(data, position)
            end = position + _BATCH_HEAD.size + size
            if size <= 0 or end > len(data):
                break
            found[offset] = data[position:end]
            position = end
    return found


def difference(directories: Sequence[Path]) -> str:
    """What the replicas do not have alike, from the latest of their first batches on; empty where there is nothing."""
    replicas = {directory: batches(directory) for directory in directories}
    start = max((min(found, default=0) for found in replicas.values()), default=0)
    kept = {
        directory: {offset: batch for offset, batch in found.items() if offset >= start}
        for directory, found in replicas.items()
    }
    first, *others = kept
    for other in others:
        if kept[first].keys() != kept[other].keys():
            only = sorted(kept[first].keys() ^ kept[other].keys())
            return f"{first} and {other} differ in the batches at {only[:5]} ({len(only)} in all)"
        for offset, batch in kept[first].items():
            if batch != kept[other][offset]:
                return f"the batch at {offset}: {first} {batch[:61].hex()}, {other} {kept[other][offset][:61].hex()}"
    return ""


def wait_until_equal(log_directories: Sequence[Path], topic: str, partition: int) -> int:
    """Until the replicas are equal, batch for batch; how many batches they have."""
    directories = [directory / f"{topic}-{partition}" for directory in log_directories]
    missing = [str(directory) for directory in directories if not directory.is_dir()]
    assert not missing, f"no such replicas: {missing}"
    wait_until(
        lambda: not difference(directories), lambda: difference(directories) or "equal replicas", SETTLE_TIMEOUT_S, 0.2
    )
    return len(batches(directories[0]))
