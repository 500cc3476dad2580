"""What a commit to a table of a pipeline costs after many: processor and wall time, and what the table has grown to.

    ./run bench lake_commits                        # Delta and Iceberg, 1,000 commits each
    ./run bench lake_commits --kinds iceberg --commits 200

One row group of ten rows in two files per commit, a day of 28 after the other, a look for small files every 20 commits,
as pipelines do; the looks are timed by themselves. One process, no Spark, no reader.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ottla.spark.pipelines.sinks.tables import BATCHES_PER_COMPACTION
from support.staged_tables import Lake, numbered, stage

#: Commits whose median is shown.
MEDIAN_OF = 10
MARKS = (50, 200, 500, 1_000)
DAYS = 28
HEAD = "| table | commits | CPU of a commit | wall | CPU of a look for small files, mean | snapshots | manifests |"


def size(lake: Lake) -> tuple[str, str]:
    """Snapshots and manifests of an Iceberg table."""
    if lake.kind != "iceberg":
        return "", ""
    table = lake.foreign()
    newest: Any = table.current_snapshot()
    return str(len(table.snapshots())), str(len(newest.manifests(table.io)))


def measure(kind: str, commits: int, folder: Path) -> None:
    """Commit so often, and print a line at each mark."""
    lake = Lake(folder, kind)
    table = lake.opened(partition_by=("day",))
    wall: list[float] = []
    processor: list[float] = []
    looks: list[float] = []
    for batch_id in range(commits):
        day = 1 + batch_id * DAYS // commits
        batch = stage(table, batch_id, numbered(batch_id, day=f"2024-01-{day:02}"), files=2)
        started = time.monotonic(), time.process_time()
        table.commit(batch)
        wall.append(time.monotonic() - started[0])
        processor.append(time.process_time() - started[1])
        if (batch_id + 1) % BATCHES_PER_COMPACTION == 0:
            before = time.process_time()
            table.compact(int(datetime(2024, 1, day, tzinfo=UTC).timestamp() * 1000))
            looks.append(time.process_time() - before)
        if batch_id + 1 in MARKS:
            cpu, clock = (statistics.median(each[-MEDIAN_OF:]) * 1000 for each in (processor, wall))
            mean = statistics.mean(looks[-5:]) * 1000
            cells = (kind, f"{batch_id + 1:,}", f"{cpu:.0f} ms", f"{clock:.0f} ms", f"{mean:.0f} ms", *size(lake))
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=("delta", "iceberg"), default=("delta", "iceberg"))
    parser.add_argument("--commits", type=int, default=MARKS[-1])
    arguments = parser.parse_args()
    print(HEAD)
    print("|---|--:|--:|--:|--:|--:|--:|")
    for kind in arguments.kinds:
        with tempfile.TemporaryDirectory(prefix="ottla-lake-") as folder:
            measure(kind, arguments.commits, Path(folder))


if __name__ == "__main__":
    main()
