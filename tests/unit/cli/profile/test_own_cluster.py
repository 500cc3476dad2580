"""Brokers that a profile starts for itself: their processor time, and the end of a run on a full disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from ottla.cli.profile import own_cluster
from ottla.cli.profile.own_cluster import cpu_seconds, while_disk_lasts
from ottla.profiles.workload import ProfileError

pytestmark = pytest.mark.spec("D6")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_processor_time() -> None:
    spent_s = cpu_seconds(os.getpid())
    assert spent_s is not None
    assert spent_s == pytest.approx(sum(os.times()[:2]), abs=0.5)
    assert cpu_seconds(2**31 - 1) is None


def test_a_result_and_an_error_come_through(tmp_path: Path) -> None:
    async def work() -> int:
        return 7

    async def failing() -> int:
        raise KeyError("x")

    assert asyncio.run(while_disk_lasts(work(), str(tmp_path))) == 7
    with pytest.raises(KeyError):
        asyncio.run(while_disk_lasts(failing(), str(tmp_path)))


def test_a_full_disk_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def work() -> None:
        monkeypatch.setattr(own_cluster, "LEAST_FREE_BYTES", shutil.disk_usage(tmp_path).total + 1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ProfileError, match=r"the disk of .* has .* GB left; give fewer --records or --seconds"):
        asyncio.run(while_disk_lasts(work(), str(tmp_path)))
    assert ended == [True]
