from __future__ import annotations

import pytest

from ottla.env.disk import DiskError
from ottla.storage.files import OpenFiles, SegmentFile
from ottla.storage.flushing import FlushJob
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk


def test_a_job_pins_its_files_until_released() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.mkdirs("/t-0")
    files = OpenFiles(disk, limit=1)
    made = [SegmentFile(files, "/t-0", number, ".log") for number in range(3)]
    for file in made:
        file.get(create=True)
    job = FlushJob(disk, "/t-0", 9, 100)
    for file in made:
        job.add(file)
    job.add_paths(["/t-0/gone"])
    disk.write_atomic("/t-0/small", b"x")
    job.add_paths(["/t-0/small"])
    assert all(file.is_open for file in made)
    job.run()
    assert (job.end_offset, job.unflushed_bytes) == (9, 100)
    job.release()
    assert all(file.pins == 0 for file in made)
    disk.fail("flush", "*small")
    with pytest.raises(DiskError, match="small"):
        job.run()
    disk.heal()
    disk.fail("flush", "/t-0")
    with pytest.raises(DiskError, match="/t-0"):
        job.run()
    disk.heal()
    disk.fail("open", "*small")
    with pytest.raises(DiskError, match="small"):
        job.run()


def test_a_file_that_cannot_be_opened_stops_the_job_before_it_begins() -> None:
    disk = FaultyDisk(MemoryDisk())
    job = FlushJob(disk, None, 0, 0)
    with pytest.raises(DiskError):
        job.add(SegmentFile(OpenFiles(disk), "/nowhere", 0, ".log"))
    job.run()
    job.release()
