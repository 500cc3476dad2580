"""Figures of queries as text for people."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.spark.listening.progress import Basis, Lag, SourceProgress
from ottla.spark.listening.queries import Query

_MINUTE_S = 60
_HOUR_S = 3_600


def batch_line(query: Query) -> str:
    """One line for the batch of a query that ended last."""
    last = query.last
    if last is None:
        return f"{query.label}: no batch yet"
    clauses = [f"{query.label}: batch {last.number}", f"{last.rows:,} rows in {span(last.seconds)}"]
    clauses.extend(_source(each) for each in last.sources if each.end)
    return ", ".join(clauses)


def report(queries: Iterable[Query]) -> str:
    """All queries, each with its sources."""
    lines: list[str] = []
    for query in queries:
        lines.append(_head(query))
        if query.failure is not None:
            lines.append(f"  failed: {query.failure}")
        if query.commit_failures:
            lines.append(f"  commits to its group that failed: {query.commit_failures:,} (the log says why)")
        for source in () if query.last is None else query.last.sources:
            total = query.source_rows.get(source.number, 0)
            came, done = source.input_rows_per_second, source.processed_rows_per_second
            rates = f"{came:,.1f} rows/s in, {done:,.1f} rows/s processed"
            what = _source(source) if source.end else source.description
            lines.append(f"  source {source.number}: {what}; {total:,} rows; {rates}")
    return "\n".join(lines) if lines else "no queries"


def _head(query: Query) -> str:
    last = query.last
    if last is None:
        return f"{query.label}: {query.state}, no batch yet"
    batch = f"batch {last.number} of {last.rows:,} rows took {span(last.seconds)}"
    return f"{query.label}: {query.state}, {batch}"


def _source(source: SourceProgress) -> str:
    return f"{', '.join(source.topics)} {_behind(source.lag)}"


def _behind(lag: Lag | None) -> str:
    if lag is None:
        return "with an unknown lag"
    if not lag.total_rows:
        return "read to the end"
    seconds = lag.most_seconds
    if not seconds:
        return f"{lag.total_rows:,} rows behind"
    at_least = "at least " if lag.basis is Basis.PROGRESS else ""
    return f"{lag.total_rows:,} rows behind, {at_least}{span(seconds)}"


def span(seconds: float) -> str:
    """A length of time for people."""
    if seconds < _MINUTE_S:
        return f"{seconds:.2f} s"
    return f"{seconds / _MINUTE_S:.1f} min" if seconds < _HOUR_S else f"{seconds / _HOUR_S:.1f} h"
