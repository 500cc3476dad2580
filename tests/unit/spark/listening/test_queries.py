"""What is known of queries, event by event, and the text about them."""

from __future__ import annotations

from ottla.client.model import TopicPartition
from ottla.spark.listening.progress import Basis, Lag, QueryState, read_progress
from ottla.spark.listening.queries import MOST_ENDED_QUERIES, Queries
from ottla.spark.listening.text import batch_line, report
from unit.spark.listening.progress import QUERY, RUN, progress, source

T0 = TopicPartition("t", 0)


def test_rows_and_batches_are_added_up_over_batches_and_restarts() -> None:
    queries = Queries()
    queries.started(QUERY, RUN, "mine")
    for batch in range(2):
        queries.progressed(read_progress(progress(source({"t": {"0": 1}}, rows=400), batch=batch)), 1.0)
    queries.ended(QUERY, None)
    queries.progressed(read_progress(progress(source({"t": {"0": 1}}, rows=200), batch=2, run="another")), 2.0)
    (query,) = queries.all()
    assert (query.batches, query.source_rows, query.state) == (3, {0: 1000}, QueryState.RUNNING)
    assert query.last is not None
    assert query.last.number == 2


def test_a_late_progress_does_not_bring_an_ended_query_back() -> None:
    queries = Queries()
    queries.started(QUERY, RUN, None)
    queries.ended(QUERY, None)
    query = queries.progressed(read_progress(progress(source({"t": {"0": 1}}))), 1.0)
    assert query.state is QueryState.STOPPED
    queries.idled(QUERY)
    assert query.state is QueryState.STOPPED


def test_a_query_without_a_name_goes_by_its_id() -> None:
    queries = Queries()
    assert queries.started(QUERY, RUN, None).label == QUERY
    assert queries.started(QUERY, RUN, "mine").label == "mine"


def test_ended_queries_are_forgotten_when_there_are_many() -> None:
    queries = Queries()
    queries.started("runs", RUN, "runs")
    for number in range(MOST_ENDED_QUERIES + 5):
        queries.started(str(number), RUN, None)
        queries.ended(str(number), None)
    assert [each.query_id for each in queries.all()] == ["runs", *map(str, range(5, MOST_ENDED_QUERIES + 5))]
    assert queries.ended("unknown", None) is None


def test_the_lag_of_a_progress_is_what_was_left_when_its_batch_was_planned() -> None:
    queries = Queries()
    first = read_progress(progress(source({"t": {"0": 600}}, {"t": {"0": 1000}})))
    lag = _lag(queries.progressed(first, 50.0))
    assert (lag.rows, lag.seconds, lag.basis) == ({T0: 400}, {T0: 0.0}, Basis.PROGRESS)
    lag = _lag(queries.progressed(first, 57.5))
    assert (lag.rows, lag.seconds) == ({T0: 400}, {T0: 7.5})
    queries.measured(QUERY, 0, Lag({T0: 450}, {T0: 60.0}, Basis.CLUSTER))
    (query,) = queries.all()
    assert _lag(query).rows == {T0: 450}


def test_a_batch_that_runs_again_after_a_start_says_nothing_of_the_lag() -> None:
    """Spark has no `latestOffset` of a batch that was planned before the query started."""
    again = source({"t": {"0": 600}}) | {"latestOffset": None}
    queries = Queries()
    query = queries.progressed(read_progress(progress(again, batch=5)), 50.0)
    assert batch_line(query).endswith("t with an unknown lag")
    queries.measured(QUERY, 0, Lag({T0: 4000}, {T0: 9.0}, Basis.CLUSTER))
    assert _lag(query).rows == {T0: 4000}
    later = read_progress(progress(source({"t": {"0": 600, "1": 1}}, {"t": {"0": 600}})))
    assert batch_line(queries.progressed(later, 51.0)).endswith("t with an unknown lag")


def test_a_line_for_each_batch() -> None:
    queries = Queries()
    batch = read_progress(progress(source({"t": {"0": 600}}, {"t": {"0": 1600}}, rows=4000), source(7), batch=3))
    query = queries.progressed(batch, 50.0)
    assert batch_line(query) == "mine: batch 3, 4,000 rows in 0.39 s, t 1,000 rows behind"
    assert batch_line(queries.progressed(batch, 200.0)).endswith("t 1,000 rows behind, at least 2.5 min")
    queries.measured(QUERY, 0, Lag({T0: 5}, {T0: 9_000.0}, Basis.CLUSTER))
    assert batch_line(query).endswith("t 5 rows behind, 2.5 h")
    queries.measured(QUERY, 0, Lag({T0: 0}, {T0: 0.0}, Basis.CLUSTER))
    assert batch_line(query).endswith("t read to the end")


def test_the_report_has_every_query_with_its_sources() -> None:
    queries = Queries()
    assert report(queries.all()) == "no queries"
    queries.started("other", RUN, "other")
    assert report(queries.all()) == "other: running, no batch yet"
    queries.progressed(read_progress(progress(source({"t": {"0": 600}}, {"t": {"0": 600}}, rows=4000))), 50.0)
    queries.commit_failed(QUERY)
    queries.ended(QUERY, "the broker is away\n\tat java.lang")
    assert report(queries.all()).splitlines() == [
        "other: running, no batch yet",
        "mine: failed, batch 0 of 4,000 rows took 0.39 s",
        "  failed: the broker is away",
        "  commits to its group that failed: 1 (the log says why)",
        "  source 0: t read to the end; 4,000 rows; 88.9 rows/s in, 1,020.4 rows/s processed",
    ]


def _lag(query: object) -> Lag:
    lag = query.last.sources[0].lag  # type: ignore[attr-defined]
    assert lag is not None
    return lag
