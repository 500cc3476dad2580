"""Writing a backfill to Parquet files by several processes, without Spark, and where it ended."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.env.disk import DiskError, RealDisk
from ottla.records.arrow import arrow_schema
from ottla.spark.backfill.errors import SegmentError
from ottla.spark.backfill.plan import BackfillPlan
from ottla.spark.backfill.reading import SegmentRange, read_rows
from ottla.spark.source.offsets import to_json

#: Where each partition ended, as Spark's `startingOffsets`. Readers of Parquet pass over names that begin so.
OFFSETS_FILE: Final = "_offsets.json"
#: Rows of a row group at most; large records make it smaller.
ROWS_PER_GROUP: Final = 262_144
#: Columns whose values repeat: a dictionary for keys and values would only cost time.
_REPEATING: Final = ["topic", "partition", "timestampType"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to write. `processes` work at the same time."""

    directory: Path
    include_headers: bool = False
    fail_on_data_loss: bool = True
    processes: int = 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is complete, and what it holds."""

    path: Path
    wanted: SegmentRange
    rows: int


def export(plan: BackfillPlan, options: ExportOptions) -> Iterator[WrittenFile]:
    """Write a file for each range and yield it when it is complete; the offsets file is written last.

    Raises SegmentError, DataLossError, OSError. Complete files of other ranges stay then, and no offsets file is there.
    """
    check_empty(options.directory)
    options.directory.mkdir(parents=True, exist_ok=True)
    yield from _alone(plan, options) if min(len(plan.ranges), options.processes) < 2 else _together(plan, options)
    document = json.dumps(to_json(plan.ending)).encode() + b"\n"
    try:
        RealDisk().write_atomic(str(options.directory / OFFSETS_FILE), document)
    except DiskError as error:
        raise SegmentError(str(error)) from error


def check_empty(directory: Path) -> None:
    """Check that a directory has no files yet. Raises SegmentError."""
    if directory.exists() and any(directory.iterdir()):
        raise SegmentError(
            f"{directory} is not empty; name a new directory, or remove what an earlier backfill has left there"
        )


def _alone(plan: BackfillPlan, options: ExportOptions) -> Iterator[WrittenFile]:
    for wanted in plan.ranges:
        yield write_range(wanted, options)


def _together(plan: BackfillPlan, options: ExportOptions) -> Iterator[WrittenFile]:
    context = multiprocessing.get_context("spawn")
    processes = min(len(plan.ranges), options.processes)
    with ProcessPoolExecutor(processes, context) as pool:
        works = [pool.submit(write_range, wanted, options) for wanted in plan.ranges]
        try:
            for work in as_completed(works):
                yield work.result()
        finally:
            pool.shutdown(cancel_futures=True)


def write_range(wanted: SegmentRange, options: ExportOptions) -> WrittenFile:
    """Write one range; its file has its name only when it is complete. Raises as `export`."""
    import pyarrow.parquet

    path = options.directory / f"part-{wanted}-{wanted.start:020d}.parquet"
    partial = path.with_name(f".{path.name}.tmp")
    rows = 0
    try:
        schema = arrow_schema(include_headers=options.include_headers)
        with pyarrow.parquet.ParquetWriter(partial, schema, compression="zstd", use_dictionary=_REPEATING) as writer:
            for batch in read_rows(
                wanted,
                rows_per_batch=ROWS_PER_GROUP,
                include_headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
            ):
                writer.write_batch(batch)
                rows += batch.num_rows
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return WrittenFile(path, wanted, rows)
