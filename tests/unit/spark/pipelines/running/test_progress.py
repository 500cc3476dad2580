"""Live lines, samples and the report of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.listening.progress import BatchProgress, Lag, SourceProgress, read_progress
from ottla.spark.listening.queries import Query
from ottla.spark.pipelines.running.progress import (
    MOST_SAMPLES,
    BatchSample,
    RowCount,
    RunHistory,
    live_line,
    sample,
)
from ottla.spark.pipelines.running.report import RunReport, write_report

PARTITION = TopicPartition("a", 0)


def _batch(number: int = 7, lag: Lag | None = None, watermark_s: float | None = None) -> BatchProgress:
    source = SourceProgress(0, "", 1_000, 0.0, 0.0, end={PARTITION: 5}, latest={PARTITION: 9}, lag=lag)
    return BatchProgress(
        query_id="id",
        run_id="run",
        name="totals",
        number=number,
        started="",
        seconds=2.0,
        rows=1_000,
        input_rows_per_second=0.0,
        processed_rows_per_second=0.0,
        sources=(source,),
        watermark_s=watermark_s,
        state_rows=12,
        state_bytes=2_048,
    )


def _sample(number: int) -> BatchSample:
    return BatchSample(float(number), number, 10, 0.5, 100 - number % 7, 1.5, 60.0, 3, 300)


def test_the_live_line_has_all_figures() -> None:
    query = Query("id", "run", "totals", last=_batch(lag=Lag({PARTITION: 4}, {PARTITION: 90.0}), watermark_s=0.0 + 60))
    assert live_line(query, 120.0) == (
        "totals: batch 7, 1,000 rows in 2.00 s, 500 rows/s, 4 rows and 1.5 min behind, "
        "watermark 1970-01-01 00:01:00Z, state 12 rows, 2.0 kB"
    )


def test_the_live_line_says_what_is_not_known() -> None:
    assert live_line(Query("id", "run", "totals"), 0.0) == "totals: running, no batch yet"
    assert ", lag not known," in live_line(Query("id", "run", "totals", last=_batch()), 0.0)
    known = _batch(lag=Lag({PARTITION: 0}))
    two = replace(known, sources=(*known.sources, *_batch().sources))
    assert ", lag not known," in live_line(Query("id", "run", "totals", last=two), 0.0)
    assert ", no lag," in live_line(Query("id", "run", "totals", last=_batch(lag=Lag({PARTITION: 0}))), 0.0)


def test_spark_s_progress_has_watermark_and_state() -> None:
    progress = {
        "id": "i",
        "runId": "r",
        "batchId": 1,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "eventTime": {"watermark": "2026-01-01T00:00:00.500Z"},
        "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 10}, {"numRowsTotal": 4, "memoryUsedBytes": 20}],
    }
    found = read_progress(progress)
    assert found.watermark_s == datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC).timestamp()
    assert (found.state_rows, found.state_bytes) == (7, 30)
    assert sample(found, found.watermark_s + 5).watermark_behind_s == 5.0
    assert read_progress(progress | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}).watermark_s is None


def _ranges(end: int, rows: int, second: int = 0) -> BatchProgress:
    source = SourceProgress(0, "", rows, 0.5, 0.25, end={PARTITION: end})
    started = f"2026-01-01T00:00:{second:02}.000Z"
    return BatchProgress("id", "run", "p", 1, started, 4.0, rows, 0.5, 0.25, (source,))


@pytest.mark.parametrize("seen", [0, 1])
def test_ranges_of_offsets_count_as_their_rows(seen: int) -> None:
    count = RowCount({PARTITION: 100})
    first, second = count.counted(_ranges(600, seen)), count.counted(_ranges(1_000, seen, second=10))
    assert (first.rows, first.processed_rows_per_second, first.input_rows_per_second) == (500, 125.0, 0.0)
    assert (second.rows, second.processed_rows_per_second, second.input_rows_per_second) == (400, 100.0, 40.0)
    (source,) = second.sources
    assert (source.rows, source.processed_rows_per_second, source.input_rows_per_second) == (400, 100.0, 40.0)


def test_what_spark_sees_more_of_stays_as_it_is() -> None:
    count = RowCount({PARTITION: 100})
    count.counted(_ranges(600, 500))
    for batch in (_ranges(600, 0), _ranges(700, 100), _ranges(750, 60)):
        assert count.counted(batch) == batch


def test_without_a_start_the_first_batch_counts_as_spark_has_it() -> None:
    count = RowCount()
    assert [count.counted(_ranges(end, 1)).rows for end in (600, 1_000)] == [1, 400]


def test_samples_are_bounded_and_totals_are_not() -> None:
    history = RunHistory()
    for number in range(3 * MOST_SAMPLES):
        history.add(_sample(number))
    assert MOST_SAMPLES / 2 <= len(history.samples) <= MOST_SAMPLES
    assert (history.batches, history.rows) == (3 * MOST_SAMPLES, 30 * MOST_SAMPLES)
    apart = {
        later.number - earlier.number for earlier, later in zip(history.samples, history.samples[1:], strict=False)
    }
    assert len(apart) == 1


@pytest.mark.slow
def test_the_report_is_one_page_with_plots_and_no_secret(tmp_path: Path) -> None:
    history = RunHistory()
    for number in range(20):
        history.add(_sample(number))
    report = RunReport("totals", "online", "it ended: hunter2 <b>", 61.0, history, ("hunter2",))
    write_report(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 6
    assert "hunter2" not in page
    assert "*** &lt;b&gt;" in page
    assert "<b>200</b><span>rows</span>" in page
    assert "src=" not in page


def test_a_run_without_batches_has_a_report(tmp_path: Path) -> None:
    write_report(RunReport("totals", "online", "it ended", 1.0, RunHistory()), tmp_path / "report.html")
    assert "No batch has ended." in (tmp_path / "report.html").read_text()
