"""`ottla backfill`: segment files to Parquet, and the offsets where a stream continues."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.options import DEFAULT_TIMEOUT_S, Json, Timeout, or_named_cluster
from ottla.cli.terminal import json_line

if TYPE_CHECKING:
    from ottla.spark.backfill.export import ExportOptions
    from ottla.spark.backfill.options import BackfillOptions

COMMAND = Command("ottla backfill")


@or_named_cluster
def backfill(
    log_dir: Annotated[
        list[str], typer.Option("--log-dir", metavar="DIRECTORY,…", help="Log directories (log.dirs); may be repeated.")
    ],
    topic: Annotated[list[str], typer.Option("--topic", "-t", metavar="TOPIC,…", help="Topics; may be repeated.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIRECTORY", help="A new directory for the Parquet files.")],
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="Brokers, host:port, which say what is committed; without, the checkpoints in the log directories do.",
            envvar="OTTLA_BOOTSTRAP_SERVER",
        ),
    ] = None,
    starting: Annotated[
        str,
        typer.Option(
            "--starting-offsets",
            metavar="earliest|JSON|FILE",
            help="Where to start: Spark's startingOffsets, or a file of it as an earlier backfill wrote it.",
        ),
    ] = "earliest",
    ending: Annotated[
        str, typer.Option("--ending-offsets", metavar="latest|JSON", help="Where to end: Spark's endingOffsets.")
    ] = "latest",
    include_headers: Annotated[bool, typer.Option("--headers", help="With the headers of the records.")] = False,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Continue without records that are missing.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", "-p", min=1, help="Processes that read [one for each processor].")
    ] = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Write topics to Parquet from segment files, in parallel, of a broker that runs or of one that is stopped.

    The rows are those that a read_committed consumer gets, in the columns of the Spark source. Where it ended stands in
    _offsets.json beside them: a stream with that text as startingOffsets continues with neither gap nor repetition.
    """
    COMMAND.require("the backfill", ("pyspark", "pyarrow"), "spark")
    from ottla.client.errors import ClientError
    from ottla.spark.errors import SparkRefusal

    def work() -> int:
        from ottla.spark.backfill.export import ExportOptions
        from ottla.spark.backfill.options import parse_backfill_options

        workers = processes or os.cpu_count() or 1
        options = {
            "segments": ",".join(log_dir),
            "subscribe": ",".join(topic),
            "startingOffsets": _offsets(starting),
            "endingOffsets": ending,
            "failOnDataLoss": str(not allow_data_loss).lower(),
            "minPartitions": str(workers),
        }
        options |= _cluster(servers, of_cluster, timeout_s)
        how = ExportOptions(to, include_headers, not allow_data_loss, workers)
        return _run(parse_backfill_options(options), how, as_json)

    COMMAND.run(work, (ClientError, SparkRefusal))


def _cluster(servers: str | None, settings: Mapping[str, str], timeout_s: float) -> dict[str, str]:
    """The options for a read with brokers; none without."""
    if servers is None:
        return {}
    options = {f"kafka.{name}": value for name, value in settings.items()}
    return options | {"kafka.bootstrap.servers": servers, "kafka.default.api.timeout.ms": str(round(timeout_s * 1000))}


def _offsets(text: str) -> str:
    """The offsets as given, or what the file holds that is named."""
    if text.strip().lower() == "earliest" or text.lstrip().startswith("{"):
        return text
    try:
        return Path(text).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"--starting-offsets {text}: neither earliest nor JSON nor a file to read: {error}"
        ) from None


def _run(options: BackfillOptions, how: ExportOptions, as_json: bool) -> int:
    from ottla.spark.backfill.export import OFFSETS_FILE, check_empty, export
    from ottla.spark.backfill.plan import make_plan
    from ottla.spark.source.offsets import to_json

    check_empty(how.directory)
    plan = make_plan(options)
    for note in plan.notes:
        COMMAND.report(note)
    rows = 0
    try:
        for file in export(plan, how):
            rows += file.rows
            wanted = file.wanted
            if as_json:
                row = {"file": str(file.path), "topic": wanted.topic, "partition": wanted.partition}
                row |= {"start": wanted.start, "end": wanted.end, "rows": file.rows}
                sys.stdout.write(json_line(row))
            else:
                print(f"{file.path.name}: offsets {wanted.start:,} to {wanted.end:,}, {file.rows:,} rows", flush=True)
    except OSError as error:
        raise CommandError(f"cannot write to {how.directory}: {error}") from error
    if as_json:
        sys.stdout.write(json_line({"rows": rows, "offsets": to_json(plan.ending)}))
    else:
        print(f"{rows:,} rows in {len(plan.ranges):,} files; ended at the offsets in {how.directory / OFFSETS_FILE}")
    return 0
