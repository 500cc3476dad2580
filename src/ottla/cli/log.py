"""`ottla log`: looks at log folders, Apache Kafka's and ours, whether a broker is running on them or not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ottla.cli.ending import end, refuse

if TYPE_CHECKING:
    from ottla.inspection.dump import DumpWish
    from ottla.inspection.verify import VerifyWish

EXIT_DAMAGED = 1

app = typer.Typer(
    name="log",
    help="Look into log folders of ottla or Apache Kafka, check them, mend them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class OutputFormat(StrEnum):
    """How results are written."""

    table = "table"
    json = "json"


class BytesFormat(StrEnum):
    """How keys and values are shown."""

    auto = "auto"
    text = "text"
    json = "json"
    hex = "hex"
    base64 = "base64"
    integer = "integer"


class Decode(StrEnum):
    """What records of internal topics are read as."""

    auto = "auto"
    none = "none"
    offsets = "offsets"
    transactions = "transactions"
    rebalances = "rebalances"


Paths = Annotated[list[str], typer.Argument(help="Files, folders of partitions, or folders of log.dirs.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic of a log folder.")]
Partition = Annotated[int | None, typer.Option(help="Only this partition of a log folder.", min=0)]
Format = Annotated[OutputFormat, typer.Option("--format", help="A table, or one JSON object a line.")]


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
    everything: Annotated[bool, typer.Option("--all", help="Of folders all files, not just the logs.")] = False,
    decode: Annotated[Decode, typer.Option(help="Read records as those of an internal topic.")] = Decode.auto,
    key_format: Annotated[BytesFormat, typer.Option(help="How keys are shown.")] = BytesFormat.auto,
    value_format: Annotated[BytesFormat, typer.Option(help="How values are shown.")] = BytesFormat.auto,
    output: Format = OutputFormat.table,
) -> None:
    """Show what lies in log folders and files: batches, records, index entries, producers, checkpoints.

    Ends with 0, with 1 where something was damaged, with 2 where something could not be read at all.
    """
    from ottla.inspection.batch_rows import RecordWish
    from ottla.inspection.dump import DumpWish
    from ottla.inspection.internal_topics import Decoder
    from ottla.inspection.texts import TextFormat

    shown = RecordWish(
        records=records or key is not None,
        from_offset=offset,
        until_offset=until,
        key=None if key is None else _key(key),
        key_format=TextFormat(key_format),
        value_format=TextFormat(value_format),
    )
    _end(lambda: _dump(paths, DumpWish(shown, Decoder(decode), everything, topic, partition), output))


def _dump(paths: list[str], wish: DumpWish, output: OutputFormat) -> int:
    from ottla.cli.log_output import write_json, write_table
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

    (write_json if output is OutputFormat.json else write_table)(rows(), sys.stdout.write)
    if not seen and wish.narrowed:
        _refuse("no such topic or partition there")
    return EXIT_DAMAGED if damaged else 0


@app.command()
def verify(
    paths: Paths,
    topic: Topic = None,
    partition: Partition = None,
    no_records: Annotated[bool, typer.Option("--no-records", help="Check batches only, not each record.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Gaps between offsets are in order, as after compaction.")
    ] = False,
    output: Format = OutputFormat.table,
) -> None:
    """Check log folders and files to the last byte, and say of each damage which records it concerns.

    Ends with 0 where everything is sound, with 1 where something is damaged, with 2 where it could not be read.
    """
    from ottla.inspection.verify import VerifyWish

    _end(lambda: _verify(paths, VerifyWish(topic, partition, not no_records, compacted), output))


def _verify(paths: list[str], wish: VerifyWish, output: OutputFormat) -> int:
    from ottla.cli.log_output import finding_lines, finding_row, summary_line, summary_row, write_json
    from ottla.env.disk import RealDisk
    from ottla.inspection.findings import Tally
    from ottla.inspection.verify import verify as findings_of

    tally = Tally()
    for path in paths:
        for finding in findings_of(RealDisk(), path, wish, tally):
            if output is OutputFormat.json:
                write_json([finding_row(finding)], sys.stdout.write)
            else:
                sys.stdout.write(finding_lines(finding))
    if output is OutputFormat.json:
        write_json([summary_row(tally)], sys.stdout.write)
    else:
        sys.stdout.write(summary_line(tally))
    return EXIT_DAMAGED if tally.damaged else 0


@app.command()
def repair(
    path: Annotated[str, typer.Argument(help="A partition's folder, or a folder of log.dirs, that no broker uses.")],
    topic: Topic = None,
    partition: Partition = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it, instead of only saying what would be done.")
    ] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Gaps between offsets are in order, as after compaction.")
    ] = False,
    index_interval_bytes: Annotated[
        int, typer.Option(help="Bytes of a log between two entries of a new index, index.interval.bytes.", min=1)
    ] = 4096,
) -> None:
    """Mend log folders: heads of batches, indexes, small files; damaged batches are taken out and kept beside.

    Ends with 0 where nothing is left to mend, with 1 where there is something to do, with 2 where it could not be done.
    """
    from ottla.inspection.verify import VerifyWish

    wish = VerifyWish(topic, partition, compacted=compacted)
    _end(lambda: _repair(path, wish, execute, index_interval_bytes))


def _repair(path: str, wish: VerifyWish, execute: bool, interval: int) -> int:
    from ottla.cli.log_output import finding_lines, remedy_line
    from ottla.env.disk import RealDisk
    from ottla.inspection.repair import FolderInUse, carry_out, make_plan

    plan = make_plan(RealDisk(), path, wish)
    for finding in plan.to_mend:
        sys.stdout.write(finding_lines(finding) + remedy_line(finding))
    for finding in plan.beyond_repair:
        sys.stdout.write(finding_lines(finding) + "  -> beyond repair\n")
    if not plan.to_mend:
        sys.stdout.write("nothing to mend\n")
        return 0
    if not execute:
        in_use = "; a broker is using the folder, stop it first" if plan.in_use else ""
        sys.stdout.write(f"{len(plan.to_mend)} to mend; nothing was changed: --execute does it{in_use}\n")
        return EXIT_DAMAGED
    sys.stdout.flush()
    try:
        left = carry_out(RealDisk(), path, wish, interval)
    except FolderInUse as problem:
        _refuse(str(problem))
    for finding in left.findings:
        sys.stdout.write("left: " + finding_lines(finding))
    sys.stdout.write("mended\n" if not left.to_mend else "not everything could be mended\n")
    return EXIT_DAMAGED if left.to_mend else 0


def _key(text: str) -> bytes:
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            _refuse(f"--key {text}: what follows 0x is not hexadecimal")
    return text.encode("utf-8", "surrogateescape")


def _end(work: Callable[[], int]) -> NoReturn:
    from ottla.env.disk import DiskError
    from ottla.inspection.folders import NothingThere

    end("ottla log", work, (DiskError, NothingThere))


def _refuse(message: str) -> NoReturn:
    refuse("ottla log", message)
