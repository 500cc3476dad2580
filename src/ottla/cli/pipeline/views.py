"""Status and checks of pipelines, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.cli.terminal import Cell, Column, Style, Terminal, attributes, duration, numbers
from ottla.spark.pipelines.settings.references import redacted

if TYPE_CHECKING:
    from ottla.spark.pipelines.running.checks import CheckResult
    from ottla.spark.pipelines.running.status import PipelineStatus, ReadPartition

_VERDICTS = {True: ("ok", Style.GOOD), False: ("NOT OK", Style.BAD), None: ("-", Style.FAINT)}


def show_status(terminal: Terminal, status: PipelineStatus, secrets: Sequence[str], now_ms: int) -> None:
    """A pipeline's status as text."""
    terminal.line(f"pipeline {terminal.paint(status.name, Style.NAME)}, kind {status.kind}")
    terminal.line(f"  runner      {status.runner.liveness} ({redacted(status.runner.reason, secrets)})")
    if status.finished_batch is None:
        terminal.line("  batch       none has finished yet")
    else:
        age = "" if status.finished_ms is None else f", {duration(max(0, now_ms - status.finished_ms))} ago"
        terminal.line(f"  batch       {status.finished_batch:,} finished{_at(status.finished_ms)}{age}")
    if status.planned_batch is not None and status.planned_batch != status.finished_batch:
        terminal.line(f"  in work     batch {status.planned_batch:,}; it runs again if its runner is gone")
    if status.watermark_ms is not None:
        terminal.line(f"  watermark  {_at(status.watermark_ms)}")
    lag = status.lag
    terminal.line(f"  lag         {'not known' if lag is None else f'{lag:,} rows'}")
    if status.partitions:
        terminal.table(_columns(secrets), status.partitions)


def status_row(status: PipelineStatus, secrets: Sequence[str]) -> dict[str, Any]:
    """A pipeline's status as JSON."""
    heartbeat = status.runner.heartbeat
    return {
        **attributes(status, "name", "kind", "query_id", "planned_batch", "finished_batch", "finished_ms"),
        **attributes(status, "watermark_ms", "lag"),
        "runner": {
            "alive": status.runner.liveness.value,
            "reason": redacted(status.runner.reason, secrets),
            "state": heartbeat and heartbeat.state.value,
            "host": heartbeat and heartbeat.host,
            "pid": heartbeat and heartbeat.pid,
            "beat_ms": heartbeat and heartbeat.beat_ms,
        },
        "partitions": [_partition_row(each, secrets) for each in status.partitions],
        "problems": [redacted(each, secrets) for each in status.problems],
    }


def show_checks(terminal: Terminal, results: Sequence[CheckResult], secrets: Sequence[str]) -> None:
    """Results of checks as text, a line each."""
    columns: tuple[Column[CheckResult], ...] = (
        Column("ok", lambda each: Cell(*_VERDICTS[each.passed])),
        Column("what", lambda each: redacted(each.what, secrets)),
        Column("found", lambda each: redacted(each.detail, secrets)),
    )
    terminal.table(columns, results, headings=False)


def check_row(result: CheckResult, secrets: Sequence[str]) -> dict[str, Any]:
    """A result as JSON."""
    return {"what": redacted(result.what, secrets), "ok": result.passed, "found": redacted(result.detail, secrets)}


def _columns(secrets: Sequence[str]) -> Sequence[Column[ReadPartition]]:
    return (
        Column("source", lambda each: redacted(each.source, secrets), may_shrink=True),
        Column("topic", lambda each: redacted(each.partition.topic, secrets), may_shrink=True),
        numbers("partition", lambda each: _number(each.partition.partition)),
        numbers("position", lambda each: _number(each.position)),
        numbers("committed", lambda each: _number(each.committed)),
        numbers("end", lambda each: _number(each.end)),
        numbers("lag", lambda each: _number(each.lag)),
    )


def _partition_row(each: ReadPartition, secrets: Sequence[str]) -> dict[str, Any]:
    return {
        "source": each.source,
        "topic": redacted(each.partition.topic, secrets),
        "partition": each.partition.partition,
        **attributes(each, "position", "committed", "end", "lag"),
    }


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _at(time_ms: int | None) -> str:
    return "" if time_ms is None else f" {datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}Z"
