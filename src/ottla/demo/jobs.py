"""The three pipelines of the demo, as queries of one local Spark."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.demo.background import Background
from ottla.demo.feed import Feed
from ottla.demo.pipelines import GROUPS, Places, has_names_that_differ_by_case, write_pipelines
from ottla.spark.noise import silence_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.pipelines.settings.model import PipelineSettings

_LONGEST_REASON = 1_500
_CONF = {
    # Else a query that is interrupted while it begins may never say that it has stopped.
    "spark.sql.streaming.stopTimeout": "20s",
    # A column of the user's may be named ${like this}.
    "spark.sql.variable.substitute": "false",
    # Writing without checksum files: for each file that they protect, Hadoop starts a chmod, which took half the time.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


class JobFailed(RuntimeError):
    """A Spark query ended by itself; the message is Spark's, shortened."""


@dataclass(frozen=True, slots=True)
class OnlineBatches:
    """How many batches the online query had events in, and how many events came after its watermark."""

    updates: int
    dropped_late: int


class SparkJobs(Background):
    """Spark and its queries, started by a thread of its own while the rest of the demo runs."""

    def __init__(self, feed: Feed, scratch: Path, watermark_s: int, java_home: str | None) -> None:
        super().__init__("spark")
        self._feed = feed
        self._scratch = scratch
        self._places: Places | None = None
        self._watermark_s = watermark_s
        self._java_home = java_home
        self._spark: SparkSession | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._topics_exist = threading.Event()

    def begin(self, places: Places) -> None:
        """The topics are there: start the queries as soon as Spark is up."""
        self._places = places
        self._topics_exist.set()

    @property
    def running(self) -> bool:
        """Whether all three queries were started."""
        return len(self._queries) == len(GROUPS)

    def check(self) -> None:
        """See that nothing failed. Raises JobFailed or what starting raised."""
        if self.failure is not None:
            raise self.failure
        for name, query in list(self._queries.items()):
            if not query.isActive:
                problem = query.exception()
                raise JobFailed(f"the query {name} ended: {_shortened(str(problem))}")

    def online_batches(self) -> OnlineBatches:
        """Count the online query's batches and late events."""
        progress = self._queries["online"].recentProgress if "online" in self._queries else []
        late = sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for each in progress
            for operator in each["stateOperators"]
        )
        return OnlineBatches(sum(1 for each in progress if each["numInputRows"]), late)

    def stop(self) -> None:
        """Stop the queries, Spark and its Java."""
        self._stopping.set()
        self._topics_exist.set()
        if self._thread.ident is not None:
            self._thread.join()
        spark, self._spark = self._spark, None
        if spark is not None:
            from ottla.spark.local import stop

            for query in self._queries.values():
                with suppress(Exception):  # it did not stop within its time: Spark ends, and ends it
                    query.stop()
            stop(spark)

    def work(self) -> None:
        """Start Spark; the queries wait for `begin`."""
        self._start_spark()
        self._topics_exist.wait()
        if not self._stopping.is_set():
            self._start_queries()

    def _start_spark(self) -> None:
        silence_spark()
        import ottla.spark

        self._spark = ottla.spark.session(
            "ottla demo",
            java_home=self._java_home,
            folder=self._scratch / "spark",
            log_file=self._scratch / "spark.log",
            conf=_CONF | ({"spark.sql.caseSensitive": "true"} if has_names_that_differ_by_case(self._feed) else {}),
        )

    def _start_queries(self) -> None:
        from ottla.spark.local import register
        from ottla.spark.pipelines.mirroring.start import start_mirror
        from ottla.spark.pipelines.queries.start import start_pipeline

        spark, places = self._spark, self._places
        assert spark is not None
        assert places is not None
        pipelines = write_pipelines(self._feed, places, self._watermark_s)

        def start(settings: PipelineSettings) -> StreamingQuery:
            # In a session of its own: the views of pipelines have equal names.
            own = register(spark.newSession())
            return (start_pipeline if settings.mirror is None else start_mirror)(own, settings)

        # Starting is mostly waiting for a Python process that answers Spark's questions.
        with ThreadPoolExecutor(len(pipelines)) as pool:
            started = {name: pool.submit(start, settings) for name, settings in pipelines.items()}
        self._queries = {name: each.result() for name, each in started.items() if each.exception() is None}
        for each in started.values():
            each.result()


def _shortened(text: str) -> str:
    """Spark's words without the stacks of two languages: the first line, and the last error that a stack ends with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Range|Interrupt): ", line)]
    first = lines[0] if lines else "no reason given"
    return " ".join(dict.fromkeys([first, *errors[-1:]]))[:_LONGEST_REASON]
