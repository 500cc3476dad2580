"""Runs one client's loads in a process of its own: `client_worker.py CLIENT`, jobs as JSON lines in, results out.

A result is a line of JSON: what was measured, or `{"error": …}`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import traceback
from pathlib import Path

BENCH = Path(__file__).resolve().parent
# The harness that reads processor time belongs to the tests.
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests")]

from client_programs.meter import Job, Meter, Programs  # noqa: E402

CONFLUENT, KAFKA_PYTHON, AIOKAFKA = OTHERS = ("confluent-kafka", "kafka-python", "aiokafka")
CONFLUENT_TUNED = "confluent-kafka, tuned"
OTTLA, OTTLA_SYNC = "ottla", "ottla.sync"
#: Each client's module, and what its loads are called there.
MODULES = {
    CONFLUENT: ("with_confluent", "PROGRAMS"),
    CONFLUENT_TUNED: ("with_confluent", "TUNED"),
    KAFKA_PYTHON: ("with_kafka_python", "PROGRAMS"),
    AIOKAFKA: ("with_aiokafka", "PROGRAMS"),
    OTTLA: ("with_ottla", "PROGRAMS"),
    OTTLA_SYNC: ("with_ottla_sync", "PROGRAMS"),
}


def programs(client: str) -> Programs:
    """The loads of a client."""
    module, name = MODULES[client]
    found: Programs = getattr(importlib.import_module(f"client_programs.{module}"), name)
    return found


def version(client: str) -> str:
    """A client's version."""
    return str(importlib.import_module(f"client_programs.{MODULES[client][0]}").VERSION)


def main() -> int:
    """Do what comes in until the input ends."""
    found = programs(sys.argv[1])
    for line in sys.stdin:
        job = Job(**json.loads(line))
        meter = Meter(job)
        try:
            found[job.load](job, meter)
            print(json.dumps(dataclasses.asdict(meter.measured)), flush=True)
        except Exception:
            print(json.dumps({"error": traceback.format_exc()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
