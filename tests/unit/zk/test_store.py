from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import DiskError, RealDisk
from ottla.env.disk_faulty import FaultyDisk
from ottla.env.disk_memory import MemoryDisk
from ottla.env.executor import InlineExecutor
from ottla.zk import store as store_module
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME, TreeDamaged, TreeStore
from ottla.zk.tree import Create, Delete, NodeExistsError, Operation, Set

CLOCK = VirtualClock(5000)
SESSION = 1
T = TypeVar("T")


def durable(store: TreeStore) -> dict[str, tuple[object, ...]]:
    return {
        path: (*node.stat(), node.data, frozenset(node.children))
        for path, node in store.tree.nodes.items()
        if not node.ephemeral_owner
    }


def filled(disk: MemoryDisk) -> TreeStore:
    store = TreeStore.open(disk, "/t", CLOCK, InlineExecutor())
    operations: list[Operation] = [
        Create("/a", "ünïcode \0 {}".encode()),
        Create("/a/b", bytes(range(256))),
        Create("/a/c"),
    ]
    store.execute(operations, SESSION)
    store.execute([Set("/a", b"second"), Delete("/a/c")], SESSION)
    return store


def test_the_tree_survives_the_process() -> None:
    disk = MemoryDisk()
    before = durable(filled(disk))
    # The first store is neither closed nor flushed: the process was killed.
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == before


def test_ephemeral_nodes_end_with_the_process() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    store.execute([Create("/e", ephemeral=True), Create("/kept")], SESSION)
    store.execute([Set("/e", b"x")], SESSION)
    again = TreeStore.open(disk, "/t", CLOCK)
    assert sorted(again.tree.nodes) == ["/", "/a", "/a/b", "/kept"]
    assert again.tree.children("/") == ["a", "kept"]


def test_sequential_numbers_go_on_after_a_restart() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    (first,) = store.execute([Create("/a/n-", sequential=True)], SESSION).results
    again = TreeStore.open(disk, "/t", CLOCK)
    (second,) = again.execute([Create("/a/n-", sequential=True)], SESSION).results
    assert str(second) > str(first)


def test_a_snapshot_holds_everything_and_empties_the_log() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    before = durable(store)
    store.snapshot()
    assert disk.file_size(f"/t/{LOG_NAME}") == 0
    store.execute([Create("/later")], SESSION)
    after = durable(store)
    assert before.keys() < after.keys()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == after


def test_records_that_the_snapshot_holds_already_are_passed_over() -> None:
    """Killed between writing the snapshot and emptying the log."""
    disk = MemoryDisk()
    store = filled(disk)
    log = disk.read_bytes(f"/t/{LOG_NAME}")
    store.snapshot()
    disk.write_atomic(f"/t/{LOG_NAME}", log)
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_long_log_becomes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 300)
    disk = MemoryDisk()
    store = filled(disk)
    for number in range(20):
        store.execute([Create(f"/n{number}")], SESSION)
    assert disk.file_size(f"/t/{LOG_NAME}") < 600
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_closing_shortens_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AT_CLOSE_BYTES", 100)
    disk = MemoryDisk()
    store = filled(disk)
    before = durable(store)
    store.close()
    assert disk.file_size(f"/t/{LOG_NAME}") == 0
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == before


def test_a_full_disk_leaves_the_tree_as_it_was() -> None:
    disk = FaultyDisk(MemoryDisk())
    store = TreeStore.open(disk, "/t", CLOCK)
    store.execute([Create("/a")], SESSION)
    before = durable(store)
    disk.capacity = 0
    with pytest.raises(DiskError):
        store.execute([Create("/b"), Set("/a", b"x")], SESSION)
    assert durable(store) == before
    disk.heal()
    store.execute([Create("/b")], SESSION)
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_failing_snapshot_is_no_failure_of_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 10)
    disk = FaultyDisk(MemoryDisk())
    store = TreeStore.open(disk, "/t", CLOCK)
    disk.fail("replace", f"*/{SNAPSHOT_NAME}", errno.EIO)
    store.execute([Create("/a")], SESSION)
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_damaged_snapshot_is_told_with_a_cure() -> None:
    disk = MemoryDisk()
    filled(disk).snapshot()
    disk.flip(f"/t/{SNAPSHOT_NAME}", 30)
    with pytest.raises(TreeDamaged, match=rf"/t/{SNAPSHOT_NAME} is damaged.*Restore it"):
        TreeStore.open(disk, "/t", CLOCK)


@pytest.mark.parametrize("tail", [bytes(3), bytes(8), bytes(4096), b"\0\0\0\5abcd"])
def test_what_a_loss_of_power_leaves_behind_the_log_is_cut_off(tail: bytes) -> None:
    disk = MemoryDisk()
    store = filled(disk)
    nodes = set(store.tree.nodes)
    path = f"/t/{LOG_NAME}"
    disk.write_atomic(path, disk.read_bytes(path) + tail)
    again = TreeStore.open(disk, "/t", CLOCK)
    assert set(again.tree.nodes) == nodes
    again.execute([Create("/new")], SESSION)
    assert "/new" in TreeStore.open(disk, "/t", CLOCK).tree.nodes


def test_a_damaged_record_among_others_is_told_and_nothing_is_cut_off() -> None:
    whole = MemoryDisk()
    filled(whole)
    content = whole.read_bytes(f"/t/{LOG_NAME}")
    length, _ = struct.unpack_from(">II", content)
    for position in range(8 + length):
        disk = MemoryDisk()
        filled(disk)
        disk.flip(f"/t/{LOG_NAME}", position)
        with pytest.raises(
            TreeDamaged, match=rf"damaged at byte 0, and goes on at byte {8 + length}\. .*truncate -s 0"
        ):
            TreeStore.open(disk, "/t", CLOCK)
        assert disk.file_size(f"/t/{LOG_NAME}") == len(content)


def test_a_hole_that_a_loss_of_power_left_ends_the_log() -> None:
    disk = MemoryDisk()
    before = durable(filled(disk))
    forced = disk.file_size(f"/t/{LOG_NAME}")
    store = TreeStore.open(disk, "/t", CLOCK)
    store.execute([Create("/hole", b"x" * 2000)], SESSION)
    store.execute([Create("/later")], SESSION)
    content = bytearray(disk.read_bytes(f"/t/{LOG_NAME}"))
    content[forced + 100 : forced + 1124] = bytes(1024)
    disk.write_atomic(f"/t/{LOG_NAME}", bytes(content))
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == before
    assert disk.file_size(f"/t/{LOG_NAME}") == forced


def test_a_log_that_does_not_fit_is_told_with_a_cure() -> None:
    disk = MemoryDisk()
    other = TreeStore.open(disk, "/o", CLOCK)
    other.execute([Create("/x")], SESSION)
    size = disk.file_size(f"/o/{LOG_NAME}")
    other.execute([Create("/x/y")], SESSION)
    # The log without its first record.
    disk.mkdirs("/t")
    disk.write_atomic(f"/t/{LOG_NAME}", disk.read_bytes(f"/o/{LOG_NAME}")[size:])
    with pytest.raises(TreeDamaged, match="does not fit"):
        TreeStore.open(disk, "/t", CLOCK)


def test_a_refused_transaction_is_not_logged() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    size = disk.file_size(f"/t/{LOG_NAME}")
    with pytest.raises(NodeExistsError):
        store.execute([Create("/new"), Create("/a")], SESSION)
    assert disk.file_size(f"/t/{LOG_NAME}") == size


class SlowExecutor(InlineExecutor):
    """Does its work when told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        def later() -> None:
            try:
                result = work()
            except DiskError as error:
                done(None, error)
            else:
                done(result, None)

        self.waiting.append(later)


def test_one_flush_at_a_time_covers_all_writes() -> None:
    executor = SlowExecutor()
    store = TreeStore.open(MemoryDisk(), "/t", CLOCK, executor)
    for number in range(5):
        store.execute([Create(f"/n{number}")], SESSION)
    assert len(executor.waiting) == 1
    executor.waiting.pop()()
    assert len(executor.waiting) == 1, "what was written meanwhile is forced, too"
    executor.waiting.pop()()
    assert executor.waiting == []


def test_a_flush_that_fails_is_tried_again_with_the_next_write() -> None:
    disk, executor = FaultyDisk(MemoryDisk()), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor)
    disk.fail("flush", times=1)
    store.execute([Create("/a")], SESSION)
    executor.waiting.pop()()
    assert executor.waiting == []
    store.execute([Create("/b")], SESSION)
    assert len(executor.waiting) == 1


def test_closing_while_a_disk_thread_flushes() -> None:
    executor = SlowExecutor()
    store = TreeStore.open(MemoryDisk(), "/t", CLOCK, executor)
    store.execute([Create("/a")], SESSION)
    store.execute([Create("/b")], SESSION)
    store.close()
    executor.waiting.pop()()
    assert executor.waiting == [], "nothing is begun after the end"


def test_on_a_real_disk(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    store = TreeStore.open(RealDisk(), folder, CLOCK)
    store.execute([Create("/a", b"1")], SESSION)
    store.close()
    again = TreeStore.open(RealDisk(), folder, CLOCK)
    assert again.tree.get("/a").data == b"1"
    again.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [LOG_NAME]
