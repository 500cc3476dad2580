"""The test broker, ours and another client on a simulated Windows: not the real one, but without what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("without_posix.py")


@pytest.mark.slow
@pytest.mark.spec("U1")
def test_a_broker_in_memory_needs_no_posix_on_simulated_windows() -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, timeout=120, check=False, cwd=SCRIPT.parents[3]
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr, run.stderr
    assert run.stdout == (
        f"data='somewhere': on this system ({sys.platform}) the broker keeps its data in memory only: leave data= out\n"
    )
