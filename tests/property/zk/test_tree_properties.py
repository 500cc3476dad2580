"""A transaction is all or nothing, and what is on disk after any number of bytes is a prefix of what was done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.env.clock import VirtualClock
from ottla.env.disk_memory import Change, MemoryDisk, journal_bytes, replay
from ottla.zk.store import TreeStore
from ottla.zk.tree import Check, Create, Delete, Operation, Set, Tree, ZkError

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


@given(TRANSACTIONS, st.integers(0, 10_000), st.integers(0, 25))
def test_a_crash_keeps_a_prefix(transactions: list[tuple[int, list[Operation]]], cut: int, snapshot_at: int) -> None:
    journal: list[Change] = []
    store = TreeStore.open(MemoryDisk(journal=journal), "/t", VirtualClock(7))
    images = [image(store.tree, ephemeral=False)]
    acknowledged = [journal_bytes(journal)]
    for number, (session, operations) in enumerate(transactions):
        if number == snapshot_at:
            store.snapshot()
        try:
            store.execute(operations, session)
        except ZkError:
            continue
        images.append(image(store.tree, ephemeral=False))
        acknowledged.append(journal_bytes(journal))
    limit = cut % (journal_bytes(journal) + 1)
    found = TreeStore.open(replay(journal, limit), "/t", VirtualClock(8))
    check_links(found.tree)
    must_have = max((index for index, bytes_then in enumerate(acknowledged) if bytes_then <= limit), default=0)
    assert not any(node.ephemeral_owner for node in found.tree.nodes.values())
    assert image(found.tree, ephemeral=False) in images[must_have:]
