"""How log directories and compared replicas are shown: as tables, and as JSON objects, one a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ottla.cli.terminal import (
    PARTITION,
    TOPIC,
    Cell,
    Column,
    Style,
    Terminal,
    attributes,
    count,
    data_size,
    numbers,
    write_json,
)
from ottla.client.admin.model import LogDirDescription, ReplicaSize
from ottla.client.model import TopicPartition
from ottla.ops.cluster_status import ClusterStatus
from ottla.ops.replica_checks import ReplicaCheck


class FoundLogDir(NamedTuple):
    """A log directory of a broker."""

    broker: int
    log_dir: LogDirDescription

    @property
    def future_replicas(self) -> int:
        """Replicas that are being moved to it."""
        return sum(each.is_future for each in self.log_dir.replicas.values())


class FoundReplica(NamedTuple):
    """A replica of a broker and its log directory."""

    partition: TopicPartition
    broker: int
    log_dir: LogDirDescription
    size: ReplicaSize


_LOG_DIRS: tuple[Column[FoundLogDir], ...] = (
    numbers("BROKER", lambda each: each.broker),
    Column("LOG DIRECTORY", lambda each: each.log_dir.path, may_shrink=True),
    numbers("REPLICAS", lambda each: None if each.log_dir.error else len(each.log_dir.replicas) - each.future_replicas),
    numbers("SIZE", lambda each: _size(each.log_dir, each.log_dir.size_bytes)),
    numbers("FREE", lambda each: _size(each.log_dir, each.log_dir.usable_bytes)),
    numbers("OF", lambda each: _size(each.log_dir, each.log_dir.total_bytes)),
    Column("NOTE", lambda each: _log_dir_note(each), may_shrink=True),
)
_REPLICAS: tuple[Column[FoundReplica], ...] = (
    TOPIC,
    PARTITION,
    numbers("BROKER", lambda each: each.broker),
    Column("LOG DIRECTORY", lambda each: each.log_dir.path, may_shrink=True),
    numbers("SIZE", lambda each: data_size(each.size.size_bytes)),
    numbers("LAG", lambda each: each.size.offset_lag if each.size.is_future else None),
    Column("NOTE", lambda each: _replica_note(each), may_shrink=True),
)
_CHECKS: tuple[Column[ReplicaCheck], ...] = (
    TOPIC,
    PARTITION,
    Column("REPLICAS", lambda each: ",".join(map(str, each.brokers))),
    Column("OFFSETS", lambda each: f"{each.start_offset}–{each.end_offset}"),
    numbers("COMPARED", lambda each: data_size(each.compared_bytes)),
    Column("RESULT", lambda each: _result(each), may_shrink=True),
)


def show_log_dirs(status: ClusterStatus, brokers: Collection[int], *, with_replicas: bool, as_json: bool) -> bool:
    """Show the log directories of these brokers (none given: of all); False where one failed or did not answer."""
    shown = [each for each in status.brokers if not brokers or each.node.node_id in brokers]
    log_dirs = [FoundLogDir(each.node.node_id, found) for each in shown for _, found in sorted(each.log_dirs.items())]
    names = {topic.name for topic in status.topics}
    if as_json:
        for each in log_dirs:
            write_json(_log_dir_row(each), *map(_replica_row, _replicas(each, names)))
    else:
        terminal = Terminal.standard_output()
        terminal.table(_LOG_DIRS, log_dirs)
        replicas = sorted(
            (each for log_dir in log_dirs for each in _replicas(log_dir, names)), key=lambda each: each[:2]
        )
        if not with_replicas:
            replicas = [each for each in replicas if each.size.is_future or each.partition in each.log_dir.lost_records]
        if replicas:
            terminal.line()
            terminal.table(_REPLICAS, replicas)
    return not any(each.problem or each.failed_log_dirs for each in shown)


def _replicas(found: FoundLogDir, names: Collection[str]) -> list[FoundReplica]:
    replicas = sorted(found.log_dir.replicas.items())
    return [FoundReplica(key, found.broker, found.log_dir, size) for key, size in replicas if key.topic in names]


def _log_dir_row(found: FoundLogDir) -> dict[str, Any]:
    log_dir = found.log_dir
    return {
        "kind": "log_dir",
        "broker": found.broker,
        "path": log_dir.path,
        "error": log_dir.error,
        "replicas": len(log_dir.replicas) - found.future_replicas,
        "future_replicas": found.future_replicas,
        **attributes(log_dir, "size_bytes", "usable_bytes", "total_bytes"),
    }


def _replica_row(each: FoundReplica) -> dict[str, Any]:
    return {
        "kind": "replica",
        **each.partition._asdict(),
        "broker": each.broker,
        "log_dir": each.log_dir.path,
        **attributes(each.size, "size_bytes", "is_future", "offset_lag"),
        "loss_reports": len(each.log_dir.lost_records.get(each.partition, ())),
    }


def _size(log_dir: LogDirDescription, size_bytes: int) -> str | None:
    return data_size(size_bytes) if size_bytes >= 0 and log_dir.error is None else None


def _log_dir_note(each: FoundLogDir) -> Cell:
    if each.log_dir.error is not None:
        return Cell(f"failed: {each.log_dir.error}", Style.BAD)
    return Cell(f"{count(each.future_replicas, 'replica')} on the way here" if each.future_replicas else "", Style.BUSY)


def _replica_note(each: FoundReplica) -> Cell:
    if each.size.is_future:
        return Cell("future replica", Style.BUSY)
    losses = len(each.log_dir.lost_records.get(each.partition, ()))
    return Cell(f"{count(losses, 'report')} of lost records" if losses else "", Style.BAD)


def show_checks(checks: Sequence[ReplicaCheck], *, as_json: bool) -> None:
    """Show the findings, a row for each partition."""
    if as_json:
        write_json(*map(_check_row, checks))
        return
    terminal = Terminal.standard_output()
    terminal.table(_CHECKS, checks)
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
        **attributes(check, "start_offset", "end_offset", "compared_bytes", "is_same", "is_compacted", "problems"),
        "difference": {broker: mark and mark._asdict() for broker, mark in check.difference.items()},
    }


def _result(check: ReplicaCheck) -> Cell:
    if check.difference:
        marks = "; ".join(f"broker {broker} has {mark or 'nothing'}" for broker, mark in check.difference.items())
        return Cell(f"different: {marks}", Style.BAD)
    if check.problems:
        return Cell("; ".join(f"broker {broker}: {text}" for broker, text in check.problems.items()), Style.BAD)
    if check.is_compacted:
        return Cell("compacted: batches are not compared", Style.FAINT)
    return Cell("the same", Style.GOOD)
