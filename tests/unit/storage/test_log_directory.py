from __future__ import annotations

import pytest

from ottla.env.disk import Disk, DiskError
from ottla.storage.checkpoints import MetaProperties, encode_offsets
from ottla.storage.log_directory import DELETE_SUFFIX, LogDirectory, parse_partition_directory, renamed_directory_name
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b.c_d-12", ("a-b.c_d", 12)),
        ("orders", None),
        ("-3", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-0.c0ffee-delete", None),
        ("orders--1", ("orders-", 1)),
        ("orders-\u0663", None),
    ],
)
def test_names_of_partitions(name: str, expected: object) -> None:
    assert parse_partition_directory(name) == expected


def test_names_of_deleted_partitions() -> None:
    assert renamed_directory_name("orders", 3, "0" * 32, DELETE_SUFFIX) == f"orders-3.{'0' * 32}-delete"
    long = renamed_directory_name("x" * 249, 3, "0" * 32, DELETE_SUFFIX)
    assert len(long) == 255
    assert parse_partition_directory(long) is None


def test_a_directory_in_use_is_refused_with_its_name_and_the_cure(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    first, second = LogDirectory(disk, f"{root}/logs"), LogDirectory(disk, f"{root}/logs")
    assert first.lock() is None
    assert first.lock() is None
    refusal = second.lock()
    assert refusal is not None
    assert f"Failed to acquire lock on file .lock in {root}/logs." in refusal.message
    assert "Stop that broker" in refusal.message
    first.release()
    assert second.lock() is None
    second.release()


def test_a_directory_that_cannot_be_made_is_out_of_service() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("open")
    folder = LogDirectory(disk, "/logs")
    assert folder.lock() is None
    assert folder.failure is not None
    assert "cannot open /logs" in folder.failure
    assert folder.open() is None


@pytest.mark.spec("L8")
@pytest.mark.parametrize("plan", ["replace", "read", "remove"])
def test_a_probe_reports_whether_a_directory_works(plan: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    folder = LogDirectory(disk, "/logs")
    assert folder.lock() is None
    folder.probe()
    assert disk.listdir("/logs") == []
    disk.fail(plan, "/logs/*")
    with pytest.raises(DiskError):
        folder.probe()


def test_a_clean_stop_is_reported_once(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    folder = LogDirectory(disk, root)
    assert folder.open() is None
    assert not folder.clean
    folder.mark_clean()
    folder.write_meta(MetaProperties("c", 4))
    disk.write_atomic(f"{root}/recovery-point-offset-checkpoint.12.tmp", b"left over")
    disk.write_atomic(f"{root}/foreign.tmp", b"not ours")
    again = LogDirectory(disk, root)
    assert again.open() is None
    assert again.clean
    assert again.meta == MetaProperties("c", 4)
    assert "recovery-point-offset-checkpoint.12.tmp" not in disk.listdir(root)
    assert "foreign.tmp" in disk.listdir(root)
    third = LogDirectory(disk, root)
    third.open()
    assert not third.clean


def test_a_kraft_directory_is_refused(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    disk.write_atomic(f"{root}/meta.properties", b"version=1\ncluster.id=x\nnode.id=1\n")
    refusal = LogDirectory(disk, root).open()
    assert refusal is not None
    assert f"{root}/meta.properties" in refusal.message
    assert "KRaft" in refusal.message


def test_checkpoints_are_written_when_they_change(ground: tuple[Disk, str]) -> None:
    disk, root = ground
    folder = LogDirectory(disk, root)
    data = folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5}))
    assert data is not None
    folder.write_checkpoint(data)
    assert folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5})) is None
    assert folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 6})) is not None
    assert folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 6})) is None
    # Asked for is not yet written, and the older of two never replaces the newer.
    last = folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5}), is_on_disk=True)
    assert last is not None
    folder.write_checkpoint(last)
    folder.write_checkpoint(data)
    again = folder.changed_checkpoint(
        "recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5}), is_on_disk=True
    )
    assert again is None
    disk.write_atomic(f"{root}/log-start-offset-checkpoint", b"damaged")
    notes = folder.read_checkpoints()
    assert folder.recovery == {("a", 1): 5}
    assert (folder.log_starts, folder.high_watermarks) == ({}, {})
    assert len(notes) == 1
    assert "log-start-offset-checkpoint" in notes[0]


def test_a_checkpoint_that_could_not_be_written_is_asked_for_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.mkdirs("/logs")
    folder = LogDirectory(disk, "/logs")
    asked = folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5}))
    assert asked is not None
    disk.fail("replace", "*checkpoint")
    with pytest.raises(DiskError):
        folder.write_checkpoint(asked)
    assert folder.changed_checkpoint("recovery-point-offset-checkpoint", encode_offsets({("a", 1): 5})) is not None
