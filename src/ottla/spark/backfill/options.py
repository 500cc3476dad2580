"""Options of reading segment files with `format("ottla")`: those of the source, and `segments`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.spark.connection import BOOTSTRAP, CONNECTION_OPTIONS, ConnectionOptions, parse_connection
from ottla.spark.errors import OptionError
from ottla.spark.options import SparkOptions
from ottla.spark.source.offsets import EARLIEST, LATEST
from ottla.spark.source.options import (
    DEFAULT_ROWS_PER_BATCH,
    ReadOptions,
    SplitOptions,
    TimestampMiss,
    decoding_names,
    parse_bound,
    parse_columns,
    parse_decoding,
    parse_selection,
)

SEGMENTS = "segments"

SEGMENT_READ_OPTIONS = (
    SEGMENTS,
    *CONNECTION_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "kafka.isolation.level",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "rowsPerBatch",
)


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """Checked options. `read` are those that the source has too; without a broker its bootstrap servers are empty."""

    log_dirs: tuple[str, ...]
    read: ReadOptions


def parse_backfill_options(options: Mapping[str, str]) -> BackfillOptions:
    """Check the options of a read from segment files. Raises OptionError."""
    names = (*SEGMENT_READ_OPTIONS, *decoding_names(options))
    checked = SparkOptions(options, names, "reading segment files")
    log_dirs = tuple(dict.fromkeys(each.strip() for each in (checked.get(SEGMENTS) or "").split(",") if each.strip()))
    if not log_dirs:
        raise OptionError(f"option {SEGMENTS} names no log directory; give directory[,directory], as in log.dirs")
    checked.choice("kafka.isolation.level", ("read_committed",), "read_committed")
    starting = parse_bound(checked, "starting", default=EARLIEST)
    if starting.offset == LATEST or LATEST in starting.offsets.values():
        raise OptionError("option startingOffsets: a batch read cannot start at latest; use earliest or an offset")
    ending = parse_bound(checked, "ending", default=LATEST)
    if ending.offset == EARLIEST or EARLIEST in ending.offsets.values():
        raise OptionError("option endingOffsets: a read cannot end at earliest; use latest or an offset")
    if BOOTSTRAP in checked:
        connection = parse_connection(checked)
    else:
        connection = ConnectionOptions("")
        for side, bound in (("starting", starting), ("ending", ending)):
            if bound.timestamp_ms is not None or bound.timestamps_ms:
                raise OptionError(
                    f"the {side} timestamp is looked up by the brokers; give {BOOTSTRAP}, or {side}Offsets instead"
                )
    return BackfillOptions(
        log_dirs,
        ReadOptions(
            connection=connection,
            selection=parse_selection(checked),
            starting=starting,
            ending=ending,
            timestamp_miss=TimestampMiss(
                checked.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
            ),
            split=SplitOptions(checked.positive("minPartitions")),
            fail_on_data_loss=checked.boolean("failOnDataLoss", default=True),
            include_headers=checked.boolean("includeHeaders", default=False),
            columns=parse_columns(checked),
            decoding=parse_decoding(options),
            rows_per_batch=checked.positive("rowsPerBatch") or DEFAULT_ROWS_PER_BATCH,
        ),
    )
