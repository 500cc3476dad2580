"""A run's lines about its batches, one for each, and its bounded samples of them for the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from ottla.spark.listening.progress import BatchProgress, SourceProgress
from ottla.spark.listening.queries import Query
from ottla.spark.listening.text import span
from ottla.spark.source.offsets import Offsets

#: Most samples that are kept; when there are more, every second one is dropped.
MOST_SAMPLES: Final = 2_000
_THOUSAND: Final = 1_000


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One batch. `at_s` is when it was reported, in seconds since 1970; what is not known is None.

    `watermark_behind_s` is the time from the watermark to `at_s`.
    """

    at_s: float
    number: int
    rows: int
    seconds: float
    lag_rows: int | None
    lag_s: float | None
    watermark_behind_s: float | None
    state_rows: int
    state_bytes: int

    @property
    def rows_per_second(self) -> float:
        """Rows by the time that the batch took."""
        return self.rows / self.seconds if self.seconds else 0.0


class RowCount:
    """Rows of batches by the offsets that they cover, where Spark itself sees less.

    On the archive's fast path Spark sees no row, and in a mirror one for each range of offsets. `start` is where the
    run begins; without it the first batch counts as Spark has it.
    """

    def __init__(self, start: Offsets | None = None) -> None:
        self._reached: Offsets | None = None if start is None else dict(start)
        self._started: datetime | None = None

    def counted(self, batch: BatchProgress) -> BatchProgress:
        """The next batch, with its rows and their rates. Gaps in the offsets, of compaction and transactions, count."""
        reached, before = self._reached, self._started
        started = datetime.fromisoformat(batch.started)
        apart_s = 0.0 if before is None else (started - before).total_seconds()
        sources = batch.sources
        if reached is not None:
            sources = tuple(_by_offsets(each, reached, batch.seconds, apart_s) for each in sources)
        self._reached = (reached or {}) | {partition: end for each in sources for partition, end in each.end.items()}
        self._started = started
        if sources == batch.sources:
            return batch
        return replace(
            batch,
            sources=sources,
            rows=sum(each.rows for each in sources),
            input_rows_per_second=sum(each.input_rows_per_second for each in sources),
            processed_rows_per_second=sum(each.processed_rows_per_second for each in sources),
        )


def _by_offsets(source: SourceProgress, reached: Offsets, seconds: float, apart_s: float) -> SourceProgress:
    """A source's progress by the offsets that a batch of `seconds` covers.

    It began `apart_s` after the one before, 0 where that is not known.
    """
    covered = sum(max(0, end - reached.get(each, 0)) for each, end in source.end.items())
    if covered <= source.rows:
        return source
    return replace(
        source,
        rows=covered,
        input_rows_per_second=covered / apart_s if apart_s > 0 else 0.0,
        processed_rows_per_second=covered / seconds if seconds else 0.0,
    )


class RunHistory:
    """The batches of one run: totals of all, samples of as many as there is room for."""

    def __init__(self) -> None:
        self.samples: list[BatchSample] = []
        self.batches = 0
        self.rows = 0
        self.busy_s = 0.0
        self.longest_s = 0.0
        self._stride = 1

    def add(self, sample: BatchSample) -> None:
        """Note a batch that has ended."""
        if self.batches % self._stride == 0:
            self.samples.append(sample)
        self.batches += 1
        self.rows += sample.rows
        self.busy_s += sample.seconds
        self.longest_s = max(self.longest_s, sample.seconds)
        if len(self.samples) > MOST_SAMPLES:
            del self.samples[1::2]
            self._stride *= 2


def sample(batch: BatchProgress, at_s: float) -> BatchSample:
    """A batch as the report needs it."""
    lags = [each.lag for each in batch.sources if each.lag is not None]
    is_known = all(each.lag is not None for each in batch.sources if each.end)
    seconds = [each.most_seconds for each in lags if each.most_seconds is not None]
    return BatchSample(
        at_s=at_s,
        number=batch.number,
        rows=batch.rows,
        seconds=batch.seconds,
        lag_rows=sum(each.total_rows for each in lags) if lags and is_known else None,
        lag_s=max(seconds, default=None),
        watermark_behind_s=None if batch.watermark_s is None else at_s - batch.watermark_s,
        state_rows=batch.state_rows,
        state_bytes=batch.state_bytes,
    )


def live_line(query: Query, at_s: float) -> str:
    """One line about a query after its last batch: rows/s, lag, batch time, watermark, state."""
    batch = query.last
    if batch is None:
        return f"{query.label}: {query.state}, no batch yet"
    found = sample(batch, at_s)
    clauses = [
        f"{query.label}: batch {found.number}",
        f"{found.rows:,} rows in {span(found.seconds)}",
        f"{found.rows_per_second:,.0f} rows/s",
        _lag(found),
    ]
    if batch.watermark_s is not None:
        clauses.append(f"watermark {datetime.fromtimestamp(batch.watermark_s, UTC):%Y-%m-%d %H:%M:%S}Z")
    if found.state_rows:
        clauses.append(f"state {found.state_rows:,} rows, {size(found.state_bytes)}")
    return ", ".join(clauses)


def _lag(found: BatchSample) -> str:
    if found.lag_rows is None:
        return "lag not known"
    if not found.lag_rows:
        return "no lag"
    late = "" if not found.lag_s else f" and {span(found.lag_s)}"
    return f"{found.lag_rows:,} rows{late} behind"


def size(count_bytes: int) -> str:
    """A number of bytes for people."""
    amount = float(count_bytes)
    for unit in ("B", "kB", "MB"):
        if amount < _THOUSAND:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _THOUSAND
    return f"{amount:.1f} GB"
