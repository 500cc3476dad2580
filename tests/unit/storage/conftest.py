"""What the storage tests share."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.env.disk import Disk, RealDisk
from ottla.testing.disk_memory import MemoryDisk


class Ground(NamedTuple):
    """A disk, and a folder on it."""

    disk: Disk
    root: str


@pytest.fixture(params=["memory", "real"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """Every test that uses it runs in memory and on the real disk."""
    if request.param == "real":
        return Ground(RealDisk(), str(tmp_path))
    disk = MemoryDisk()
    disk.mkdirs("/data")
    return Ground(disk, "/data")
