from __future__ import annotations

import pytest

from ottla.zk.tree import (
    LARGEST_NODE,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
    Stat,
    Tree,
    WatchEvent,
    WatchTable,
    ZkError,
)

SESSION = 7


@pytest.fixture
def tree() -> Tree:
    tree = Tree()
    tree.execute([Create("/a", b"1"), Create("/a/b"), Create("/e", ephemeral=True)], SESSION, 1000)
    return tree


def image(tree: Tree) -> dict[str, tuple[object, ...]]:
    """Everything that must be as before when a transaction fails."""
    return {path: (*node.stat(), node.data, frozenset(node.children)) for path, node in tree.nodes.items()}


def test_creation_and_stat(tree: Tree) -> None:
    assert tree.children("/") == ["a", "e"]
    assert tree.get("/a").data == b"1"
    assert tree.get("/a/b").data is None
    stat = tree.get("/a").stat()
    assert stat == Stat(1, 1, 1000, 1000, 0, 1, 0, 0, 1, 1, 1)
    assert tree.get("/e").stat().ephemeral_owner == SESSION


def test_setting_data_counts_versions(tree: Tree) -> None:
    transaction = tree.execute([Set("/a", b"22"), Set("/a", b"333", 1)], SESSION, 2000)
    (_, stat) = transaction.results
    assert isinstance(stat, Stat)
    assert (stat.version, stat.mzxid, stat.mtime_ms, stat.ctime_ms, stat.data_length) == (2, 2, 2000, 1000, 3)


@pytest.mark.parametrize(
    ("operation", "error", "path"),
    [
        (Create("/a"), NodeExistsError, "/a"),
        (Create("/x/y"), NoNodeError, "/x"),
        (Create("/e/child"), NoChildrenForEphemeralsError, "/e"),
        (Create("/big", bytes(LARGEST_NODE + 1)), BadArgumentsError, "/big"),
        (Create("/"), NodeExistsError, "/"),
        (Set("/x", b""), NoNodeError, "/x"),
        (Set("/a", b"", 3), BadVersionError, "/a"),
        (Delete("/a"), NotEmptyError, "/a"),
        (Delete("/a/b", 1), BadVersionError, "/a/b"),
        (Delete("/x"), NoNodeError, "/x"),
        (Check("/x"), NoNodeError, "/x"),
        (Check("/a", 5), BadVersionError, "/a"),
    ],
)
def test_refusals_change_nothing(tree: Tree, operation: object, error: type[ZkError], path: str) -> None:
    before, zxid = image(tree), tree.last_zxid
    with pytest.raises(error) as caught:
        tree.execute(
            [Create("/e2", ephemeral=True), Create("/d"), Set("/a", b"x"), Delete("/d"), operation],  # type: ignore[list-item]
            SESSION,
            2000,
        )
    assert caught.value.path == path
    assert image(tree) == before
    assert tree.last_zxid == zxid
    # Also what is not seen from outside, the sessions' nodes, is as before.
    tree.expire_session(SESSION, 3000)
    assert sorted(tree.nodes) == ["/", "/a", "/a/b"]


def test_the_root_stays() -> None:
    with pytest.raises(BadArgumentsError):
        Tree().execute([Delete("/")], SESSION, 0)


@pytest.mark.parametrize("path", ["a", "", "/a/", "//a", "/a//b", "/a/./b", "/..", "/a\0"])
def test_bad_paths(path: str) -> None:
    tree = Tree()
    with pytest.raises(ZkError):
        tree.execute([Create(path)], SESSION, 0)
    assert list(tree.nodes) == ["/"]


def test_sequential_nodes_never_repeat(tree: Tree) -> None:
    create = Create("/a/n-", sequential=True)
    (first,) = tree.execute([create], SESSION, 0).results
    tree.execute([Delete(str(first))], SESSION, 0)
    (second,) = tree.execute([create], SESSION, 0).results
    assert (first, second) == ("/a/n-0000000001", "/a/n-0000000002")


def test_a_session_takes_its_nodes_with_it(tree: Tree) -> None:
    tree.execute([Create("/a/mine", ephemeral=True), Create("/kept", ephemeral=True)], 8, 0)
    transaction = tree.expire_session(SESSION, 0)
    assert [change.path for change in transaction.changes] == ["/e"]
    assert tree.children("/") == ["a", "kept"]
    assert tree.expire_session(SESSION, 0).changes == ()


def test_undoing_the_last_transaction(tree: Tree) -> None:
    before = image(tree)
    tree.execute([Create("/n"), Set("/a", b"z"), Delete("/a/b"), Delete("/e"), Delete("/a")], SESSION, 5)
    tree.undo_last()
    assert image(tree) == before
    assert tree.last_zxid == 1


def test_too_many_operations() -> None:
    with pytest.raises(BadArgumentsError, match="more than"):
        Tree().execute([Check("/")] * 100_001, SESSION, 0)


def test_watches_fire_once(tree: Tree) -> None:
    watches = WatchTable()
    watches.watch_data("/a", "A")
    watches.watch_data("/new", "N")
    watches.watch_children("/a", "C")
    watches.watch_children("/", "R")
    events = tree.execute([Create("/a/c"), Set("/a", b"2"), Create("/new")], SESSION, 0).events
    assert watches.fire(events) == [
        ("C", WatchEvent(EventType.CHILDREN_CHANGED, "/a")),
        ("A", WatchEvent(EventType.DATA_CHANGED, "/a")),
        ("N", WatchEvent(EventType.CREATED, "/new")),
        ("R", WatchEvent(EventType.CHILDREN_CHANGED, "/")),
    ]
    assert watches.fire(events) == []


def test_a_deletion_reports_each_watcher_once(tree: Tree) -> None:
    watches = WatchTable()
    watches.watch_data("/a/b", "same")
    watches.watch_children("/a/b", "same")
    watches.watch_children("/a/b", "other")
    deleted = WatchEvent(EventType.DELETED, "/a/b")
    assert watches.fire(tree.execute([Delete("/a/b")], SESSION, 0).events) == [("same", deleted), ("other", deleted)]


def test_a_dropped_watcher_hears_nothing(tree: Tree) -> None:
    watches = WatchTable()
    watches.watch_data("/a", "gone")
    watches.watch_children("/a", "gone")
    watches.watch_data("/a", "here")
    watches.drop("gone")
    assert [who for who, _ in watches.fire(tree.execute([Set("/a", b"")], SESSION, 0).events)] == ["here"]
