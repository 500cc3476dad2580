"""A pipeline on a Spark cluster as a process, and a load of events that continues while others are killed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from ottla.client.model import LATEST, TopicPartition
from ottla.client.sync import Client, Producer
from ottla.records.record import Record
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.settings.file import load_pipeline
from support.brokers import Bootstrapped
from support.filled_topics import ANY_TIME
from support.mirrors import read_counts
from support.pipeline_judges import JUDGES, event_record, pipeline_file
from support.processes import ServerProcess, run_tool
from support.spark_cluster import SMALL, spark_program
from support.waiting import wait_until

Way = Literal["run", "submit", "connect"]

PARTITIONS: Final = 3
#: The load: this many events at a time, and seconds between two times.
EVENTS_AT_ONCE: Final = 90
PAUSE_S: Final = 0.5
#: Spark gives a Python process ten seconds to start, whatever its settings say: on a busy machine it may take more.
SLOW_START: Final = "connect back"
MOST_STARTS: Final = 3
#: What waits for the second driver, so that its tasks have something to do when a worker is killed. Archives have a
#: folder for each 288 events.
BURSTS: Final = {"mirror": 300_000}
BURST: Final = 12_000
RECORDS_PER_BATCH: Final = 400_000
#: Waits on a machine that does other things, too, in seconds.
BATCH_TIMEOUT_S: Final = 400.0
LAG_TIMEOUT_S: Final = 600.0
COMMAND_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.2


class EventLoad(threading.Thread):
    """Sends events until `end`, idempotent and with acks=all; `records` are those acknowledged, by partition."""

    def __init__(self, broker: Bootstrapped, topic: str) -> None:
        super().__init__(name=f"load of {topic}", daemon=True)
        self._broker, self._topic = broker, topic
        self._ending = threading.Event()
        self._burst = 0
        self._failure: Exception | None = None
        self.records: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        with Client(broker.bootstrap) as client:
            client.create_topic(topic, PARTITIONS, config=ANY_TIME)

    @property
    def count(self) -> int:
        """How many events are acknowledged."""
        return sum(map(len, self.records))

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            with Producer(bootstrap_servers=self._broker.bootstrap, acks="all", enable_idempotence=True) as producer:
                while not self._ending.wait(PAUSE_S):
                    count, self._burst = self._burst or EVENTS_AT_ONCE, 0
                    self._send(producer, count)
        except Exception as failure:
            self._failure = failure

    def burst(self, count: int) -> None:
        """Let this many events come at once, and wait until they are acknowledged."""
        self._burst = count
        self.wait_for_more(count)

    def _send(self, producer: Producer[bytes, bytes], count: int) -> None:
        first = self.count
        sent = []
        for at in range(first, first + count):
            event = event_record(at)
            sent.append((event, producer.send(self._topic, event.value, event.key, at % PARTITIONS, event.timestamp)))
        producer.flush()
        for at, (event, acknowledged) in enumerate(sent, first):
            acknowledged.result()
            self.records[at % PARTITIONS].append(event)

    def wait_for_more(self, count: int = 2 * EVENTS_AT_ONCE) -> None:
        """Until this many more events are acknowledged."""
        wanted = self.count + count
        wait_until(lambda: self.count >= wanted or self._failure, f"{count} more events", timeout_s=BATCH_TIMEOUT_S)
        assert self._failure is None, self._failure

    def end(self) -> None:
        """Stop it; all that it sent is acknowledged then."""
        self._ending.set()
        self.join()
        assert self._failure is None, self._failure


class ClusterPipeline:
    """A pipeline of `JUDGES`, run from its file: by `ottla pipeline run`, or by the line that `submit` prints."""

    def __init__(
        self,
        kind: str,
        way: Way,
        folder: Path,
        topic: str,
        source: Bootstrapped,
        target: Bootstrapped,
        where: str,
        environment: Mapping[str, str],
    ) -> None:
        self.kind, self._folder, self._topic, self._source, self._target = kind, folder, topic, source, target
        self._environment = dict(environment)
        self._checkpoint = QueryCheckpoint(str(folder / "checkpoint"))
        self.file = pipeline_file(
            kind, folder, topic, source, target, RECORDS_PER_BATCH, trigger='interval = "1 second"', spark=where
        )
        self._way = way
        self._starts = 0
        #: The newest batches, planned and finished, when it was started.
        self._before: tuple[int | None, int] = (None, -1)
        self.start()

    def start(self) -> None:
        """Start it, after another driver has been stopped or killed; return when it plans its batches."""
        for _ in range(MOST_STARTS):
            self._before = self._checkpoint.newest_planned(), self.finished
            self._start_once()
            wait_until(self._has_begun, self.process.output_tail, BATCH_TIMEOUT_S)
            if self.process.running or SLOW_START not in self.process.stderr:
                return

    def _has_begun(self) -> bool:
        return not self.process.running or self._before != (self._checkpoint.newest_planned(), self.finished)

    def _start_once(self) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(self.file)]
        if self._way == "submit":
            line = self._command("submit", "--spark-submit", spark_program("spark-submit"))
            command = ["sh", "-c", f"exec {line}"]
        self.process = ServerProcess(f"pipeline-{self._starts}", command, self._folder, self._environment)

    @property
    def finished(self) -> int:
        """The newest batch that has finished; -1 before the first."""
        newest = self._checkpoint.newest_finished()
        return -1 if newest is None else newest

    def wait_for_batches(self, count: int) -> None:
        """Until this many more batches have finished."""
        wanted = self.finished + count
        self.process.wait_until_ready(lambda: self.finished >= wanted, BATCH_TIMEOUT_S)

    def wait_for_work(self) -> None:
        """Until a batch is in work."""
        self.process.wait_until_ready(lambda: (self._checkpoint.newest_planned() or 0) > self.finished, BATCH_TIMEOUT_S)

    def wait_for_tasks(self, load: EventLoad) -> None:
        """Until tasks are in the middle of the batch that has all of the load so far, a burst."""
        wanted = load.count
        self.process.wait_until_ready(lambda: self._planned() >= wanted, BATCH_TIMEOUT_S)
        if self.kind != "mirror":
            return
        with Client(self._target.bootstrap) as client:
            partitions = [TopicPartition(f"here.{self._topic}", number) for number in range(PARTITIONS)]

            def sent() -> int:
                return sum(client.offsets_at(partitions, LATEST).values())

            before = sent()
            self.process.wait_until_ready(lambda: sent() > before, BATCH_TIMEOUT_S)

    def _planned(self) -> int:
        """Where the batch in work ends, as the number of records before that; 0 if none is in work."""
        newest = self._checkpoint.newest_planned()
        batch = None if newest is None or newest <= self.finished else self._checkpoint.batch(newest)
        return 0 if batch is None else sum(sum((each or {}).get(self._topic, {}).values()) for each in batch.sources)

    def wait_until_read(self) -> None:
        """Until `ottla pipeline status` says that nothing is left."""

        def lag() -> Any:
            assert self.process.running, self.process.output_tail()
            return json.loads(self._command("status", "--json"))["lag"]

        wait_until(lambda: lag() == 0, lambda: f"no lag\n{self.process.output_tail()}", LAG_TIMEOUT_S, POLL_S)

    def stop(self) -> None:
        """`ottla pipeline stop`, from another process."""
        self._command("stop", "--wait")
        status = self.process.wait(COMMAND_TIMEOUT_S)
        assert status == 0, f"exit code {status}: {self.process.output_tail()}"

    def repeats_counted(self) -> int:
        """How many records of the topic the mirror says it has sent again; heartbeats are mirrored, too."""
        mirror = load_pipeline(self.file, {}).mirror
        assert mirror is not None
        return sum(each.repeated for place, each in read_counts(mirror).items() if place.topic == self._topic)

    def verdict(self, records: list[list[Record]]) -> tuple[str, dict[str, int]]:
        """What is wrong with what it made of these records, nothing if it is right; and figures."""
        return JUDGES[self.kind](self._folder, self._topic, self._source, self._target, records)

    def _command(self, name: str, *options: str) -> str:
        command = [sys.executable, "-m", "ottla", "pipeline", name, str(self.file), *options]
        return run_tool(command, env=self._environment, timeout_s=COMMAND_TIMEOUT_S).stdout


def on_master(url: str) -> str:
    """The tables of a pipeline's file for a standalone cluster."""
    conf = "".join(f'"{name}" = "{value}"\n' for name, value in SMALL.items() if name != "spark.driver.memory")
    return f'[spark]\nmaster = "{url}"\nmemory = "{SMALL["spark.driver.memory"]}"\n[spark.conf]\n{conf}'


def on_connect(url: str) -> str:
    """The same for a server of Spark Connect."""
    return f'[spark]\nremote = "{url}"\n'
