from __future__ import annotations

from ottla.storage.producer_snapshots import ProducerSnapshots, replay_log
from ottla.storage.producer_state import ProducerState
from ottla.testing.disk_memory import MemoryDisk
from support.storage_logs import NOW_MS, append, batch, log_config, new_log

FOREVER_MS = 10**12


def test_the_newest_whole_one_counts_and_the_others_go() -> None:
    disk = MemoryDisk()
    disk.mkdirs("/data")
    log = new_log(disk, "/data", log_config(segment_bytes=len(batch(3))))
    for number in range(4):
        append(log, batch(3, producer_id=1, producer_epoch=0, base_sequence=3 * number))
    snapshots = ProducerSnapshots(disk, log.directory, disk.listdir(log.directory))
    assert snapshots.offsets == [3, 6, 9]
    state = ProducerState()
    disk.flip(f"{log.directory}/{6:020d}.snapshot", 12)
    snapshots.load_newest(state, 8, NOW_MS, FOREVER_MS)
    assert (snapshots.newest, state.end_offset) == (3, 3)
    assert [name for name in disk.listdir(log.directory) if name.endswith(".snapshot")] == [f"{3:020d}.snapshot"]
    entry = state.get(1)
    assert entry is not None
    assert entry.last_sequence == 2
    replay_log(state, log.segments, state.end_offset)
    assert state.encode() == log.producers.encode()
    snapshots.load_newest(state, 2, NOW_MS, FOREVER_MS)
    assert (snapshots.newest, state.end_offset, len(state)) == (0, 0, 0)


def test_a_directory_without_any() -> None:
    disk = MemoryDisk()
    snapshots = ProducerSnapshots(disk, "/t", ["x.snapshot", "00000000000000000001.log"])
    state = ProducerState()
    state.end_offset = 5
    snapshots.load_newest(state, 100, NOW_MS, FOREVER_MS)
    assert (state.end_offset, snapshots.newest) == (0, 0)
