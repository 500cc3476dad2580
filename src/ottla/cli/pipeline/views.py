"""Status and checks of pipelines, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.cli.terminal import Cell, Column, Style, Terminal, duration
from ottla.spark.pipelines.settings.references import redacted

if TYPE_CHECKING:
    from ottla.spark.pipelines.running.checks import CheckResult
    from ottla.spark.pipelines.running.status import PipelineStatus

_COLUMNS = (
    Column("source", may_shrink=True),
    Column("topic", may_shrink=True),
    Column("partition", is_number=True),
    Column("position", is_number=True),
    Column("committed", is_number=True),
    Column("end", is_number=True),
    Column("lag", is_number=True),
)
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
        terminal.table(_COLUMNS, [_row(each, secrets) for each in _rows(status)])


def status_row(status: PipelineStatus, secrets: Sequence[str]) -> dict[str, Any]:
    """A pipeline's status as JSON."""
    heartbeat = status.runner.heartbeat
    partitions = [{**each, "topic": redacted(each["topic"], secrets)} for each in _rows(status)]
    return {
        "name": status.name,
        "kind": status.kind,
        "query_id": status.query_id,
        "planned_batch": status.planned_batch,
        "finished_batch": status.finished_batch,
        "finished_ms": status.finished_ms,
        "watermark_ms": status.watermark_ms,
        "lag": status.lag,
        "runner": {
            "alive": status.runner.liveness.value,
            "reason": redacted(status.runner.reason, secrets),
            "state": None if heartbeat is None else heartbeat.state.value,
            "host": None if heartbeat is None else heartbeat.host,
            "pid": None if heartbeat is None else heartbeat.pid,
            "beat_ms": None if heartbeat is None else heartbeat.beat_ms,
        },
        "partitions": partitions,
        "problems": [redacted(each, secrets) for each in status.problems],
    }


def show_checks(terminal: Terminal, results: Sequence[CheckResult], secrets: Sequence[str]) -> None:
    """Results of checks as text, a line each."""
    rows = []
    for each in results:
        text, style = _VERDICTS[each.passed]
        rows.append((Cell(text, style), redacted(each.what, secrets), redacted(each.detail, secrets)))
    terminal.table((Column("ok"), Column("what"), Column("found")), rows, headings=False)


def check_row(result: CheckResult, secrets: Sequence[str]) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "what": redacted(result.what, secrets),
        "ok": result.passed,
        "found": redacted(result.detail, secrets),
    }


def _rows(status: PipelineStatus) -> list[dict[str, Any]]:
    return [
        {
            "source": each.source,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "position": each.position,
            "committed": each.committed,
            "end": each.end,
            "lag": each.lag,
        }
        for each in status.partitions
    ]


def _row(row: dict[str, Any], secrets: Sequence[str]) -> list[str]:
    return [redacted(each, secrets) if isinstance(each, str) else _number(each) for each in row.values()]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _at(time_ms: int | None) -> str:
    return "" if time_ms is None else f" {datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}Z"
