"""Files of a later release are refused by name, and nothing in their folder is changed."""

from __future__ import annotations

import pytest

from ottla.env.clock import VirtualClock
from ottla.env.executor import InlineExecutor
from ottla.storage.checkpoints import MetaProperties
from ottla.storage.log_directory import LogDirectory
from ottla.storage.manager import LogManager
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME, TreeDamaged, TreeStore
from ottla.zk.tree_format import _record
from support.storage_logs import log_config

pytestmark = pytest.mark.spec("L3")

ROOT = "/data"
CHECKPOINTS = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
]


def used_folder() -> MemoryDisk:
    """A folder that a broker has used and left cleanly."""
    disk = MemoryDisk()
    folder = LogDirectory(disk, ROOT)
    assert folder.lock() is None
    assert folder.open() is None
    folder.write_meta(MetaProperties("cluster", 1))
    folder.mark_clean()
    folder.release()
    return disk


def everything(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.read_bytes(f"{ROOT}/{name}") for name in disk.listdir(ROOT) if name != ".lock"}


@pytest.mark.parametrize(
    ("name", "content", "version"),
    [
        ("meta.properties", b"version=2\nbroker.id=1\ncluster.id=cluster\n", 2),
        *((name, b"1\n1\ntopic 0 5\n", 1) for name in CHECKPOINTS),
    ],
    ids=["meta.properties", *CHECKPOINTS],
)
def test_a_newer_file_of_the_folder_is_named_and_the_folder_stays_as_it_is(
    name: str, content: bytes, version: int
) -> None:
    disk = used_folder()
    disk.write_atomic(f"{ROOT}/{name}", content)
    before = everything(disk)
    refusal = LogDirectory(disk, ROOT).open()
    assert refusal is not None
    assert refusal.message == (
        f"{ROOT}/{name}: version {version} is of a newer release, and this one knows 0; start the release that wrote "
        "it, or a later one, with this directory, or choose another directory (log.dirs)"
    )
    assert everything(disk) == before


def test_no_log_directory_is_changed_where_another_one_is_newer() -> None:
    disk = MemoryDisk()

    def manager() -> LogManager:
        return LogManager(disk, VirtualClock(), InlineExecutor(), ["/one", "/two"], lambda topic: log_config())

    used = manager()
    assert used.open() is None
    used.close()
    disk.write_atomic("/two/meta.properties", b"version=2\nbroker.id=1\ncluster.id=cluster\n")
    before = {name: disk.read_bytes(f"/one/{name}") for name in disk.listdir("/one") if name != ".lock"}
    refusal = manager().open()
    assert refusal is not None
    assert "newer release" in refusal.message
    assert {name: disk.read_bytes(f"/one/{name}") for name in disk.listdir("/one") if name != ".lock"} == before
    assert ".kafka_cleanshutdown" in before


@pytest.mark.parametrize(
    ("name", "record", "found", "known"),
    [(SNAPSHOT_NAME, '[4,7,0,"more"]', 4, 3), (LOG_NAME, '[7,0,[],3,"more"]', 3, 2)],
    ids=["snapshot", "log"],
)
def test_newer_metadata_are_named(name: str, record: str, found: int, known: int) -> None:
    disk = MemoryDisk()
    disk.mkdirs(ROOT)
    disk.write_atomic(f"{ROOT}/{name}", _record(record))
    before = everything(disk)
    with pytest.raises(TreeDamaged) as refused:
        TreeStore.open(disk, ROOT, VirtualClock(), InlineExecutor())
    assert str(refused.value) == (
        f"{ROOT}/{name}: format {found} is of a newer release, and this one knows {known}; start the release that "
        "wrote it, or a later one, or restore the files ottla-tree.* from a copy of before it"
    )
    assert everything(disk) == before
