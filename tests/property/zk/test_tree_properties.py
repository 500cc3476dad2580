"""A transaction is all or nothing, and what is on disk after any number of bytes is a prefix of what was done."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.env.clock import VirtualClock
from ottla.env.executor import InlineExecutor
from ottla.testing.disk_memory import Change, MemoryDisk, journal_bytes, replay
from ottla.testing.disk_power import every_moment, nothing_more
from ottla.zk.acl import Acl
from ottla.zk.sessions import FIRST_DURABLE_SESSION
from ottla.zk.store import TreeStore
from ottla.zk.tree import (
    Check,
    CloseSession,
    Create,
    Delete,
    OpenSession,
    Operation,
    ServerOperation,
    Set,
    SetAcl,
    Stat,
    Tree,
    ZkError,
)
from ottla.zk.tree_capture import TreeCapture
from ottla.zk.tree_format import load_snapshot, snapshot_records

T = TypeVar("T")

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1", "/nope/z", "bad"])
DATA = st.sampled_from([None, b"", b"1", b"\xff\x00"])
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1])
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
TRANSACTIONS = st.lists(st.tuples(st.integers(1, 2), st.lists(OPERATIONS, max_size=4)), max_size=25)


def image(tree: Tree, ephemeral: bool = True) -> dict[str, tuple[object, ...]]:
    return {
        path: (node.stat() if ephemeral else (node.version, node.mzxid, node.ctime_ms), node.data)
        for path, node in tree.nodes.items()
        if ephemeral or not node.ephemeral_owner
    }


def check_links(tree: Tree) -> None:
    """Children and parents agree."""
    for path, node in tree.nodes.items():
        prefix = "/" if path == "/" else path + "/"
        found = {other[len(prefix) :] for other in tree.nodes if other.startswith(prefix) and other != path}
        assert {name for name in found if "/" not in name} == node.children


@given(TRANSACTIONS)
def test_a_failed_transaction_leaves_no_trace(transactions: list[tuple[int, list[Operation]]]) -> None:
    tree = Tree()
    for number, (session, operations) in enumerate(transactions):
        before = image(tree)
        try:
            tree.execute(operations, session, number)
        except ZkError:
            assert image(tree) == before
        check_links(tree)


@given(TRANSACTIONS)
def test_undoing_restores(transactions: list[tuple[int, list[Operation]]]) -> None:
    tree = Tree()
    for number, (session, operations) in enumerate(transactions):
        before = image(tree)
        try:
            tree.execute(operations, session, number)
        except ZkError:
            continue
        tree.undo_last()
        assert image(tree) == before
        check_links(tree)
        tree.execute(operations, session, number)
    for session in (1, 2):
        tree.expire_session(session, 0)
    assert not any(node.ephemeral_owner for node in tree.nodes.values())


THEIRS = FIRST_DURABLE_SESSION


def kept_image(tree: Tree) -> tuple[object, ...]:
    """What outlives the process: everything but the nodes of its own sessions (1 and 2)."""
    nodes = {
        path: (node.version, node.mzxid, node.ctime_ms, node.ephemeral_owner, node.data, node.acl)
        for path, node in tree.nodes.items()
        if node.ephemeral_owner not in (1, 2)
    }
    return nodes, dict(tree.sessions)


SESSION_STEPS = st.sampled_from([THEIRS, THEIRS + 1]).flatmap(
    lambda session: st.sampled_from(
        [OpenSession(session, b"secret", 4000), CloseSession(session), SetAcl("/a", (Acl(1, "world", "anyone"),))]
    )
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, THEIRS, THEIRS, THEIRS + 1]),
        st.one_of(st.lists(OPERATIONS, max_size=4), st.lists(SESSION_STEPS, min_size=1, max_size=1)),
    ),
    max_size=25,
)


def whole_image(tree: Tree) -> tuple[object, ...]:
    """All that a snapshot has of the nodes, and of the sessions, that outlive the process."""
    nodes = {
        path: (*node.stat(), node.created, node.data, node.acl)
        for path, node in tree.nodes.items()
        if node.ephemeral_owner not in (1, 2)
    }
    # The number of children of the process's own sessions is not kept, and is no part of a snapshot.
    places = [Stat._fields.index(name) for name in ("cversion", "children_count")]
    return {path: [f for at, f in enumerate(found) if at not in places] for path, found in nodes.items()}, dict(
        tree.sessions
    )


@given(STEPS, STEPS, st.integers(1, 3), st.booleans())
def test_a_copy_made_in_steps_is_of_the_moment_at_which_it_was_begun(
    before: list[tuple[int, list[ServerOperation]]],
    meanwhile: list[tuple[int, list[ServerOperation]]],
    nodes_per_step: int,
    is_undone: bool,
) -> None:
    tree = Tree()

    def execute(transactions: list[tuple[int, list[ServerOperation]]]) -> Iterator[None]:
        for number, (session, operations) in enumerate(transactions):
            with suppress(ZkError):
                tree.execute(operations, session, number)
                if is_undone and number % 3 == 0:
                    tree.undo_last()
            yield

    for _ in execute(before):
        pass
    then, zxid = whole_image(tree), tree.last_zxid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ottla.zk.tree_capture.NODES_PER_SLICE", nodes_per_step)
        capture, changes = TreeCapture(tree), execute(meanwhile)
        while not capture.copy_slice():
            next(changes, None)
    content = snapshot_records(capture.end())
    for _ in changes:
        pass
    loaded = Tree()
    load_snapshot(loaded, content, "snapshot")
    assert (whole_image(loaded), loaded.last_zxid) == (then, zxid)
    check_links(loaded)


@given(STEPS, st.integers(0, 10_000), st.integers(0, 25))
def test_a_crash_keeps_a_prefix(
    transactions: list[tuple[int, list[ServerOperation]]], cut: int, snapshot_at: int
) -> None:
    journal: list[Change] = []
    store = TreeStore.open(MemoryDisk(journal=journal), "/t", VirtualClock(7))
    images = [kept_image(store.tree)]
    acknowledged = [journal_bytes(journal)]
    for number, (session, operations) in enumerate(transactions):
        if number == snapshot_at:
            store.snapshot()
        try:
            store.execute(operations, session)
        except ZkError:
            continue
        images.append(kept_image(store.tree))
        acknowledged.append(journal_bytes(journal))
    limit = cut % (journal_bytes(journal) + 1)
    found = TreeStore.open(replay(journal, limit), "/t", VirtualClock(8))
    check_links(found.tree)
    must_have = max((index for index, bytes_then in enumerate(acknowledged) if bytes_then <= limit), default=0)
    assert {node.ephemeral_owner for node in found.tree.nodes.values()} <= {0, *found.tree.sessions}
    assert kept_image(found.tree) in images[must_have:]
    for session in list(found.tree.sessions):
        found.expire_session(session)
    assert not any(node.ephemeral_owner for node in found.tree.nodes.values())


#: A life of a tree: sessions come and go, a snapshot in the midst.
LIFE: list[tuple[int, list[ServerOperation]] | None] = [
    (THEIRS, [OpenSession(THEIRS, b"\0\xff" * 8, 4000)]),
    (THEIRS, [Create("/a", b"1"), Create("/a/x", b"\xff", ephemeral=True)]),
    (1, [Create("/mine", ephemeral=True)]),
    (THEIRS + 1, [OpenSession(THEIRS + 1, b"p" * 16, 5000)]),
    (THEIRS + 1, [Create("/a/y-", "ü".encode(), True, True)]),
    (THEIRS, [SetAcl("/a", (Acl(1, "digest", "x:y"),))]),
    None,
    (THEIRS, [Set("/a/x", b"z" * 700)]),
    (THEIRS, [CloseSession(THEIRS)]),
    (THEIRS + 1, [Delete("/a/y-0000000001"), Create("/a/y-", None, True, True)]),
    (THEIRS + 1, [CloseSession(THEIRS + 1)]),
    (1, [Create("/last")]),
]


class HoldingExecutor(InlineExecutor):
    """Does its work at once, but for what is held until `let_go`."""

    def __init__(self) -> None:
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        if not self.holds:
            super().call(work, done)
            return
        self.held.append(lambda: InlineExecutor.call(self, work, done))

    def let_go(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()


@pytest.mark.slow
@pytest.mark.parametrize("begin", [None, 3, 6, 9])
def test_after_every_byte_of_a_life_what_was_forced_is_there(begin: int | None) -> None:
    """The process is killed, or the power goes, after each byte that was written.

    The snapshot of the life is made at once, or by a disk thread, which begins with step `begin` and ends with the
    one behind it or at the end.
    """
    journal: list[Change] = []
    disk = MemoryDisk(journal=journal)
    disk.mkdirs("/disk")
    disk.fsync_dir("/")
    executor = HoldingExecutor()
    store = TreeStore.open(disk, "/disk/t", VirtualClock(7), executor, flush_on_ack=True)
    moments = [(journal_bytes(journal), kept_image(store.tree))]
    for number, step in enumerate(LIFE):
        if begin is not None and number in (begin, len(LIFE) - 1):
            executor.let_go()
            executor.holds = True
            store.snapshot_soon()
            executor.holds = False
        if step is None:
            if begin is None:
                store.snapshot()
            continue
        store.execute(step[1], step[0])
        if number == (begin or 0) + 1:
            executor.let_go()
        # The flush is done within the call: from here on the transaction is acknowledged.
        moments.append((journal_bytes(journal), kept_image(store.tree)))
    executor.let_go()
    assert disk.file_size("/disk/t/ottla-tree.log") < (begin is None) * 10_000 + 300
    images = [image for _, image in moments]
    dice = random.Random(11)
    for at, loss in every_moment(journal):
        promised = sum(1 for bytes_then, _ in moments if bytes_then <= at) - 1
        survivors = [loss.survivor(choice) for choice in (nothing_more, dice.randrange, dice.randrange)]
        for left in (replay(journal, at), *survivors):
            if promised < 0:
                continue
            found = TreeStore.open(left, "/disk/t", VirtualClock(8))
            assert kept_image(found.tree) in images[promised:], at
            check_links(found.tree)
