"""The command `ottla profile`, and its figures as a table."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ottla.cli.cluster.plan import DEFAULT_BROKERS, MOST_BROKERS
from ottla.cli.command import EXIT_REFUSED, CommandError
from ottla.cli.options import DEFAULT_TIMEOUT_S, Json, Timeout, or_named_cluster
from ottla.cli.profile import COMMAND
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, duration, numbers, printable, write_json
from ottla.profiles.workload import (
    MOST_PRODUCERS,
    MOST_RECORD_BYTES,
    MOST_RECORDS,
    WORKLOADS,
    ProfileError,
    ProfileLoad,
    ProfileName,
)

if TYPE_CHECKING:
    from ottla.profiles.result import ProfileResult

DEFAULT_SECONDS = 20.0
MOST_SECONDS = 86_400.0
MOST_PARTITIONS = 100_000
MODULES = ("numpy", "pyarrow")

_Figure = tuple[str, str | Cell, str]
_COLUMNS: tuple[Column[_Figure], ...] = (
    Column("figure", lambda each: each[0]),
    numbers("", lambda each: each[1]),
    Column("", lambda each: each[2]),
)
_SMALLEST_SECONDS_MS = 10_000.0


@or_named_cluster
def profile(
    name: Annotated[ProfileName, typer.Argument(help="Which workload.")],
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            help="One or more host:port of the cluster; without, brokers are started on this machine, and removed.",
            envvar="OTTLA_BOOTSTRAP_SERVER",
        ),
    ] = None,
    records: Annotated[int | None, typer.Option(help="How many records, in all.", min=1, max=MOST_RECORDS)] = None,
    seconds: Annotated[float | None, typer.Option(help="Or for how long [20].", min=0.1, max=MOST_SECONDS)] = None,
    record_bytes: Annotated[int, typer.Option(help="Bytes of a value.", min=1, max=MOST_RECORD_BYTES)] = 200,
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of the topic [12].", min=1, max=MOST_PARTITIONS)
    ] = None,
    factor: Annotated[
        int | None,
        typer.Option("--replication-factor", help="Replicas of each partition [payments 3, clicks 2].", min=1),
    ] = None,
    producers: Annotated[
        int | None, typer.Option(help="Producer processes [one for two cores].", min=1, max=MOST_PRODUCERS)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Records a second, in all; without, as many as go.", min=1)] = None,
    most_p99_ms: Annotated[
        float | None,
        typer.Option("--p99-ms", help="Latency that p99 has to stay below, in milliseconds [payments 500].", min=0.1),
    ] = None,
    brokers: Annotated[int | None, typer.Option(help="Brokers that are started [3].", min=1, max=MOST_BROKERS)] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill one of them (SIGKILL) halfway, and start it again.")
    ] = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Produce a workload, read all of it back, and show figures and what was lost, doubled or reordered.

    payments: acks=all, idempotent, three replicas; nothing lost or twice, p99 below 500 ms. clicks: acks=1, large
    batches; some may be lost. Ends with 0 where the profile's promises were kept, with 1 where one was broken, with 2
    where it could not be run.
    """
    if records is None and seconds is None:
        seconds = DEFAULT_SECONDS
    workload = WORKLOADS[name]
    load = ProfileLoad(
        workload,
        producers or max(1, (os.cpu_count() or 1) // 2),
        partitions or workload.partitions,
        factor,
        record_bytes,
        records,
        seconds,
        rate,
        most_p99_ms,
        kill,
        timeout_s,
    )
    _carry_out(load, servers, of_cluster, brokers, as_json=as_json)


def _carry_out(
    load: ProfileLoad, servers: str | None, of_cluster: Mapping[str, str], brokers: int | None, *, as_json: bool
) -> NoReturn:
    """Run it, show its figures, and end the process."""
    from ottla.client.errors import ClientError

    COMMAND.require("a profile", MODULES, "profiles")

    def work() -> int:
        if load.records is not None and load.seconds is not None:
            raise CommandError("--records and --seconds contradict each other; give one of them")
        if servers is not None and (load.is_disturbed or brokers is not None):
            option = "--kill" if load.is_disturbed else "--brokers"
            raise CommandError(
                f"{option} is for brokers started here; leave out --bootstrap-server and --cluster, and unset "
                "OTTLA_BOOTSTRAP_SERVER and OTTLA_CLUSTER"
            )
        try:
            result = asyncio.run(_run(load, servers, of_cluster, DEFAULT_BROKERS if brokers is None else brokers))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        _show(result, as_json=as_json)
        return EXIT_REFUSED if result.broken else 0

    COMMAND.run(work, (ClientError, ProfileError))


async def _run(load: ProfileLoad, servers: str | None, of_cluster: Mapping[str, str], brokers: int) -> ProfileResult:
    from ottla.profiles.payloads import least_record_bytes
    from ottla.profiles.run import run_profile

    least = least_record_bytes(load.workload)
    if load.record_bytes < least:
        raise CommandError(f"--record-bytes {load.record_bytes}: a value of {load.workload.name} has {least} at least")
    _stop_on_sigterm()
    if servers is not None:
        return await run_profile(load, servers, _say, client_settings=of_cluster)
    load.replicas_on(brokers)
    COMMAND.require("brokers on this machine", ["kazoo"], "profiles")
    from ottla.cli.profile.own_cluster import own_cluster, while_disk_lasts

    _say(f"starting {brokers} brokers")
    async with own_cluster(brokers, _say) as (cluster, addresses):
        return await while_disk_lasts(run_profile(load, addresses, _say, cluster), cluster.folder)


def _stop_on_sigterm() -> None:
    """SIGTERM ends it as Ctrl-C does, so that nothing is left behind; where loops take no signals, it ends at once."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _say(message: str) -> None:
    """Progress goes to standard error, so that standard output has the figures alone."""
    print(printable(message), file=sys.stderr, flush=True)


def _show(result: ProfileResult, *, as_json: bool) -> None:
    if as_json:
        write_json(result.row())
        return
    show_result(Terminal.standard_output(), result)


def show_result(terminal: Terminal, result: ProfileResult) -> None:
    """Write the table, and below it what was broken."""
    terminal.line(
        f"{result.profile}: {count(result.partitions, 'partition')} with "
        f"{count(result.replication_factor, 'replica')}, {count(result.producers, 'producer')}, "
        f"{result.record_bytes:,}-byte values"
    )
    rows = [
        ("acknowledged", f"{result.acknowledged:,}", f"in {result.seconds:.1f} s"),
        ("records/s", f"{result.records_per_s:,.0f}", f"{result.of_mark:.0%} of a million"),
        ("MB/s", f"{result.mb_per_s:,.1f}", "of values"),
        ("latency p50", _latency(result.p50_ms), "from the record's making to its acknowledgement"),
        ("latency p99", _latency(result.p99_ms), ""),
        ("latency p99.9", _latency(result.p999_ms), ""),
        ("CPU of the brokers", _seconds(result.brokers_cpu_s), "with their ZooKeeper"),
        ("CPU of the producers", _seconds(result.producers_cpu_s), ""),
        ("generator alone, records/s", f"{result.alone_per_s:,.0f}", "of a core"),
        ("read back", f"{result.read:,}", f"in {result.check_s:.1f} s"),
    ]
    counts = {
        "lost": result.lost,
        "twice": result.doubled,
        "out of order": result.reordered,
        "not acknowledged": result.not_acknowledged,
        "never sent": result.strange,
    }
    cells: list[_Figure] = [(name, value, note) for name, value, note in rows if value != "-"]
    cells += [(name, Cell(f"{many:,}", Style.BAD if many else Style.GOOD), "") for name, many in counts.items()]
    terminal.table(_COLUMNS, cells, headings=False)
    for error in result.errors:
        terminal.line(f"  an error of the producers: {error}")
    if not result.broken:
        terminal.line(terminal.paint("kept: all that the profile promises", Style.GOOD))
    for each in result.broken:
        terminal.line(terminal.paint(f"broken: {each}", Style.BAD))


def _latency(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:,.1f} ms" if ms < _SMALLEST_SECONDS_MS else duration(ms)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.1f} s"
