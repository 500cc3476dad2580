"""Loading the tree's files at the start, and checking whether durable data is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.zk.tree import Tree
from ottla.zk.tree_format import HOLE, LOG_NAME, SNAPSHOT_NAME, ReplayedLog, TreeDamaged, load_snapshot, replay_log
from ottla.zk.tree_marker import TreeMarker

if TYPE_CHECKING:
    from ottla.env.disk import Disk

DAMAGED_SUFFIX: Final = ".damaged"
"""Suffix of the copy of a damaged log that an unclean start has skipped."""
_CURE: Final = (
    "Restore the files ottla-tree.* from a copy, all of one time; or start once with "
    "ottla.tree.unclean.start.enable=true (ottla zookeeper: --unclean-start) to continue with what there is: later "
    "changes of topics, of their settings, and of offsets and other znodes are lost then"
)


@dataclass(slots=True)
class LoadedTree:
    """The tree as loaded."""

    tree: Tree = field(default_factory=Tree)
    snapshot_bytes: int = 0
    #: The last transaction in the snapshot, 0 without one.
    snapshot_zxid: int = 0
    #: Length of the complete records of the log, in bytes.
    good_bytes: int = 0
    #: Whether something is missing, and `unclean_start` was set.
    is_unclean: bool = False
    notes: list[str] = field(default_factory=list)


def load_tree(disk: Disk, directory: str, unclean_start: bool) -> LoadedTree:
    """Read the files; nothing is changed, except that with `unclean_start` a damaged log is copied aside.

    Raises `TreeDamaged` and `DiskError` as `TreeStore.open` does.
    """
    loaded = LoadedTree()
    tree = loaded.tree
    snapshot_path, log_path = f"{directory}/{SNAPSHOT_NAME}", f"{directory}/{LOG_NAME}"
    if disk.exists(snapshot_path):
        snapshot = disk.read_bytes(snapshot_path)
        load_snapshot(tree, snapshot, snapshot_path)
        loaded.snapshot_bytes, loaded.snapshot_zxid = len(snapshot), tree.last_zxid
    has_log = disk.exists(log_path)
    content = disk.read_bytes(log_path) if has_log else b""
    replayed = replay_log(tree, content, log_path)
    loaded.good_bytes = replayed.good
    problem = _damage_within(content, replayed, log_path) or _missing(disk, directory, loaded, has_log)
    if problem is not None and not unclean_start:
        raise TreeDamaged(f"{problem}. {_CURE}")
    if problem is not None:
        loaded.is_unclean = True
        loaded.notes.append(f"{problem}. Continuing with what there is, as ottla.tree.unclean.start.enable allows")
        if replayed.good < len(content):
            aside = f"{log_path}.{replayed.good}{DAMAGED_SUFFIX}"
            disk.write_atomic(aside, content)
            loaded.notes.append(f"the log as it was found is kept in {aside}")
    elif replayed.good < len(content):
        loaded.notes.append(_cut_off(content, replayed, log_path))
    return loaded


def _damage_within(content: bytes, replayed: ReplayedLog, path: str) -> str | None:
    """The damage, if complete records follow an incomplete one: that is not a truncated write.

    Except after a hole, as a power failure leaves it among writes that were not synced yet.
    """
    good, behind = replayed
    if behind is None or HOLE in content[good:behind]:
        return None
    return f"{path} is damaged at byte {good}, and continues at byte {behind}"


def _missing(disk: Disk, directory: str, loaded: LoadedTree, has_log: bool) -> str | None:
    """The evidence that durable transactions are missing; None if there is none."""
    log_path, snapshot_path = f"{directory}/{LOG_NAME}", f"{directory}/{SNAPSHOT_NAME}"
    if loaded.snapshot_bytes and not has_log:
        return f"{snapshot_path} is there, and {log_path}, which holds what was changed after it, is missing"
    marked = TreeMarker(disk, directory).read()
    if marked is None:
        return None
    if loaded.snapshot_zxid < marked.snapshot_zxid:
        found = f"ends with transaction {loaded.snapshot_zxid}" if loaded.snapshot_bytes else "is missing"
        return f"{snapshot_path} {found}, and one was on the disk that ended with {marked.snapshot_zxid}"
    if loaded.tree.last_zxid < marked.zxid:
        return (
            f"{log_path} was cut or is damaged at its end: it goes up to transaction {loaded.tree.last_zxid}, and "
            f"transactions up to {marked.zxid} were on the disk"
        )
    return None


def _cut_off(content: bytes, replayed: ReplayedLog, path: str) -> str:
    good, behind = replayed
    note = f"{path}: cut {len(content) - good} bytes from byte {good} on that are not a whole record"
    if behind is None:
        return f"{note}, as a write leaves them that was cut short"
    return (
        f"{note}: a hole of zeros, as a loss of power leaves it. Changes behind it, which were not confirmed to be on "
        f"the disk, are lost: settings of topics and brokers may be older than they were"
    )
