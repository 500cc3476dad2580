"""The query listener: Spark's events in, progress, metrics and commits out."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.client.exporting import MetricsServer
from ottla.spark.listening.progress import BatchProgress, Lag, read_progress
from ottla.spark.listening.prometheus import register, serve
from ottla.spark.listening.queries import Queries, Query
from ottla.spark.listening.source_watch import SourceId, SourceWatch, options_of
from ottla.spark.listening.text import batch_line, report
from ottla.spark.source.options import ReadOptions, parse_read_options

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 10.0
"""Longest wait, at the end, for the events of queries that have ended, and as long again for commits that are due."""
POLL_S = 0.05

Options = Mapping[str, str]


def listen(
    spark: SparkSession,
    sources: Mapping[str, Options | Sequence[Options]] | None = None,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    registry: CollectorRegistry | None = None,
    show: Callable[[str], None] | None = None,
    counted: Callable[[BatchProgress], BatchProgress] | None = None,
) -> QueryListener:
    """Watch the streaming queries of a session, from now on until the listener is closed.

    `sources` has the options of `format("ottla")` by the name of the query (`queryName`), several where it has several
    sources. With them the listener connects to the cluster: it commits the end of the last batch to the source's group,
    too, and measures the lag after each batch; without them it knows the lag that Spark's progress shows. `port` and
    `host` are those of an endpoint for Prometheus, 0 for any free port; `registry` is one of your own in place of it.
    `show` gets a line of text for each batch, such as `print`. `counted` may give the progress of a batch other numbers
    of rows, where Spark itself does not see them all. Raises OptionError, MissingExtraError, OSError.
    """
    listener = QueryListener(sources or {}, show, counted=counted)
    if registry is not None:
        listener.export(registry)
    if port is not None:
        listener.serve(host, port)
    listener.attach(spark)
    return listener


class QueryListener(StreamingQueryListener):
    """The result of `listen`. A context manager: leaving it closes it."""

    def __init__(
        self,
        sources: Mapping[str, Options | Sequence[Options]],
        show: Callable[[str], None] | None = None,
        now_s: Callable[[], float] = time.time,
        counted: Callable[[BatchProgress], BatchProgress] | None = None,
    ) -> None:
        self._counted = counted
        self._sources = {name: _parsed(options) for name, options in sources.items()}
        self._show = show
        self._now_s = now_s
        self._lock = threading.Lock()
        self._queries = Queries()
        self._watch = SourceWatch(self._measured, self._commit_failed, now_s)
        self._session: SparkSession | None = None
        self._server: MetricsServer | None = None
        self._unregister: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def queries(self) -> list[Query]:
        """The queries that it knows, in the order in which they were started."""
        with self._lock:
            return self._queries.all()

    @property
    def port(self) -> int | None:
        """The port of the endpoint for Prometheus; None without one."""
        return None if self._server is None else self._server.port

    def report(self) -> str:
        """Text about all queries."""
        with self._lock:
            return report(self._queries.all())

    def export(self, registry: CollectorRegistry) -> None:
        """Add the metrics to a registry, until the listener is closed. Raises MissingExtraError."""
        self._unregister.append(register(registry, lambda: self.queries))

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics for Prometheus, until the listener is closed. Raises MissingExtraError, OSError."""
        self._server = serve(host, port, lambda: self.queries)

    def attach(self, spark: SparkSession) -> None:
        """Listen to the queries of a session, until the listener is closed."""
        spark.streams.addListener(self)
        self._session = spark

    def close(self) -> None:
        """Wait for the events of queries that have ended, commit what is due, and stop listening."""
        session, self._session = self._session, None
        if session is not None:
            try:
                self._await_ended(session)
                session.streams.removeListener(self)
            except Exception as gone:  # py4j's, gRPC's or the socket's: a Spark that has ended makes no more calls
                log.debug("Spark does not answer: %s", gone)
        if not self._watch.close(CLOSE_TIMEOUT_S):
            log.warning("a broker does not answer; the last offsets may not be committed")
        for unregister in self._unregister:
            unregister()
        if self._server is not None:
            self._server.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark when a query starts; the start waits for it."""
        with self._lock:
            self._queries.started(str(event.id), str(event.runId), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark after each batch."""
        progress: Mapping[str, Any] = json.loads(event.progress.json)
        with self._lock:
            batch = read_progress(progress)
            if self._counted is not None:
                batch = self._counted(batch)
            query = self._queries.progressed(batch, self._now_s())
            line, last = batch_line(query), query.last
        log.debug("%s", line)
        if last is not None:
            self._follow(last)
        if self._show is not None:
            self._show(line)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Called by Spark while a query waits for new records."""
        with self._lock:
            query = self._queries.idled(str(event.id))
            last = None if query is None else query.last
        if last is not None:
            self._follow(last)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark when a query has ended."""
        with self._lock:
            self._queries.ended(str(event.id), event.exception)
        self._watch.query_ended(str(event.id))

    def _follow(self, batch: BatchProgress) -> None:
        """Look at the sources of a query whose options are known."""
        candidates = list(self._sources.get(batch.name or "", ()))
        for source in batch.sources:
            options = options_of(source.topics, candidates)
            if options is not None:
                self._watch.batch_ended((batch.query_id, source.number), options, source.end)

    def _measured(self, source: SourceId, lag: Lag) -> None:
        with self._lock:
            self._queries.measured(*source, lag)

    def _commit_failed(self, source: SourceId) -> None:
        with self._lock:
            self._queries.commit_failed(source[0])

    def _await_ended(self, spark: SparkSession) -> None:
        """Wait until the events of all queries that do not run any more have come. Spark delivers them late."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while time.monotonic() < deadline:
            running = {str(each.id) for each in spark.streams.active}
            if all(each.state.has_ended or each.query_id in running for each in self.queries):
                return
            time.sleep(POLL_S)


def _parsed(options: Options | Sequence[Options]) -> list[ReadOptions]:
    several = [options] if isinstance(options, Mapping) else options
    return [parse_read_options(each, streaming=True) for each in several]
