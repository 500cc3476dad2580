from __future__ import annotations

import asyncio
import errno
import json
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.disk import DiskError, RealDisk
from ottla.env.executor import InlineExecutor
from ottla.records.crc import crc32c
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk import store as store_module
from ottla.zk import tree_format
from ottla.zk.acl import OPEN_ACL, Acl
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME, TreeDamaged, TreeStore
from ottla.zk.tree import (
    Create,
    Delete,
    NodeExistsError,
    OpenSession,
    Operation,
    SessionExpiredError,
    Set,
    SetAcl,
)

CLOCK = VirtualClock(5000)
SESSION = 1
#: A session of another process.
DURABLE = FIRST_DURABLE_SESSION + 5
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


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_sessions_of_other_processes_and_what_is_theirs_survive(with_snapshot: bool) -> None:
    disk = MemoryDisk()
    store = filled(disk)
    acl = (Acl(1, "world", "anyone"), Acl(31, "digest", "me:x"))
    store.execute([OpenSession(DURABLE, b"\0pass\xff", 4000)], DURABLE)
    store.execute([OpenSession(DURABLE + 1, b"other", 5000)], DURABLE)
    store.execute([Create("/theirs", b"1", ephemeral=True, acl=acl), Create("/e", ephemeral=True)], DURABLE)
    store.execute([Create("/gone", ephemeral=True)], DURABLE + 1)
    store.execute([Create("/local", ephemeral=True)], SESSION)
    store.execute([SetAcl("/a", acl), Set("/theirs", b"2")], DURABLE)
    store.expire_session(DURABLE + 1)
    if with_snapshot:
        store.snapshot()
        assert disk.file_size(f"/t/{LOG_NAME}") == 0
    again = TreeStore.open(disk, "/t", CLOCK)
    assert again.tree.sessions == {DURABLE: (b"\0pass\xff", 4000)}
    assert again.tree.ephemerals() == {DURABLE: ["/e", "/theirs"]}
    assert again.tree.children("/") == ["a", "e", "theirs"]
    assert again.tree.get("/theirs").stat() == store.tree.get("/theirs").stat()
    assert (again.tree.get("/a").acl, again.tree.get("/a").aversion) == (acl, 1)
    assert again.tree.get("/a/b").acl is OPEN_ACL
    again.expire_session(DURABLE)
    last = TreeStore.open(disk, "/t", CLOCK).tree
    assert (last.children("/"), last.sessions, last.ephemerals()) == (["a"], {}, {})


def test_an_ephemeral_node_needs_a_session_that_lives() -> None:
    store = filled(MemoryDisk())
    with pytest.raises(SessionExpiredError):
        store.execute([Create("/e", ephemeral=True)], DURABLE)


def record(value: object) -> bytes:
    payload = json.dumps(value, separators=(",", ":")).encode()
    return struct.pack(">II", len(payload), crc32c(payload)) + payload


def test_trees_of_older_versions_are_read() -> None:
    """A snapshot of format 1, and records that do not name a format; their counters went on from the cversion."""
    disk = MemoryDisk()
    disk.mkdirs("/t")
    root = ["/", "", 0, 0, 3, 0, 0, 0, 1, 0]
    node = ["/a", "x", 3, 3, 4, 10, 10, 2, 7, 1]
    disk.write_atomic(f"/t/{SNAPSHOT_NAME}", record([1, 4, [root, node]]))
    log = [[5, 20, [["create", "/a/n-0000000007", None, 8]]], [6, 30, [["set", "/a", "y", 3]]]]
    disk.write_atomic(f"/t/{LOG_NAME}", b"".join(map(record, log)))
    store = TreeStore.open(disk, "/t", CLOCK)
    assert store.tree.last_zxid == 6
    stat = store.tree.get("/a").stat()
    assert (stat.version, stat.aversion, stat.children_count, stat.pzxid, stat.mzxid) == (3, 1, 1, 5, 6)
    assert store.execute([Create("/a/n-", sequential=True)], SESSION).results == ("/a/n-0000000008",)
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_large_trees_are_written_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 300)
    disk = MemoryDisk()
    store = filled(disk)
    for number in range(100):
        store.execute([Create(f"/n{number}", b"x" * 100)], SESSION)
    store.snapshot()
    written = disk.read_bytes(f"/t/{SNAPSHOT_NAME}")
    for _ in range(2):
        store.execute([Set("/n1", b"y" * (len(written) - 100))], SESSION)
        assert disk.read_bytes(f"/t/{SNAPSHOT_NAME}") == written
    store.execute([Set("/n1", b"z" * 400)], SESSION)
    assert disk.read_bytes(f"/t/{SNAPSHOT_NAME}") != written
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_long_log_becomes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 300)
    monkeypatch.setattr(store_module, "SNAPSHOT_SHARE", 0)
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
    disk.fail("replace", f"*/{SNAPSHOT_NAME}.*", errno.EIO)
    store.execute([Create("/a")], SESSION)
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_damaged_snapshot_is_reported_with_a_cure() -> None:
    disk = MemoryDisk()
    filled(disk).snapshot()
    disk.flip(f"/t/{SNAPSHOT_NAME}", 30)
    with pytest.raises(TreeDamaged, match=rf"/t/{SNAPSHOT_NAME} is damaged.*Restore the files"):
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
    (note,) = again.notes
    assert f"cut {len(tail)} bytes" in note
    again.execute([Create("/new")], SESSION)
    assert "/new" in TreeStore.open(disk, "/t", CLOCK).tree.nodes


def test_a_damaged_record_among_others_is_reported_and_nothing_is_cut_off() -> None:
    whole = MemoryDisk()
    filled(whole)
    content = whole.read_bytes(f"/t/{LOG_NAME}")
    length, _ = struct.unpack_from(">II", content)
    for position in range(8 + length):
        disk = MemoryDisk()
        filled(disk)
        disk.flip(f"/t/{LOG_NAME}", position)
        with pytest.raises(
            TreeDamaged, match=rf"damaged at byte 0, and continues at byte {8 + length}\. .*tree.unclean.start"
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
    again = TreeStore.open(disk, "/t", CLOCK)
    assert durable(again) == before
    assert disk.file_size(f"/t/{LOG_NAME}") == forced
    (note,) = again.notes
    assert "a hole of zeros" in note


def test_a_log_that_does_not_fit_is_reported_with_a_cure() -> None:
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


class Listener:
    """Notes what a store tells its server."""

    def __init__(self) -> None:
        self.forced_zxids: list[int] = []
        self.failures: list[DiskError] = []

    def forced(self, zxid: int) -> None:
        self.forced_zxids.append(zxid)

    def failed(self, error: DiskError) -> None:
        self.failures.append(error)


def in_loop(body: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(body())


def test_a_server_is_notified_what_is_forced_and_writes_of_one_turn_share_a_flush() -> None:
    async def body() -> None:
        executor, listener = SlowExecutor(), Listener()
        store = TreeStore.open(MemoryDisk(), "/t", CLOCK, executor, flush_on_ack=True)
        store.listen(listener)
        for name in ("/a", "/b"):
            store.execute([Create(name)], SESSION)
        assert (store.forced_zxid, executor.waiting) == (0, [])
        await asyncio.sleep(0)
        store.execute([Create("/c")], SESSION)
        store.execute([Delete("/a")], SESSION)
        assert [store.unforced(path) for path in ("/a", "/b", "/c", "/", "/d")] == [5, 3, 4, 5, 0]
        executor.waiting.pop()()
        assert listener.forced_zxids == [3]
        assert [store.unforced(path) for path in ("/a", "/b", "/c", "/")] == [5, 0, 4, 5]
        await asyncio.sleep(0)
        executor.waiting.pop()()
        assert listener.forced_zxids == [3, 5]
        assert store.unforced("/") == 0

    in_loop(body)


def test_a_server_is_notified_of_a_flush_that_fails() -> None:
    async def body() -> None:
        disk, executor, listener = FaultyDisk(MemoryDisk()), SlowExecutor(), Listener()
        store = TreeStore.open(disk, "/t", CLOCK, executor, flush_on_ack=True)
        store.listen(listener)
        disk.fail("flush", times=1)
        store.execute([Create("/a")], SESSION)
        await asyncio.sleep(0)
        executor.waiting.pop()()
        assert listener.forced_zxids == []
        assert [error.errno for error in listener.failures] == [errno.EIO]
        with pytest.raises(DiskError):
            store.execute([Create("/b")], SESSION)

    in_loop(body)


def test_every_transaction_that_a_client_elsewhere_may_see_has_its_number_on_disk() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store = TreeStore.open(disk, "/t", CLOCK, InlineExecutor())
        store.execute([Create("/e", ephemeral=True)], SESSION)
        store.listen(Listener())
        store.execute([Set("/e", b"1")], SESSION)
        assert store.forced_zxid == store.tree.last_zxid
        again = TreeStore.open(disk, "/t", CLOCK)
        assert again.tree.last_zxid == store.tree.last_zxid
        assert list(again.tree.nodes) == ["/"]

    in_loop(body)


def test_a_disk_thread_writes_the_snapshot_while_the_log_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    disk, executor = MemoryDisk(), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor, flush_on_ack=True)
    store.execute([Create("/big", b"x" * 3000)], SESSION)
    store.execute([Create("/later", b"y" * 100)], SESSION)
    flush, write_snapshot = executor.waiting
    executor.waiting.clear()
    store.execute([Set("/big", b"z")], SESSION)
    write_snapshot()
    assert disk.file_size(f"/t/{LOG_NAME}") > 3000, "a flush is under way: the file stays"
    flush()
    assert 0 < disk.file_size(f"/t/{LOG_NAME}") < 400
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)
    store.execute([Create("/last")], SESSION)
    for each in executor.waiting:
        each()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def grown(monkeypatch: pytest.MonkeyPatch, disk: MemoryDisk) -> tuple[TreeStore, SlowExecutor]:
    """A tree of 100 nodes whose log is long enough for a snapshot, which is made of ten nodes in each turn."""
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    monkeypatch.setattr("ottla.zk.tree_capture.NODES_PER_SLICE", 10)
    executor = SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor)
    store.execute([Create(f"/{number}", b"x" * 30) for number in range(100)], SESSION)
    executor.waiting.clear()
    return store, executor


def test_a_large_tree_is_copied_in_several_turns_while_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        store, executor = grown(monkeypatch, disk)
        zxid, turns = store.tree.last_zxid, 0
        while not executor.waiting:
            turns += 1
            # It changes what is copied already and what is not, and takes some away.
            store.execute([Set("/0", b"y"), Set("/99", b"%d" % turns), Delete(f"/{50 + turns}")], SESSION)
            executor.waiting.clear()
            await asyncio.sleep(0)
        assert turns > 5
        executor.waiting[-1]()
        snapshot = TreeStore.open(disk.copy(), "/t", CLOCK)
        assert durable(snapshot) == durable(store)
        disk.open(f"/t/{LOG_NAME}").truncate(0)
        alone = TreeStore.open(disk, "/t", CLOCK, unclean_start=True).tree
        assert (alone.last_zxid, len(alone.nodes)) == (zxid, 101)
        assert {node.data for path, node in alone.nodes.items() if path != "/"} == {b"x" * 30}

    in_loop(body)


def test_a_store_that_closes_while_it_copies_the_tree_writes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        disk = MemoryDisk()
        monkeypatch.setattr(store_module, "SNAPSHOT_AT_CLOSE_BYTES", 10)
        store, _ = grown(monkeypatch, disk)
        store.execute([Set("/99", b"last")], SESSION)
        store.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert disk.file_size(f"/t/{LOG_NAME}") == 0
        assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)

    in_loop(body)


def test_a_snapshot_that_a_disk_thread_still_writes_replaces_none_that_is_newer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    monkeypatch.setattr(store_module, "SNAPSHOT_AT_CLOSE_BYTES", 10)
    disk, executor = MemoryDisk(), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor)
    store.execute([Create("/big", b"x" * 3000)], SESSION)
    store.execute([Create("/later")], SESSION)
    before = durable(store)
    store.close()
    for each in executor.waiting:
        each()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == before


@pytest.mark.parametrize(("operation", "name"), [("rename", f"{LOG_NAME}.new"), ("open", LOG_NAME)])
def test_a_log_that_cannot_be_begun_anew_ends_the_store(
    monkeypatch: pytest.MonkeyPatch, operation: str, name: str
) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    disk, executor = FaultyDisk(MemoryDisk()), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor)
    store.execute([Create("/big", b"x" * 3000)], SESSION)
    store.execute([Create("/later")], SESSION)
    before = durable(store)
    disk.fail(operation, f"*/{name}", errno.EIO)
    while executor.waiting:
        executor.waiting.pop(0)()
    with pytest.raises(DiskError):
        store.execute([Create("/b")], SESSION)
    disk.heal()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == before


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
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [LOG_NAME, "ottla-tree.marker"]


def test_a_snapshot_has_as_many_records_as_the_tree_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record for all nodes ended at four gigabytes, and with it all writing."""
    monkeypatch.setattr(tree_format, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(tree_format, "SESSIONS_PER_RECORD", 3)
    disk = MemoryDisk()
    store = TreeStore.open(disk, "/t", CLOCK)
    for number in range(10):
        store.execute([Create(f"/n{number}", b"x" * 300)], SESSION)
        store.execute([OpenSession(FIRST_DURABLE_SESSION + number, b"p" * 16, 1000)], SESSION)
    store.snapshot()
    content = disk.read_bytes(f"/t/{SNAPSHOT_NAME}")
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 8 + struct.unpack_from(">I", content, ends[-1])[0])
    assert len(ends) > 9
    again = TreeStore.open(disk, "/t", CLOCK)
    assert durable(again) == durable(store)
    assert again.tree.sessions == store.tree.sessions
    # Wherever it is cut off, be it between two records.
    for size in {*ends[:-1], *range(1, len(content), 97), len(content) - 1}:
        disk.write_atomic(f"/t/{SNAPSHOT_NAME}", content[:size])
        with pytest.raises(TreeDamaged, match="Restore the files"):
            TreeStore.open(disk, "/t", CLOCK)


def filled_small(disk: MemoryDisk) -> TreeStore:
    store = TreeStore.open(disk, "/t", CLOCK)
    store.execute([Create("/a")], SESSION)
    return store


def test_the_end_of_a_session_is_short_however_many_nodes_it_had() -> None:
    disk = MemoryDisk()
    store = filled_small(disk)
    session = FIRST_DURABLE_SESSION
    store.execute([OpenSession(session, bytes(16), 1000)], session)
    store.execute([Create(f"/a/{number}", ephemeral=True) for number in range(500)], session)
    before = disk.file_size(f"/t/{LOG_NAME}")
    store.expire_session(session)
    assert disk.file_size(f"/t/{LOG_NAME}") - before < 100
    assert store.tree.children("/a") == []
    again = TreeStore.open(disk, "/t", CLOCK)
    assert durable(again) == durable(store)
    assert again.tree.sessions == {}
    assert again.tree.ephemerals() == {}


def test_a_snapshot_that_fails_is_not_tried_with_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    disk = FaultyDisk(MemoryDisk())
    store = TreeStore.open(disk, "/t", CLOCK)
    disk.fail("replace", f"*/{SNAPSHOT_NAME}.*", errno.ENOSPC)
    tried = 0
    snapshot = store.snapshot

    def counted() -> None:
        nonlocal tried
        tried += 1
        snapshot()

    monkeypatch.setattr(store, "snapshot", counted)
    for number in range(100):
        store.execute([Create(f"/n{number}")], SESSION)
    assert 1 <= tried <= 4


def test_after_a_flush_that_failed_no_session_ends() -> None:
    async def body() -> None:
        disk, executor = FaultyDisk(MemoryDisk()), SlowExecutor()
        store = TreeStore.open(disk, "/t", CLOCK, executor, flush_on_ack=True)
        disk.fail("flush", times=1)
        store.execute([Create("/a")], SESSION)
        executor.waiting.pop()()
        size = disk.file_size(f"/t/{LOG_NAME}")
        with pytest.raises(DiskError):
            store.expire_session(FIRST_DURABLE_SESSION)
        assert disk.file_size(f"/t/{LOG_NAME}") == size

    in_loop(body)


def test_who_has_seen_what_a_loss_of_power_took_is_no_stranger_afterwards() -> None:
    """Else its clients are sent away until as much has happened again."""

    async def body() -> None:
        disk = MemoryDisk()
        store = TreeStore.open(disk, "/t", CLOCK, SlowExecutor())
        store.listen(Listener())
        forced = disk.read_bytes(f"/t/{LOG_NAME}")
        for number in range(100):
            store.execute([Create(f"/{number}")], SESSION)
        seen = store.forced_zxid
        disk.write_atomic(f"/t/{LOG_NAME}", forced)
        again = TreeStore.open(disk, "/t", CLOCK, SlowExecutor())
        again.listen(Listener())
        assert again.forced_zxid > seen

    in_loop(body)


def test_forced_transactions_are_numbered_on() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        for number in range(1, 4):
            store = TreeStore.open(disk, "/t", CLOCK, SlowExecutor(), flush_on_ack=True)
            store.listen(Listener())
            assert store.tree.last_zxid == number

    in_loop(body)


def test_snapshots_and_logs_that_were_not_finished_are_removed() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    kept = ["meta.properties", "other.3.tmp", LOG_NAME, f"{LOG_NAME}.bak", "ottla-tree.marker"]
    for name in (f"{SNAPSHOT_NAME}.17.tmp", f"{SNAPSHOT_NAME}.9.new", f"{LOG_NAME}.new.3.tmp", *kept[:2], kept[3]):
        disk.write_atomic(f"/t/{name}", b"x")
    TreeStore.open(disk, "/t", CLOCK)
    assert disk.listdir("/t") == kept


def test_a_disk_that_is_full_when_the_log_is_cut_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    disk, executor = FaultyDisk(MemoryDisk()), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor, flush_on_ack=True)
    store.execute([Create("/big", b"x" * 3000)], SESSION)
    store.execute([Create("/later")], SESSION)
    disk.fail("replace", f"*/{LOG_NAME}.new", errno.ENOSPC)
    while executor.waiting:
        executor.waiting.pop(0)()
    store.execute([Create("/b")], SESSION)
    while executor.waiting:
        executor.waiting.pop(0)()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(store)


def test_a_store_that_is_closed_replaces_no_snapshot_of_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SNAPSHOT_AFTER_BYTES", 2000)
    disk, executor = MemoryDisk(), SlowExecutor()
    store = TreeStore.open(disk, "/t", CLOCK, executor)
    store.execute([Create("/big", b"x" * 3000)], SESSION)
    store.close()
    successor = TreeStore.open(disk, "/t", CLOCK)
    successor.execute([Delete("/big"), Create("/new")], SESSION)
    successor.snapshot()
    for each in executor.waiting:
        each()
    assert durable(TreeStore.open(disk, "/t", CLOCK)) == durable(successor)
