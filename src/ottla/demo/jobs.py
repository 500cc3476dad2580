"""The three pipelines of the demo, as queries of one local Spark."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.demo.feed import Feed
from ottla.spark.noise import silence_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GROUPS = ("online", "archive", "mirror")
# So that the bars move: the archive and the mirror take what is there in pieces.
MOST_RECORDS_PER_BATCH = 50_000
TRIGGER_S = 1.0
_LONGEST_REASON = 1_500
_CONF = {
    # Columns of a file may differ by case alone.
    "spark.sql.caseSensitive": "true",
    # Writing without checksum files: for each file that they protect, Hadoop starts a chmod, which took half the time.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


class JobFailed(RuntimeError):
    """A Spark query ended by itself; the message is Spark's, shortened."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are: both brokers' addresses, the topic, the scratch folder, what stays for the user."""

    source: str
    target: str
    topic: str
    scratch: Path
    archive: Path
    online: Path


class SparkJobs:
    """Spark and its queries, started by a thread of its own while the rest of the demo goes on."""

    def __init__(self, feed: Feed, places: Places, watermark_s: int, java_home: str | None) -> None:
        self.failure: Exception | None = None
        self.updates = 0
        self._feed = feed
        self._places = places
        self._watermark_s = watermark_s
        self._java_home = java_home
        self._spark: SparkSession | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._stopping = threading.Event()
        self._topics_exist = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)

    def start(self) -> None:
        """Start Spark; the queries wait for `begin`."""
        self._thread.start()

    def begin(self) -> None:
        """The topics are there: start the queries as soon as Spark is up."""
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

    def dropped_late(self) -> int:
        """How many events the online query dropped because they came after its watermark."""
        progress = self._queries["online"].recentProgress if "online" in self._queries else []
        return sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for each in progress
            for operator in each["stateOperators"]
        )

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
                query.stop()
            stop(spark)

    def _run(self) -> None:
        try:
            self._start_spark()
            self._topics_exist.wait()
            if not self._stopping.is_set():
                self._start_queries()
        except Exception as problem:  # The main thread raises it.
            self.failure = problem

    def _start_spark(self) -> None:
        silence_spark()
        import ottla.spark

        self._spark = ottla.spark.session(
            "ottla demo",
            java_home=self._java_home,
            folder=self._places.scratch / "spark",
            log_file=self._places.scratch / "spark.log",
            conf=_CONF,
        )

    def _start_queries(self) -> None:
        from ottla.spark.pipelines.archive import ArchiveConfig
        from ottla.spark.pipelines.archive import start as start_archive
        from ottla.spark.pipelines.mirror import MirrorConfig
        from ottla.spark.pipelines.mirror import start as start_mirror
        from ottla.spark.pipelines.online import OnlineConfig, Totals
        from ottla.spark.pipelines.online import start as start_online

        feed, places, spark = self._feed, self._places, self._spark
        assert spark is not None

        def updated(totals: Totals, batch_id: int) -> None:
            self.updates += 1

        online = OnlineConfig(
            **self._common("online"),
            output=str(places.online),
            by=feed.group_field,
            measure=feed.measure_field,
            bucket=feed.bucket,
            watermark=f"{self._watermark_s} seconds",
        )
        archive = ArchiveConfig(
            **self._common("archive"),
            max_offsets_per_trigger=MOST_RECORDS_PER_BATCH,
            output=str(places.archive),
            fields=feed.fields,
            partition_by=() if feed.place_field is None else (feed.place_field,),
            date_column=feed.date_column,
            timezone=feed.timezone,
        )
        mirror = MirrorConfig(
            **self._common("mirror"),
            max_offsets_per_trigger=MOST_RECORDS_PER_BATCH,
            target_bootstrap_servers=places.target,
        )
        self._queries["online"] = start_online(spark, online, updated)
        self._queries["archive"] = start_archive(spark, archive)
        self._queries["mirror"] = start_mirror(spark, mirror)

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._places.source,
            "topic": self._places.topic,
            "group_id": name,
            "checkpoint": str(self._places.scratch / "checkpoints" / name),
            "trigger_seconds": TRIGGER_S,
        }


def _shortened(text: str) -> str:
    """Spark's words without the stacks of two languages: the first line, and the last error that a stack ends with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Range|Interrupt): ", line)]
    first = lines[0] if lines else "no reason given"
    return " ".join(dict.fromkeys([first, *errors[-1:]]))[:_LONGEST_REASON]
