"""Asks the clusters about sources after their batches, in a thread of its own.

Spark delivers its events one by one, and would wait for a broker that does not answer.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.model import TopicPartition
from ottla.spark.connection import ConnectionOptions, connect
from ottla.spark.listening.progress import Basis, Lag, rows_behind
from ottla.spark.source.commits import COMMIT_WAIT_S, FailureLog
from ottla.spark.source.offsets import Offsets
from ottla.spark.source.options import ReadOptions
from ottla.spark.source.partitions import earliest_offsets, latest_offsets

if TYPE_CHECKING:
    from ottla.client.sync import Client

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""Shortest time between two looks at the same source, in seconds; the last one of a query does not wait."""
MOST_TIMESTAMPS = 32
"""Most partitions whose first unread record is fetched for its timestamp; those with most unread records are taken."""
TIMESTAMP_FETCH_BYTES = 16 * 1024
"""Bytes fetched to get a timestamp; a broker gives one whole batch in any case."""
NO_TIMESTAMP = -1

SourceId = tuple[str, int]
"""A query's id and the number of its source."""


@dataclass(slots=True)
class _Look:
    """A look that is due: the source's options, and where its last batch ended."""

    options: ReadOptions
    end: Offsets
    is_last: bool = False


class SourceWatch:
    """Commits the ends of batches to the groups of their sources, and measures lag, with one connection per cluster.

    Only the newest batch of a source counts: a look that was not taken yet is replaced. Callbacks come in its thread.
    """

    def __init__(
        self,
        on_lag: Callable[[SourceId, Lag], None],
        on_commit_failed: Callable[[SourceId], None],
        now_s: Callable[[], float],
    ) -> None:
        self._on_lag = on_lag
        self._on_commit_failed = on_commit_failed
        self._now_s = now_s
        self._changed = threading.Condition()
        self._due: dict[SourceId, _Look] = {}
        self._looked_at: dict[SourceId, float] = {}
        self._clients: dict[ConnectionOptions, Client] = {}
        self._failures: dict[SourceId, FailureLog] = defaultdict(FailureLog)
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def batch_ended(self, source: SourceId, options: ReadOptions, end: Offsets) -> None:
        """Look at a source after a batch that ended at `end`."""
        with self._changed:
            if self._is_closing:
                return
            self._due[source] = _Look(options, dict(end))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ottla-spark-listener", daemon=True)
                self._thread.start()
            self._changed.notify()

    def query_ended(self, query_id: str) -> None:
        """Look at the sources of a query a last time, now."""
        with self._changed:
            for (owner, _), look in self._due.items():
                look.is_last |= owner == query_id
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Look at all that is due, and close the connections; False if that took longer."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            source, look = found
            try:
                self._look(source, look)
            except Exception:  # A defect here must not end the thread: later batches are committed.
                log.exception("source %d of query %s cannot be watched", source[1], source[0])
        for client in self._clients.values():
            client.close()

    def _next(self) -> tuple[SourceId, _Look] | None:
        """The next look that is due, waiting for it; None at the end."""
        with self._changed:
            while True:
                now = self._now_s()
                waits = {each: self._wait_s(each, look, now) for each, look in self._due.items()}
                ready = [each for each, wait in waits.items() if wait <= 0]
                if ready:
                    self._looked_at[ready[0]] = now
                    return ready[0], self._due.pop(ready[0])
                if self._is_closing:
                    return None
                self._changed.wait(min(waits.values(), default=None))

    def _wait_s(self, source: SourceId, look: _Look, now: float) -> float:
        if look.is_last or self._is_closing or source not in self._looked_at:
            return 0.0
        return self._looked_at[source] + INTERVAL_S - now

    def _look(self, source: SourceId, look: _Look) -> None:
        from ottla.client.sync import ClientError

        client, group = self._connected(look.options.connection), look.options.group_id
        if group is not None:
            try:
                commit_forward(client, group, look.end)
            except ClientError as problem:
                self._failures[source].failed(group, problem)
                self._on_commit_failed(source)
            else:
                self._failures[source].succeeded(group)
        try:
            self._on_lag(source, measure_lag(client, look.end, self._now_s()))
        except ClientError as problem:
            log.warning("query %s: the lag of source %d is not known: %s", *source, problem)

    def _connected(self, connection: ConnectionOptions) -> Client:
        if connection not in self._clients:
            self._clients[connection] = connect(connection)
        return self._clients[connection]


def commit_forward(client: Client, group: str, end: Offsets) -> None:
    """Commit where a batch ended to the source's group, where that is further than what the group has.

    The source itself commits when the next batch is planned, so it may already be ahead. Raises ClientError, also where
    a request is not answered within `COMMIT_WAIT_S`.
    """
    if not end:
        return
    timeout_ms = round(COMMIT_WAIT_S * 1_000)
    committed = client.committed(group, list(end), timeout_ms=timeout_ms)
    ahead = {each: offset for each, offset in end.items() if committed.get(each, -1) < offset}
    if ahead:
        client.commit(group, ahead, timeout_ms=timeout_ms)


def measure_lag(client: Client, end: Offsets, now_s: float) -> Lag:
    """The lag behind the logs' ends as they are now; `now_s` is in seconds since 1970. Raises ClientError."""
    rows = rows_behind(end, latest_offsets(client, list(end)))
    seconds = {each: 0.0 for each, count in rows.items() if not count}
    unread = sorted((each for each, count in rows.items() if count), key=lambda each: -rows[each])[:MOST_TIMESTAMPS]
    earliest = earliest_offsets(client, unread)
    for each in unread:
        start, stop = max(end[each], earliest[each]), end[each] + rows[each]
        timestamp_ms = first_timestamp_ms(client, each, start, stop)
        if timestamp_ms != NO_TIMESTAMP:
            seconds[each] = max(0.0, now_s - timestamp_ms / 1_000)
    return Lag(rows, seconds, Basis.CLUSTER)


def first_timestamp_ms(client: Client, partition: TopicPartition, start: int, stop: int) -> int:
    """The timestamp of the first record from `start` on, -1 where there is none before `stop`. Raises ClientError."""
    for records in client.read_range(partition, start, stop, TIMESTAMP_FETCH_BYTES):
        return records[0].timestamp
    return NO_TIMESTAMP


def options_of(topics: tuple[str, ...], candidates: list[ReadOptions]) -> ReadOptions | None:
    """The first options that a source of these topics may have been given; None where none fits. They are taken out of
    `candidates`, so that two sources of the same topics, on two clusters, get theirs in order.
    """
    for options in candidates:
        if topics and all(map(options.selection.selects_topic, topics)):
            candidates.remove(options)
            return options
    return None
