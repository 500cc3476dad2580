from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.env.disk import PROBE_BYTES, Disk, DiskError, FileSlice, RealDisk, RealFile
from ottla.testing.disk_memory import MemoryDisk


@pytest.fixture(params=["memory", "real"])
def disk_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = MemoryDisk()
    disk.mkdirs("/root")
    return disk, "/root"


def test_appends_and_reads(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    file = disk.open(f"{root}/a.log", create=True)
    file.append([b"one", memoryview(b"two"), bytearray(b"three")])
    assert file.size == 11
    assert file.pread(5, 2) == b"etwot"
    assert file.pread(100, 6) == b"three"
    assert file.pread(4, 11) == b""
    file.flush()
    file.truncate(3)
    assert (file.size, file.pread(10, 0)) == (3, b"one")
    file.append([b"!"])
    assert disk.read_bytes(f"{root}/a.log") == b"one!"
    assert disk.file_size(f"{root}/a.log") == 4
    file.close()
    file.close()


def test_more_parts_than_one_call_takes(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    file = disk.open(f"{root}/a", create=True)
    file.append([b"x"])
    file.append([b"%04d" % number for number in range(3000)])
    assert file.size == 12001
    assert file.pread(8, 1 + 4 * 2999 - 4) == b"29982999"
    file.close()


def test_what_is_missing(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    for attempt in (
        lambda: disk.open(f"{root}/no"),
        lambda: disk.read_bytes(f"{root}/no"),
        lambda: disk.file_size(f"{root}/no"),
        lambda: disk.listdir(f"{root}/no"),
        lambda: disk.rename(f"{root}/no", f"{root}/other"),
        lambda: disk.modified_ms(f"{root}/no"),
        lambda: disk.open(f"{root}/no/file", create=True),
    ):
        with pytest.raises(DiskError) as caught:
            attempt()
        assert caught.value.missing
        assert not caught.value.disk_full
        assert f"{root}/no" in str(caught.value)
    disk.remove(f"{root}/no")
    disk.remove_tree(f"{root}/no")
    assert not disk.exists(f"{root}/no")


def test_names(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    disk.mkdirs(f"{root}/t-0/deep")
    disk.mkdirs(f"{root}/t-0/deep")
    disk.write_atomic(f"{root}/t-0/b", b"1")
    disk.write_atomic(f"{root}/t-0/b", b"22")
    disk.write_atomic(f"{root}/t-0/a", b"", sync=False)
    assert disk.listdir(f"{root}/t-0") == ["a", "b", "deep"]
    disk.fsync_dir(root)
    file = disk.open(f"{root}/t-0/b")
    disk.rename(f"{root}/t-0", f"{root}/t-0.x-delete")
    assert disk.is_dir(f"{root}/t-0.x-delete")
    assert not disk.exists(f"{root}/t-0")
    assert disk.read_bytes(f"{root}/t-0.x-delete/b") == b"22"
    disk.remove_tree(f"{root}/t-0.x-delete")
    assert disk.listdir(root) == []
    assert file.pread(9, 0) == b"22", "what is open stays readable"
    file.close()
    assert not disk.is_dir(f"{root}/t-0.x-delete/b")


def test_a_rename_replaces_a_file(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    disk.write_atomic(f"{root}/a", b"new")
    disk.write_atomic(f"{root}/b", b"old")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.listdir(root) == ["b"]
    assert disk.read_bytes(f"{root}/b") == b"new"


def test_a_lock_excludes_this_process(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    lock = disk.lock(f"{root}/.lock")
    assert lock is not None
    assert disk.lock(f"{root}/.lock") is None
    lock.release()
    lock.release()
    again = disk.lock(f"{root}/.lock")
    assert again is not None
    again.release()


LOCKING = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
HOLDING = LOCKING + "; print('held', flush=True); sys.stdin.read()"


def test_a_lock_excludes_other_processes_by_posix_locks(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    disk = RealDisk()
    lock = disk.lock(path)
    assert lock is not None
    assert disk.lock(str(tmp_path / "." / ".lock")) is None
    assert subprocess.run([sys.executable, "-c", LOCKING, path], capture_output=True, check=False).returncode != 0
    lock.release()
    other = subprocess.Popen([sys.executable, "-c", HOLDING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    assert disk.lock(path) is None
    other.communicate(b"")
    lock = disk.lock(path)
    assert lock is not None
    lock.release()


def test_a_lock_in_no_directory(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="cannot lock"):
        RealDisk().lock(str(tmp_path / "no" / ".lock"))


def test_a_full_disk_is_reported_and_leaves_nothing() -> None:
    file = RealDisk().open("/dev/full")
    with pytest.raises(DiskError) as caught:
        file.append([b"some bytes"])
    assert caught.value.disk_full
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 0
    assert file.damaged, "a device cannot be cut back, and that must be known"
    file.close()


@pytest.mark.parametrize("parts", [[b"abc", b"", b"defghij", b"klm"], [b"abcdefghijklm"]])
def test_a_short_write_is_continued(parts: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    one, whole = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: one(fd, part[:5], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, [b"".join(parts)[:5]], at))
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append(parts)
    assert file.pread(100, 0) == b"abcdefghijklm"
    file.close()


@pytest.mark.parametrize("parts", [[b"lost bytes"], [b"lost", b"bytes"]])
def test_a_failing_write_is_cut_back(parts: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append([b"kept"])
    whole = os.pwritev

    def half(fd: int, parts: bytes | list[bytes], at: int) -> int:
        whole(fd, [b"torn"], at)
        raise OSError(errno.EIO, "i/o")

    monkeypatch.setattr(os, "pwrite", half)
    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(DiskError, match=f"cannot write to {tmp_path}/f"):
        file.append(parts)
    monkeypatch.undo()
    assert not file.damaged
    file.append([b"!"])
    assert (tmp_path / "f").read_bytes() == b"kept!"
    file.close()


def test_warmth_is_known_or_not_claimed(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    file = disk.open(f"{root}/f", create=True)
    file.append([bytes(100_000)])
    assert file.is_warm(0, 100_000) in (True, None)
    assert file.is_warm(0, 0) is True
    assert FileSlice(file, 0, 100_000, None, active=True).is_warm()
    file.close()


def test_a_cold_range_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append([bytes(10)])

    def cold(*_: object) -> int:
        raise BlockingIOError

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", cold)
    assert file.is_warm(0, 10) is False
    assert not FileSlice(file, 0, 10, None, active=True).is_warm()
    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.is_warm(0, 10) is None
    assert FileSlice(file, 0, 10, None, active=True).is_warm()
    assert not FileSlice(file, 0, 10).is_warm()
    file.close()


def test_a_range_that_is_cold_in_its_middle_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    file = RealDisk().open(str(tmp_path / "f"), create=True)
    file.append([bytes(4 * PROBE_BYTES)])
    cold = range(PROBE_BYTES, 3 * PROBE_BYTES)
    probed: list[int] = []

    def read_ahead(_descriptor: int, _into: object, position: int, _flags: int) -> int:
        probed.append(position)
        if position in cold:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", read_ahead)
    assert file.is_warm(0, 4 * PROBE_BYTES) is False
    assert file.is_warm(0, PROBE_BYTES) is True
    assert file.is_warm(3 * PROBE_BYTES - 1, PROBE_BYTES) is False
    probed.clear()
    assert file.is_warm(3 * PROBE_BYTES, 10) is True
    assert probed == [3 * PROBE_BYTES], "one page needs one probe"
    file.close()


def test_a_slice_reads_its_range(disk_root: tuple[Disk, str]) -> None:
    disk, root = disk_root
    file = disk.open(f"{root}/f", create=True)
    file.append([b"0123456789"])
    assert FileSlice(file, 3, 4).read() == b"3456"
    assert isinstance(file, RealFile) == (file.fileno() is not None)
    file.close()
    assert disk.open_files() > 0


def test_a_replacement_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = RealDisk(), f"{tmp_path}/f"
    disk.write_atomic(path, b"old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr("ottla.env.disk.os.write", full)
        with pytest.raises(DiskError):
            disk.write_atomic(path, b"new")
    assert disk.listdir(str(tmp_path)) == ["f"]
    assert disk.read_bytes(path) == b"old"
