"""Figures of queries for Prometheus, by prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.client.exporting import MetricsServer, serve_collector
from ottla.records.extras import require_extra
from ottla.spark.listening.progress import Lag, QueryState, SourceProgress
from ottla.spark.listening.queries import Query

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    Family = CounterMetricFamily | GaugeMetricFamily

PREFIX = "ottla_spark_"

#: The labels of each metric, and its text. `query` is the query's name, or its id where it has none; `source` its
#: source's number.
METRICS = {
    "query_state": (("query", "state"), "1 for the state that the query is in: running, idle, stopped, failed."),
    "batches": (("query",), "Batches that have ended since the listener knows the query."),
    "batch_seconds": (("query",), "Duration of the last batch."),
    "last_batch_timestamp_seconds": (("query",), "When the last batch was reported, in seconds since 1970."),
    "commit_failures": (("query",), "Commits of the listener to the groups of its sources that failed."),
    "watermark_timestamp_seconds": (("query",), "The event-time watermark, in seconds since 1970."),
    "state_rows": (("query",), "Rows that stateful operators keep."),
    "state_bytes": (("query",), "Memory that stateful operators use."),
    "rows": (("query", "source"), "Rows read since the listener knows the query."),
    "input_rows_per_second": (("query", "source"), "Rows per second that came in, in the last batch."),
    "processed_rows_per_second": (("query", "source"), "Rows per second that were processed, in the last batch."),
    "lag_rows": (("query", "source", "topic"), "Offsets between the end of the last batch and the ends of the logs."),
    "lag_seconds": (
        ("query", "source", "topic"),
        "Age of the oldest record that was not read yet, of the partition furthest behind.",
    ),
}
COUNTERS = frozenset({"batches", "commit_failures", "rows"})


class QueryCollector:
    """Gives the progress of all queries when a registry asks for them."""

    def __init__(self, queries: Callable[[], Sequence[Query]]) -> None:
        self._queries = queries

    def describe(self) -> list[Family]:
        """The metrics' names, for a registry that refuses doubles."""
        return list(_families().values())

    def collect(self) -> Iterator[Family]:
        """The metrics."""
        families = _families()
        # A query restarted without its checkpoint has another id and the same name: the newest counts.
        for query in {each.label: each for each in self._queries()}.values():
            _add(families, query)
        yield from families.values()


def register(registry: CollectorRegistry, queries: Callable[[], Sequence[Query]]) -> Callable[[], None]:
    """Add the metrics to a registry; what it gives takes them out again. Raises MissingExtraError."""
    require_extra("metrics of queries", "metrics", "prometheus_client")
    collector = QueryCollector(queries)
    registry.register(collector)
    return lambda: registry.unregister(collector)


def serve(host: str, port: int, queries: Callable[[], Sequence[Query]]) -> MetricsServer:
    """Serve the metrics at `http://host:port/metrics`. Raises MissingExtraError, OSError."""
    require_extra("metrics of queries", "metrics", "prometheus_client")
    return serve_collector(host, port, QueryCollector(queries))


def _families() -> dict[str, Family]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    return {
        name: (CounterMetricFamily if name in COUNTERS else GaugeMetricFamily)(PREFIX + name, text, labels=labels)
        for name, (labels, text) in METRICS.items()
    }


def _add(families: dict[str, Family], query: Query) -> None:
    label, last = query.label, query.last
    for state in QueryState:
        families["query_state"].add_metric([label, state], float(query.state is state))
    families["batches"].add_metric([label], query.batches)
    families["commit_failures"].add_metric([label], query.commit_failures)
    if last is None:
        return
    families["batch_seconds"].add_metric([label], last.seconds)
    families["last_batch_timestamp_seconds"].add_metric([label], query.reported_s or 0.0)
    if last.watermark_s is not None:
        families["watermark_timestamp_seconds"].add_metric([label], last.watermark_s)
    families["state_rows"].add_metric([label], last.state_rows)
    families["state_bytes"].add_metric([label], last.state_bytes)
    for source in last.sources:
        labels = [label, str(source.number)]
        families["rows"].add_metric(labels, query.source_rows.get(source.number, 0))
        families["input_rows_per_second"].add_metric(labels, source.input_rows_per_second)
        families["processed_rows_per_second"].add_metric(labels, source.processed_rows_per_second)
        if source.lag is not None:
            _add_lag(families, source, source.lag, labels)


def _add_lag(families: dict[str, Family], source: SourceProgress, lag: Lag, labels: list[str]) -> None:
    for topic in source.topics:
        families["lag_rows"].add_metric([*labels, topic], lag.rows_of(topic))
        seconds = lag.seconds_of(topic)
        if seconds is not None:
            families["lag_seconds"].add_metric([*labels, topic], seconds)
