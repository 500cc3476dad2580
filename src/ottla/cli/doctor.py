"""`ottla doctor`: what is wrong between a client and a cluster, in it and on a broker's disk, and the cure of each."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import EXIT_FAILED, Command, CommandError
from ottla.cli.options import ClusterOptions, checked_seconds
from ottla.cli.terminal import Cell, Column, Style, Terminal, write_json

if TYPE_CHECKING:
    from ottla.ops.doctor.examining import DoctorFacts
    from ottla.ops.doctor.faults import DoctorFault
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla doctor")
#: No column is shortened: a cure without its end cures nothing.
_COLUMNS: tuple[Column[DoctorFault], ...] = (
    Column("FAULT", lambda each: Cell(each.fault, Style.BAD)),
    Column("WHERE", lambda each: Cell(each.where, Style.NAME)),
    Column("WHAT AND CURE", lambda each: f"{each.what}. {each.cure}"),
)


def doctor(
    shared: ClusterOptions,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Only this group; may be repeated [all groups]."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIRECTORY", help="A broker's log directory on this machine, too; may be repeated."),
    ] = None,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval",
            help="Seconds to a second look, where one cannot say that it moves on.",
            min=0.05,
            callback=checked_seconds,
        ),
    ] = 10,
) -> None:
    """Find what is wrong with a cluster, of ottla or Apache Kafka, and name the cure of each fault in its row.

    Addresses: what is behind each, what brokers advertise. The cluster: all that `ottla cluster health` warns of.
    Topics and settings that do not fit each other. Groups: lag, offsets, assignments, rebalances, progress. With
    --data: the disk, the limit of open files. docs/doctor.md lists all faults.

    Ends with 0 where no fault is found, with 1 where there are faults, with 2 where it could not look.
    """
    from ottla.env.disk import DiskError
    from ottla.inspection.directories import NothingThere

    COMMAND.run_with_cluster(
        shared,
        lambda cluster: _examine(cluster, groups, data or (), interval_s, as_json=shared.as_json),
        (DiskError, NothingThere),
    )


async def _examine(
    cluster: Cluster, groups: list[str] | None, data: list[str] | tuple[()], interval_s: float, *, as_json: bool
) -> int:
    from ottla.env.disk import RealDisk
    from ottla.ops.doctor.disk import disk_faults, log_directory
    from ottla.ops.doctor.examining import cluster_faults
    from ottla.ops.doctor.reaching import look_at_addresses

    if "" in data:
        raise CommandError("--data names no directory; give the log directory of a broker (log.dirs)")
    directories = [path.rstrip("/") or "/" for path in data]
    for path in directories:
        log_directory(RealDisk(), path)
    seen = await look_at_addresses(cluster.settings, cluster.environment)
    faults, cluster_id, missing = seen.faults, None, ""
    if seen.reached:
        now, before = await _look(cluster, groups, interval_s)
        cluster_id, missing = now.health.status.cluster_id, next(iter(now.missing), "")
        unreachable = {each.where for each in faults}
        # Of a broker that cannot be reached the address is the fault.
        faults += [
            each
            for each in cluster_faults(now, before)
            if each.fault != "silent-broker" or each.where not in unreachable
        ]
    for path in directories:
        faults += disk_faults(RealDisk(), path, _open_files_limit(path), cluster_id)
    if as_json:
        write_json(*({"kind": "fault", **asdict(each)} for each in faults))
    elif faults:
        Terminal.standard_output().table(_COLUMNS, faults, indent="")
    elif seen.reached and not missing:
        Terminal.standard_output().line("no faults found")
    if not seen.reached:
        COMMAND.report("no broker can be reached, so that topics and groups were not looked at")
    if missing:
        raise CommandError(
            f"group {missing} does not exist at {cluster.name}; `ottla group list` shows those that there are"
        )
    return 1 if faults else 0 if seen.reached else EXIT_FAILED


async def _look(
    cluster: Cluster, groups: list[str] | None, interval_s: float
) -> tuple[DoctorFacts, DoctorFacts | None]:
    """The facts, and those before where one look was not enough."""
    from ottla.cli.cluster.health import scrape
    from ottla.ops.doctor.examining import read_doctor_facts

    now = await read_doctor_facts(cluster, scrape, groups)
    if not now.needs_another_look:
        return now, None
    if sys.stderr.isatty():
        COMMAND.report(f"looking again in {interval_s:g} s, to see what moves on")
    await asyncio.sleep(interval_s)
    return await read_doctor_facts(cluster, scrape, groups), now


def _open_files_limit(path: str) -> int:
    """The limit of the broker that has locked the directory, where Linux says it; else of a broker started here."""
    from ottla.env.platforms import open_files_limit, raise_open_files_limit

    try:
        lock = f":{os.stat(f'{path}/.lock').st_ino}"
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        pid = next(each[4] for each in held if len(each) > 5 and each[5].endswith(lock))
        found = re.search(r"^Max open files +(\d+)", Path(f"/proc/{int(pid)}/limits").read_text(), re.MULTILINE)
    except (OSError, StopIteration, ValueError):
        found = None
    if found is not None:
        return int(found[1])
    raise_open_files_limit()
    return open_files_limit()
