"""A driver of a plain Parquet table, as a program that tests kill.

`python -m support.parquet_driver FOLDER BATCHES`.
"""

from __future__ import annotations

import sys
import time

from ottla.spark.pipelines.errors import SupersededError
from ottla.spark.pipelines.tables.opening import open_table
from support.staged_batches import settings, stage

#: Batches of one day; each day is compacted when the next one is over.
BATCHES_PER_DAY = 10
ROWS = 3
_DAY_MS = 86_400_000


def main(folder: str, batches: int) -> int:
    """Go on where the table ends, with the last batch again; 3 if another driver took over."""
    table = open_table(settings(folder), "archive")
    try:
        table.recover()
        last = table.last_commit()
        for number in range(last.batch_id if last else 0, batches):
            day = number // BATCHES_PER_DAY
            name = time.strftime("%Y-%m-%d", time.gmtime(day * 86_400))
            rows = {name: range(number * ROWS, (number + 1) * ROWS)}
            try:
                batch = stage(table, number, rows)
            except FileNotFoundError:  # Another driver took over while it was written, and has removed it.
                batch = stage(table, number, rows)
            table.commit(batch)
            table.compact(day * _DAY_MS)
    except SupersededError as error:
        print(error)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
