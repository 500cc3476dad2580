from __future__ import annotations

import errno

import pytest

from ottla.env.disk import DiskError
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(MemoryDisk())


def test_everything_passes_until_a_failure_is_planned(disk: FaultyDisk) -> None:
    disk.mkdirs("/t")
    file = disk.open("/t/f", create=True)
    file.append([b"abc"])
    file.flush()
    file.truncate(2)
    assert (file.pread(9, 0), file.size, file.path, file.fileno(), file.is_warm(0, 1)) == (b"ab", 2, "/t/f", None, True)
    disk.write_atomic("/t/g", b"g")
    disk.rename("/t/g", "/t/h")
    assert disk.listdir("/t") == ["f", "h"]
    assert disk.read_bytes("/t/h") == b"g"
    assert disk.exists("/t/h")
    assert disk.is_dir("/t")
    assert disk.file_size("/t/h") == 1
    assert disk.modified_ms("/t/h") == 0
    disk.fsync_dir("/t")
    lock = disk.lock("/t/.lock")
    assert lock is not None
    disk.remove("/t/h")
    disk.remove_tree("/t")
    assert not disk.exists("/t")
    assert disk.open_files() > 0
    file.close()


def test_the_nth_write_fails_and_is_cut_back(disk: FaultyDisk) -> None:
    file = disk.open("/a.log", create=True)
    other = disk.open("/b.index", create=True)
    disk.fail("write", "*.log", errno.EIO, after=1, times=1)
    file.append([b"one"])
    other.append([b"fine"])
    with pytest.raises(DiskError) as caught:
        file.append([b"two-two"])
    assert caught.value.errno == errno.EIO
    assert (file.size, file.damaged) == (3, False)
    file.append([b"three"])
    assert disk.read_bytes("/a.log") == b"onethree"


def test_a_write_that_cannot_be_cut_back_damages(disk: FaultyDisk) -> None:
    file = disk.open("/a.log", create=True)
    disk.fail("write", times=1)
    disk.fail("truncate", times=1)
    with pytest.raises(DiskError):
        file.append([b"1234"])
    assert file.damaged
    assert disk.read_bytes("/a.log") == b"12"


def test_a_full_disk(disk: FaultyDisk) -> None:
    file = disk.open("/a.log", create=True)
    disk.capacity = 10
    file.append([b"12345678"])
    with pytest.raises(DiskError) as caught:
        file.append([b"123"])
    assert caught.value.disk_full
    with pytest.raises(DiskError):
        disk.write_atomic("/small", b"123")
    file.append([b"90"])
    disk.heal()
    file.append([b"more"])
    assert file.size == 14


@pytest.mark.parametrize("operation", ["open", "read", "replace", "rename", "remove", "flush"])
def test_other_operations_fail_on_order(disk: FaultyDisk, operation: str) -> None:
    disk.open("/f", create=True)
    disk.fail(operation, "/*")
    attempts = {
        "open": [lambda: disk.open("/f"), lambda: disk.mkdirs("/g")],
        "read": [lambda: disk.read_bytes("/f"), lambda: disk.listdir("/")],
        "replace": [lambda: disk.write_atomic("/f", b"")],
        "rename": [lambda: disk.rename("/f", "/g")],
        "remove": [lambda: disk.remove("/f"), lambda: disk.remove_tree("/f")],
        "flush": [lambda: disk.fsync_dir("/")],
    }[operation]
    for attempt in attempts:
        with pytest.raises(DiskError):
            attempt()
