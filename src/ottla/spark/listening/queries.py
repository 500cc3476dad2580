"""All queries of a session, as the events of a listener describe them. Pure: times are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ottla.client.model import TopicPartition
from ottla.spark.listening.progress import (
    BatchProgress,
    Lag,
    QueryState,
    SourceProgress,
    rows_behind,
)
from ottla.spark.source.offsets import Offsets

MOST_ENDED_QUERIES = 100
"""Most queries that are remembered after their end; the oldest are forgotten first."""
MOST_SIGHTINGS = 100
"""Most remembered ends of a source. When there are more every other one is forgotten: the oldest stays."""


class SeenEnds:
    """The ends of a source's logs, as each progress brought them. Times are in seconds of one clock.

    When they were first seen says how long records have waited, without asking the cluster.
    """

    def __init__(self) -> None:
        self._sightings: deque[tuple[float, Offsets]] = deque()

    def add(self, seconds: float, latest: Offsets) -> None:
        """Note the ends that were seen at a time."""
        if latest and (not self._sightings or self._sightings[-1][1] != latest):
            self._sightings.append((seconds, dict(latest)))
        if len(self._sightings) > MOST_SIGHTINGS:
            self._sightings = deque(each for number, each in enumerate(self._sightings) if number % 2 == 0)

    def waited(self, seconds: float, end: Offsets) -> dict[TopicPartition, float]:
        """For each partition how long ago a record at or behind `end` was first seen; 0 where none was.

        That is at least how long the first unread record has waited: it may be older than what was seen first.
        """
        first_seen: dict[TopicPartition, float] = {}
        while len(self._sightings) > 1 and all(self._sightings[0][1].get(each, 0) <= at for each, at in end.items()):
            self._sightings.popleft()
        for moment, latest in self._sightings:
            for each, offset in latest.items():
                if each in end and offset > end[each]:
                    first_seen.setdefault(each, moment)
        return {each: max(0.0, seconds - first_seen.get(each, seconds)) for each in end}


@dataclass(slots=True)
class Query:
    """One query since the listener knows it; a restart from its checkpoint keeps its id and its totals.

    `source_rows` are the rows of each source, all batches together. `commit_failures` are commits to its groups that
    failed. `failure` is the first line of the exception that ended it.
    """

    query_id: str
    run_id: str
    name: str | None
    state: QueryState = QueryState.RUNNING
    batches: int = 0
    source_rows: dict[int, int] = field(default_factory=dict)
    commit_failures: int = 0
    last: BatchProgress | None = None
    reported_s: float | None = None
    """When the last batch was reported, in seconds since 1970."""
    failure: str | None = None
    seen: dict[int, SeenEnds] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name, and the id of one without a name."""
        return self.name or self.query_id


class Queries:
    """The state of a session's queries."""

    def __init__(self) -> None:
        self._queries: dict[str, Query] = {}

    def all(self) -> list[Query]:
        """Copies, in the order in which the queries became known; those that run again come last."""
        return [replace(each, source_rows=dict(each.source_rows), seen={}) for each in self._queries.values()]

    def started(self, query_id: str, run_id: str, name: str | None) -> Query:
        """Note that a query was started, or is known from now on."""
        query = self._queries.pop(query_id, None) or Query(query_id, run_id, name)
        query.run_id, query.name, query.state, query.failure = run_id, name, QueryState.RUNNING, None
        self._queries[query_id] = query
        return query

    def progressed(self, batch: BatchProgress, now_s: float) -> Query:
        """Note a batch that has ended; its sources get the lag that the progress shows."""
        query = self._queries.get(batch.query_id)
        if query is None or query.run_id != batch.run_id:
            query = self.started(batch.query_id, batch.run_id, batch.name)
        if not query.state.has_ended:
            query.state = QueryState.RUNNING
        query.batches += 1
        query.reported_s = now_s
        for source in batch.sources:
            query.source_rows[source.number] = query.source_rows.get(source.number, 0) + source.rows
        sources = tuple(_with_lag(query, source, now_s) for source in batch.sources)
        query.last = replace(batch, sources=sources)
        return query

    def idled(self, query_id: str) -> Query | None:
        """Note that a query waits for new records."""
        query = self._queries.get(query_id)
        if query is not None and not query.state.has_ended:
            query.state = QueryState.IDLE
        return query

    def ended(self, query_id: str, failure: str | None) -> Query | None:
        """Note the end of a query, with the exception that ended it."""
        query = self._queries.get(query_id)
        if query is None:
            return None
        query.state = QueryState.STOPPED if failure is None else QueryState.FAILED
        query.failure = None if failure is None else (failure.strip().splitlines() or [""])[0]
        ended = [each for each, known in self._queries.items() if known.state.has_ended]
        for each in ended[: max(0, len(ended) - MOST_ENDED_QUERIES)]:
            del self._queries[each]
        return query

    def measured(self, query_id: str, number: int, lag: Lag) -> None:
        """Note the lag of a source that the cluster was asked for."""
        query = self._queries.get(query_id)
        if query is None or query.last is None:
            return
        sources = tuple(replace(each, lag=lag) if each.number == number else each for each in query.last.sources)
        query.last = replace(query.last, sources=sources)

    def commit_failed(self, query_id: str) -> None:
        """Count a commit to a query's group that failed."""
        query = self._queries.get(query_id)
        if query is not None:
            query.commit_failures += 1


def _with_lag(query: Query, source: SourceProgress, now_s: float) -> SourceProgress:
    """The source with its lag as far as its progress shows it; without one where it reads no topics.

    Nor where the ends of its logs are missing: for a batch that was planned before the query started, and runs again,
    Spark does not ask for them.
    """
    if not source.end or not source.end.keys() <= source.latest.keys():
        return source
    seen = query.seen.setdefault(source.number, SeenEnds())
    seen.add(now_s, source.latest)
    rows: Mapping[TopicPartition, int] = rows_behind(source.end, source.latest)
    return replace(source, lag=Lag(rows, seen.waited(now_s, source.end)))
