"""Drivers of a table that are killed and stopped, as processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import dataset

from ottla.spark.pipelines.tables.opening import open_table
from support.parquet_driver import ROWS
from support.staged_batches import settings
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("D3"), pytest.mark.slow]

TESTS = Path(__file__).parents[5]


def start(folder: Path, batches: int) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", "support.parquet_driver", str(folder), str(batches)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def last_batch(folder: Path) -> int:
    last = open_table(settings(str(folder)), "archive").last_commit()
    return last.batch_id if last else -1


def wait_for_batch(driver: subprocess.Popen[str], folder: Path, batch: int) -> None:
    wait_until(lambda: last_batch(folder) >= batch or driver.poll() is not None, f"batch {batch}")


def offsets(folder: Path) -> list[int]:
    found = dataset.dataset(folder, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist())


def check_kills(folder: Path, kills: int, batches: int, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(kills):
        driver = start(folder, batches)
        try:
            # The moment after that batch is chosen by chance: some work of the next one, or of a compaction.
            wait_for_batch(driver, folder, dice.randrange(number * batches // kills, (number + 1) * batches // kills))
            for _ in range(dice.randrange(200)):
                driver.poll()
        finally:
            driver.kill()
            driver.communicate()
        if last_batch(folder) >= 0:
            seen = offsets(folder)
            assert len(seen) == len(set(seen))
    driver = start(folder, batches)
    output, _ = driver.communicate(timeout=250)
    assert driver.returncode == 0, output
    assert offsets(folder) == list(range(batches * ROWS))


def test_drivers_killed_at_chance_moments(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=2, batches=24, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_drivers_killed_often(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=100, batches=2_000, seed=2)


def test_a_driver_stopped_replaced_and_continued(tmp_path: Path) -> None:
    stopped = start(tmp_path, 10_000)
    try:
        wait_for_batch(stopped, tmp_path, 3)
        stopped.send_signal(signal.SIGSTOP)
        at = last_batch(tmp_path)
        second = start(tmp_path, at + 15)
        output, _ = second.communicate(timeout=250)
        assert second.returncode == 0, output
        stopped.send_signal(signal.SIGCONT)
        output, _ = stopped.communicate(timeout=250)
        assert stopped.returncode == 3, output
        assert "another driver" in output
        assert len(output.splitlines()) == 1
    finally:
        stopped.kill()
        stopped.communicate()
    assert offsets(tmp_path) == list(range((at + 15) * ROWS))
