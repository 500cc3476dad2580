"""The commands of `ottla log`, for log directories of Apache Kafka and of ottla, with or without a broker on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ottla.cli.command import EXIT_REFUSED, NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.log import COMMAND
from ottla.cli.options import Format, Json, OutputFormat, Yes, make_app
from ottla.cli.terminal import Terminal, count, json_line
from ottla.inspection.texts import Decoder, TextFormat

if TYPE_CHECKING:
    from ottla.inspection.dump import DumpWish
    from ottla.inspection.verify import VerifyWish

app = make_app("log", "Show, check and repair log directories, also of Apache Kafka.")


Paths = Annotated[list[str], typer.Argument(help="Files, partition directories, or directories of log.dirs.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic of a log directory.")]
Partition = Annotated[int | None, typer.Option(help="Only this partition of a log directory.", min=0)]


@app.command()
def dump(
    paths: Paths,
    records: Annotated[
        bool, typer.Option("--records", "--print-data-log", "-r", help="Show the records, too, not just their batches.")
    ] = False,
    offset: Annotated[int, typer.Option("--offset", help="Begin with the batch that holds this offset.", min=0)] = 0,
    until: Annotated[int | None, typer.Option(help="End before this offset.", min=0)] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key (text, or 0x and hexadecimal).")] = None,
    topic: Topic = None,
    partition: Partition = None,
    everything: Annotated[bool, typer.Option("--all", help="All files of directories, not just the logs.")] = False,
    decode: Annotated[Decoder, typer.Option(help="Read records as those of an internal topic.")] = Decoder.AUTO,
    key_format: Annotated[TextFormat, typer.Option(help="How keys are shown.")] = TextFormat.AUTO,
    value_format: Annotated[TextFormat, typer.Option(help="How values are shown.")] = TextFormat.AUTO,
    as_json: Json = False,
    output: Format = OutputFormat.table,
) -> None:
    """Show the contents of log directories and files.

    Shows batches, records, index entries, producers, checkpoints.

    Ends with 0, with 1 where something was damaged, with 2 where something could not be read at all.
    """
    from ottla.inspection.batch_rows import RecordWish
    from ottla.inspection.dump import DumpWish

    shown = RecordWish(
        records=records or key is not None,
        from_offset=offset,
        until_offset=until,
        key=None if key is None else _key(key),
        key_format=key_format,
        value_format=value_format,
    )
    wish = DumpWish(topic, partition, records=shown, decoder=decode, everything=everything)
    _end(lambda: _dump(paths, wish, as_json or output is OutputFormat.json), until_closed=True)


def _dump(paths: list[str], wish: DumpWish, as_json: bool) -> int:
    from ottla.cli.log.output import write_table
    from ottla.env.disk import RealDisk
    from ottla.inspection.dump import dump as rows_of

    damaged = seen = False

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal damaged, seen
        for path in paths:
            for row in rows_of(RealDisk(), path, wish):
                seen = True
                damaged |= row["type"] == "damage"
                yield row

    if as_json:
        sys.stdout.writelines(map(json_line, rows()))
    else:
        write_table(rows(), Terminal.standard_output())
    if not seen and wish.narrowed:
        raise CommandError("no such topic or partition there")
    return EXIT_REFUSED if damaged else 0


@app.command()
def verify(
    paths: Paths,
    topic: Topic = None,
    partition: Partition = None,
    no_records: Annotated[bool, typer.Option("--no-records", help="Check batches only, not each record.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Gaps between offsets are in order, as after compaction.")
    ] = False,
    as_json: Json = False,
    output: Format = OutputFormat.table,
) -> None:
    """Check log directories and files to the last byte.

    The report of each damage names the records that it affects.

    Ends with 0 where everything is intact, with 1 where something is damaged, with 2 where it could not be read.
    """
    from ottla.inspection.verify import VerifyWish

    wish = VerifyWish(topic, partition, not no_records, compacted)
    _end(lambda: _verify(paths, wish, as_json or output is OutputFormat.json))


def _verify(paths: list[str], wish: VerifyWish, as_json: bool) -> int:
    from ottla.cli.log.output import finding_lines, finding_row, summary_line, summary_row
    from ottla.env.disk import RealDisk
    from ottla.inspection.findings import Tally
    from ottla.inspection.verify import verify as findings_of

    tally = Tally()
    for path in paths:
        for finding in findings_of(RealDisk(), path, wish, tally):
            sys.stdout.write(json_line(finding_row(finding)) if as_json else finding_lines(finding))
    sys.stdout.write(json_line(summary_row(tally)) if as_json else summary_line(tally))
    return EXIT_REFUSED if tally.damaged else 0


@app.command()
def repair(
    path: Annotated[str, typer.Argument(help="A partition's directory, or one of log.dirs, that no broker uses.")],
    topic: Topic = None,
    partition: Partition = None,
    yes: Yes = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Gaps between offsets are in order, as after compaction.")
    ] = False,
    index_interval_bytes: Annotated[
        int, typer.Option(help="Bytes of a log between two entries of a new index, index.interval.bytes.", min=1)
    ] = 4096,
) -> None:
    """Repair log directories that no broker uses.

    Repairs batch headers, indexes and small files; damaged batches are moved to files beside the log.

    Ends with 0 where nothing is left to repair, with 1 where there is something to do, with 2 where it could not be
    done.
    """
    from ottla.inspection.verify import VerifyWish

    wish = VerifyWish(topic, partition, compacted=compacted)
    _end(lambda: _repair(path, wish, yes, index_interval_bytes))


def _repair(path: str, wish: VerifyWish, yes: bool, interval: int) -> int:
    from ottla.cli.log.output import finding_lines, remedy_line
    from ottla.env.disk import RealDisk
    from ottla.inspection.repair import LogDirectoryInUse, carry_out, make_plan

    plan = make_plan(RealDisk(), path, wish)
    for finding in plan.to_repair:
        sys.stdout.write(finding_lines(finding) + remedy_line(finding))
    for finding in plan.beyond_repair:
        sys.stdout.write(finding_lines(finding) + "  -> beyond repair\n")
    if not plan.to_repair:
        sys.stdout.write("nothing to repair\n")
        return 0
    in_use = "; a broker is using the directory, stop it first" if plan.in_use else ""
    if not yes:
        sys.stdout.write(f"{len(plan.to_repair)} to repair{in_use}\n")
    sys.stdout.flush()
    if not confirmed(f"Repair {count(len(plan.to_repair), 'finding')}?", yes=yes):
        return COMMAND.report(NOT_CONFIRMED)
    try:
        left = carry_out(RealDisk(), path, wish, interval)
    except LogDirectoryInUse as problem:
        raise CommandError(str(problem)) from problem
    for finding in left.findings:
        sys.stdout.write("left: " + finding_lines(finding))
    sys.stdout.write("repaired\n" if not left.to_repair else "not everything could be repaired\n")
    return EXIT_REFUSED if left.to_repair else 0


@app.command()
def explain(
    path: Annotated[str, typer.Argument(metavar="PARTITION_DIRECTORY", help="A partition's directory (TOPIC-NUMBER).")],
    offset: Annotated[int | None, typer.Option(help="Show how the index finds this offset.", min=0)] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Show how the indexes find this time: 2026-11-21T09:30:00 (UTC), 1h (ago), @MILLISECONDS."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the topic, for what comes next; may be repeated [Kafka's]."
        ),
    ] = None,
    as_json: Json = False,
    output: Format = OutputFormat.table,
) -> None:
    """Explain a partition on disk: its segments, how indexes find a record, what is rolled and deleted next.

    Only reads, also beside a running broker. What it says about deletion holds once all records are committed and
    flushed. A broker writes index entries late, so that its active segment may show fewer.
    """
    _end(
        lambda: _explain(path, offset, time, settings or [], as_json or output is OutputFormat.json), until_closed=True
    )


def _explain(path: str, offset: int | None, time: str | None, settings: list[str], as_json: bool) -> int:
    from ottla.cli.log.output import write_table
    from ottla.cli.record_options import parse_position
    from ottla.cli.topic.changes import parse_configs
    from ottla.config.broker import BrokerConfig, parse_broker_config
    from ottla.config.topic import LogConfig
    from ottla.env.clock import SystemClock
    from ottla.env.disk import RealDisk
    from ottla.inspection.explain import ExplainWish
    from ottla.inspection.explain import explain as rows_of
    from ottla.ops.topic_reading import PositionType

    now_ms, timestamp_ms = SystemClock().now_ms(), None
    if time is not None:
        position = parse_position("--time", time, now_ms)
        if position.type is not PositionType.TIMESTAMP:
            raise CommandError(
                f"--time {time}: expected 2026-11-21T09:30:00, 1h (ago) or @ and milliseconds since 1970"
            )
        timestamp_ms = position.number
    broker = parse_broker_config({})
    assert isinstance(broker, BrokerConfig)
    config = LogConfig.of(broker, parse_configs(settings, "--set"))
    if not isinstance(config, LogConfig):
        raise CommandError(f"--set: {config.problems[0]}; docs/settings.md has the settings of topics")
    # The name of the directory has the partition; its parent the checkpoints.
    rows = rows_of(RealDisk(), os.path.abspath(path), ExplainWish(config, now_ms, offset, timestamp_ms))
    if as_json:
        sys.stdout.writelines(map(json_line, rows))
    else:
        write_table(rows, Terminal.standard_output())
    return 0


def _key(text: str) -> bytes:
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            COMMAND.fail(f"--key {text}: what follows 0x is not hexadecimal")
    return text.encode("utf-8", "surrogateescape")


def _end(work: Callable[[], int], *, until_closed: bool = False) -> NoReturn:
    from ottla.env.disk import DiskError
    from ottla.inspection.directories import NothingThere

    COMMAND.run(work, (DiskError, NothingThere), until_closed=until_closed)
