"""How log directories and compared replicas are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ottla.cli.terminal import Cell, Column, Row, Style, Terminal, count, data_size, write_json
from ottla.client.admin.model import LogDirDescription, ReplicaSize
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import ClusterStatus
from ottla.ops.replica_checks import ReplicaCheck

_LOG_DIRS = (
    Column("BROKER", is_number=True),
    Column("LOG DIRECTORY", may_shrink=True),
    Column("REPLICAS", is_number=True),
    Column("SIZE", is_number=True),
    Column("FREE", is_number=True),
    Column("OF", is_number=True),
    Column("NOTE", may_shrink=True),
)
_REPLICAS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("BROKER", is_number=True),
    Column("LOG DIRECTORY", may_shrink=True),
    Column("SIZE", is_number=True),
    Column("LAG", is_number=True),
    Column("NOTE", may_shrink=True),
)
_CHECKS = (
    Column("TOPIC", may_shrink=True),
    Column("PARTITION", is_number=True),
    Column("REPLICAS"),
    Column("OFFSETS"),
    Column("COMPARED", is_number=True),
    Column("RESULT", may_shrink=True),
)

_Found = tuple[int, LogDirDescription]


def show_log_dirs(status: ClusterStatus, brokers: Collection[int], *, with_replicas: bool, as_json: bool) -> bool:
    """Show the log directories of these brokers (none given: of all); False where one failed or did not answer."""
    shown = [each for each in status.brokers if not brokers or each.node.node_id in brokers]
    found = [(each.node.node_id, log_dir) for each in shown for _, log_dir in sorted(each.log_dirs.items())]
    names = {topic.name for topic in status.topics}
    if as_json:
        for broker, log_dir in found:
            write_json(_log_dir_row(broker, log_dir))
            for row in _replica_rows(broker, log_dir, names):
                write_json(row)
    else:
        terminal = Terminal.standard_output()
        terminal.table(_LOG_DIRS, [_log_dir_cells(*each) for each in found])
        rows = [*_replica_cells(found, names, only_notable=not with_replicas)]
        if rows:
            terminal.line()
            terminal.table(_REPLICAS, rows)
    return not any(each.problem or each.failed_log_dirs for each in shown)


def _log_dir_row(broker: int, log_dir: LogDirDescription) -> dict[str, Any]:
    return {
        "kind": "log_dir",
        "broker": broker,
        "path": log_dir.path,
        "error": log_dir.error,
        "replicas": sum(not each.is_future for each in log_dir.replicas.values()),
        "future_replicas": sum(each.is_future for each in log_dir.replicas.values()),
        "size_bytes": sum(each.size_bytes for each in log_dir.replicas.values()),
        "usable_bytes": log_dir.usable_bytes,
        "total_bytes": log_dir.total_bytes,
    }


def _replica_rows(broker: int, log_dir: LogDirDescription, names: Collection[str]) -> Iterator[dict[str, Any]]:
    for key, each in sorted(log_dir.replicas.items()):
        if key.topic in names:
            yield {
                "kind": "replica",
                **key._asdict(),
                "broker": broker,
                "log_dir": log_dir.path,
                "size_bytes": each.size_bytes,
                "is_future": each.is_future,
                "offset_lag": each.offset_lag,
                "loss_reports": len(log_dir.lost_records.get(key, ())),
            }


def _log_dir_cells(broker: int, log_dir: LogDirDescription) -> Row:
    if log_dir.error is not None:
        return (str(broker), log_dir.path, "-", "-", "-", "-", Cell(f"failed: {log_dir.error}", Style.BAD))
    moving = sum(each.is_future for each in log_dir.replicas.values())
    return (
        str(broker),
        log_dir.path,
        str(len(log_dir.replicas) - moving),
        data_size(sum(each.size_bytes for each in log_dir.replicas.values())),
        data_size(log_dir.usable_bytes) if log_dir.usable_bytes >= 0 else "-",
        data_size(log_dir.total_bytes) if log_dir.total_bytes >= 0 else "-",
        Cell(f"{count(moving, 'replica')} on the way here" if moving else "", Style.BUSY),
    )


def _replica_cells(found: Sequence[_Found], names: Collection[str], *, only_notable: bool) -> Iterator[Row]:
    rows: list[tuple[TopicPartition, int, LogDirDescription, ReplicaSize]] = [
        (key, broker, log_dir, each)
        for broker, log_dir in found
        for key, each in log_dir.replicas.items()
        if key.topic in names and not (only_notable and not each.is_future and key not in log_dir.lost_records)
    ]
    for key, broker, log_dir, each in sorted(rows, key=lambda row: row[:2]):
        losses = len(log_dir.lost_records.get(key, ()))
        note = Cell(count(losses, "report") + " of lost records", Style.BAD) if losses else Cell("")
        yield (
            key.topic,
            str(key.partition),
            str(broker),
            log_dir.path,
            data_size(each.size_bytes),
            str(each.offset_lag) if each.is_future else "-",
            Cell("future replica", Style.BUSY) if each.is_future else note,
        )


def show_checks(checks: Sequence[ReplicaCheck], *, as_json: bool) -> None:
    """Show the findings, a row for each partition."""
    if as_json:
        for check in checks:
            write_json(_check_row(check))
        return
    terminal = Terminal.standard_output()
    terminal.table(_CHECKS, [_check_cells(each) for each in checks])
    bad = sum(not each.is_same for each in checks)
    size = data_size(sum(each.compared_bytes for each in checks))
    result = f"{bad} not the same" if bad else "all the same"
    terminal.line(
        f"{count(len(checks), 'partition')}, {size} of batches compared: "
        f"{terminal.paint(result, Style.BAD if bad else Style.GOOD)}"
    )


def _check_row(check: ReplicaCheck) -> dict[str, Any]:
    return {
        **check.partition._asdict(),
        "brokers": list(check.brokers),
        "start_offset": check.start_offset,
        "end_offset": check.end_offset,
        "compared_bytes": check.compared_bytes,
        "is_same": check.is_same,
        "is_compacted": check.is_compacted,
        "problems": check.problems,
        "difference": {broker: mark and mark._asdict() for broker, mark in check.difference.items()},
    }


def _check_cells(check: ReplicaCheck) -> Row:
    if check.difference:
        marks = "; ".join(f"broker {broker} has {mark or 'nothing'}" for broker, mark in check.difference.items())
        result = Cell(f"different: {marks}", Style.BAD)
    elif check.problems:
        result = Cell("; ".join(f"broker {broker}: {text}" for broker, text in check.problems.items()), Style.BAD)
    elif check.is_compacted:
        result = Cell("compacted: batches are not compared", Style.FAINT)
    else:
        result = Cell("the same", Style.GOOD)
    return (
        check.partition.topic,
        str(check.partition.partition),
        ",".join(map(str, check.brokers)),
        f"{check.start_offset}–{check.end_offset}",
        data_size(check.compared_bytes),
        result,
    )
