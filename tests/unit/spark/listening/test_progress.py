"""What the progress of a query says."""

from __future__ import annotations

import pytest

from ottla.client.model import TopicPartition
from ottla.spark.listening.progress import Lag, read_progress, rows_behind
from ottla.spark.listening.queries import MOST_SIGHTINGS, SeenEnds
from unit.spark.listening.progress import progress, source

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_a_progress_has_topics_offsets_rows_and_times() -> None:
    read = read_progress(progress(source({"u": {"0": 3}, "t": {"0": 600, "1": 0}}, {"t": {"0": 1000}}, rows=600)))
    assert (read.name, read.number, read.rows, read.seconds) == ("mine", 0, 600, 0.392)
    (only,) = read.sources
    assert only.topics == ("t", "u")
    assert only.end == {T0: 600, T1: 0, U0: 3}
    assert only.latest == {T0: 1000}
    assert (only.rows, only.input_rows_per_second, only.processed_rows_per_second) == (600, 88.9, 1020.4)


@pytest.mark.parametrize("offsets", [7, None, {"logOffset": 3}], ids=["a number", "none", "files"])
def test_a_source_of_another_kind_has_rows_and_no_topics(offsets: object) -> None:
    (only,) = read_progress(progress(source(offsets, rows=5))).sources  # type: ignore[arg-type]
    assert (only.rows, only.topics, only.end, only.lag) == (5, (), {}, None)


def test_rates_that_spark_leaves_out_are_nought() -> None:
    document = progress(source({"t": {"0": 1}}))
    del document["inputRowsPerSecond"]
    document["sources"][0]["processedRowsPerSecond"] = None
    read = read_progress(document)
    assert (read.input_rows_per_second, read.sources[0].processed_rows_per_second) == (0.0, 0.0)


def test_rows_behind_are_those_up_to_the_end_of_each_log() -> None:
    assert rows_behind({T0: 600, T1: 5, U0: 9}, {T0: 1000, T1: 3}) == {T0: 400, T1: 0}


def test_lag_by_topic() -> None:
    lag = Lag({T0: 5, T1: 7, U0: 1}, {T0: 0.5, T1: 2.5})
    assert (lag.total_rows, lag.rows_of("t"), lag.rows_of("u")) == (13, 12, 1)
    assert (lag.most_seconds, lag.seconds_of("t"), lag.seconds_of("u")) == (2.5, 2.5, None)


def test_records_have_waited_since_they_were_first_seen() -> None:
    seen = SeenEnds()
    seen.add(10.0, {T0: 100, T1: 7})
    seen.add(20.0, {T0: 200, T1: 7})
    seen.add(30.0, {T0: 300, T1: 7})
    assert seen.waited(31.0, {T0: 0, T1: 7}) == {T0: 21.0, T1: 0.0}
    assert seen.waited(32.0, {T0: 100, T1: 7}) == {T0: 12.0, T1: 0.0}
    assert seen.waited(33.0, {T0: 250, T1: 7}) == {T0: 3.0, T1: 0.0}
    assert seen.waited(34.0, {T0: 300, T1: 7}) == {T0: 0.0, T1: 0.0}


def test_many_ends_are_thinned_out_and_the_oldest_stays() -> None:
    seen = SeenEnds()
    for second in range(10 * MOST_SIGHTINGS):
        seen.add(float(second), {T0: second + 1})
    assert seen.waited(5_000.0, {T0: 0}) == {T0: 5_000.0}
    assert 4_000.0 <= seen.waited(5_000.0, {T0: 500})[T0] <= 4_500.0


def test_a_watermark_beyond_the_times_of_python_is_not_known() -> None:
    at = {
        "2026-11-23T07:57:40.000Z": 1_795_420_660.0,
        "1970-01-01T00:00:00.000Z": None,
        "+10000-01-01T00:00:00.000Z": None,
    }
    for text, seconds in at.items():
        assert read_progress(progress() | {"eventTime": {"watermark": text}}).watermark_s == seconds
