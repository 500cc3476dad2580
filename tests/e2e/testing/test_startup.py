"""How long a test broker takes to start, in processor time: a busy machine adds nothing to it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spec("U1"), pytest.mark.slow]

#: What `Broker()` may take once its modules are imported, in milliseconds.
MOST_MS = 20.0
ATTEMPTS = 10

STARTS = """
import importlib, json, time

importlib.import_module("ottla.broker.server")
from ottla.testing import Broker

taken_ms = []
for _ in range(4):
    began_ns = time.process_time_ns()
    with Broker({"orders": 3}):
        taken_ms.append((time.process_time_ns() - began_ns) / 1e6)
print(json.dumps([taken_ms[0], min(taken_ms[1:])]))
"""


def test_the_first_broker_and_later_ones_start_at_once() -> None:
    first_ms, later_ms = [], []
    for _ in range(ATTEMPTS):
        ended = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True, timeout=200)
        first, later = json.loads(ended.stdout)
        first_ms.append(first)
        later_ms.append(later)
        if min(first_ms) < MOST_MS and min(later_ms) < MOST_MS:
            break
    # Other work only adds to the cost.
    assert min(first_ms) < MOST_MS, first_ms
    assert min(later_ms) < MOST_MS / 2, later_ms
