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
from support.storage_logs import NOW_MS, batch, log_config

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
    cure = (
        "; if no newer release ran here, the file is damaged: stop the broker and remove it, what it says is then "
        "found from the logs"
    )
    assert refusal.message == (
        f"{ROOT}/{name}: version {version} is of a newer release, and this one knows 0; start the release that wrote "
        f"it, or a later one, with this directory{cure if name in CHECKPOINTS else ''}, or choose another directory "
        "(log.dirs)"
    )
    assert everything(disk) == before


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_with_a_flipped_bit_is_named_and_may_be_removed(name: str) -> None:
    """One bit of the version looks like a newer release's; without the file all records are there."""
    disk = MemoryDisk()

    def manager() -> LogManager:
        return LogManager(disk, VirtualClock(), InlineExecutor(), [ROOT], lambda topic: log_config())

    used = manager()
    assert used.open() is None
    log = used.create("t", None, 0)
    log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    used.close()
    path = f"{ROOT}/{name}"
    content = disk.read_bytes(path) if disk.exists(path) else b"0\n0\n"
    disk.write_atomic(path, bytes([content[0] ^ 4]) + content[1:])
    refusal = manager().open()
    assert refusal is not None
    assert f"{path}: version 4 is of a newer release" in refusal.message
    assert "if no newer release ran here, the file is damaged: stop the broker and remove it" in refusal.message
    disk.remove(path)
    again = manager()
    assert again.open() is None
    found = again.get("t", 0)
    assert found is not None
    assert found.log_end_offset == 3


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
