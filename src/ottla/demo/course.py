"""The course of the demo: what is started when, what is waited for, what is cleaned up."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.client.model import TopicPartition
from ottla.client.sync import Client
from ottla.demo import checks
from ottla.demo.churn import GROUP, Churn
from ottla.demo.feed import Feed
from ottla.demo.inputs import InputError
from ottla.demo.jobs import SparkJobs
from ottla.demo.loading import Loader, slice_size
from ottla.demo.pipelines import GROUPS, Places
from ottla.demo.processes import BrokerProcess
from ottla.demo.rebalances import RebalanceFollower
from ottla.demo.results import Results, Sample
from ottla.demo.screen import Screen

PARTITIONS = 4
# Java and its Python processes start slowly on a busy machine.
STALL_LIMIT_S = 240.0
SAMPLE_INTERVAL_S = 0.5
EVIDENCE_WAIT_S = 5.0
_MARKER = ".ottla-demo"
_NO_LIMIT = str((1 << 63) - 1)
# Events keep the times they happened at, years ago or, in a user's file, years ahead.
_TOPIC_CONFIG = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": _NO_LIMIT,
    "message.timestamp.before.max.ms": _NO_LIMIT,
}
_BROKER_CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


class DemoFailed(RuntimeError):
    """The demo cannot continue; the message says why."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The user's options. `pace_s` is how long loading is to take, in seconds."""

    output: Path
    pace_s: float
    java_home: str | None = None


def prepare_output(folder: Path) -> None:
    """Make the output folder, or clear what an earlier demo left in it. Raises InputError for anybody else's folder."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--output {folder} is a file; name a folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).exists():
        raise InputError(f"--output {folder} holds files that are not the demo's; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARKER).touch()
    except OSError as problem:
        raise InputError(f"--output {folder}: {problem.strerror}") from None
    for name in ("archive", "logs", "pipelines"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("online.sqlite", "online.sqlite-journal", "report.png", "report.html"):
        (folder / name).unlink(missing_ok=True)


class DemoRun:
    """One run of the demo. Everything that it starts is registered for clean-up, and ends with `close` in any case."""

    def __init__(self, feed: Feed, options: DemoOptions, screen: Screen) -> None:
        self._feed = feed
        self._options = options
        self._screen = screen
        self._began = time.monotonic()
        self._cleanup = contextlib.ExitStack()
        self._scratch = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
        self._cleanup.callback(shutil.rmtree, self._scratch, ignore_errors=True)
        self._brokers: list[BrokerProcess] = []
        self._brokers_cleanup = contextlib.ExitStack()

    def close(self) -> None:
        """Stop everything and remove the temporary folder."""
        self._cleanup.close()

    def keep_logs(self) -> Path:
        """Copy what Spark and the brokers said to the output folder, for a run that failed; gives the folder."""
        saved = self._options.output / "logs"
        saved.mkdir(exist_ok=True)
        for log in (self._scratch / "spark.log", *(broker.log for broker in self._brokers)):
            if log.exists() and log.stat().st_size:
                shutil.copy(log, saved / f"{log.parent.name}-{log.name}")
        return saved

    def run(self) -> Results:
        """The whole demo, but for the report."""
        events = self._feed.events
        span = f"{_day(events[0].time_ms)} to {_day(events[-1].time_ms)}"
        feed = self._feed
        self._screen.say(f"{len(events):,} events to send ({feed.name}, {span}); starting Spark and two brokers")
        watermark_s = feed.watermark_s(slice_size(len(feed.events), self._options.pace_s))
        jobs = SparkJobs(feed, self._scratch, watermark_s, self._options.java_home)
        # Spark ends before its brokers: its workers would look for them, longer than the demo runs.
        self._cleanup.push(self._brokers_cleanup)
        self._cleanup.callback(jobs.stop)
        jobs.start()
        source, target = self._launch_broker("first"), self._launch_broker("second")
        for broker in self._brokers:
            broker.wait_until_ready()
        self._screen.say(
            f"two brokers are up (in {source.ready_s:.2f} s and {target.ready_s:.2f} s): "
            f"{source.address}, and {target.address} for the mirror"
        )
        results = Results(feed, PARTITIONS, broker_ready_s=source.ready_s)
        places = Places(source.address, target.address, feed.name, self._scratch, self._options.output.absolute())
        ours = self._cleanup.enter_context(Client(source.address, client_id="demo"))
        theirs = self._cleanup.enter_context(Client(target.address, client_id="demo"))
        ours.create_topic(feed.name, PARTITIONS, config=_TOPIC_CONFIG)
        jobs.begin(places)
        self._wait_for(jobs)
        results.spark_ready_s = time.monotonic() - self._began
        self._screen.say(f"three queries run; sending the events over {self._options.pace_s:.0f} s")
        self._stream(results, places, ours, jobs)
        self._screen.say("all events processed; stopping Spark, checking the results")
        online = jobs.online_batches()
        results.online_updates = online.updates
        jobs.stop()
        self._check(results, places, ours, theirs, online.dropped_late)
        results.total_s = time.monotonic() - self._began
        return results

    def _launch_broker(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(name, self._scratch / name, _BROKER_CONFIG)
        self._brokers.append(broker)
        self._brokers_cleanup.callback(broker.stop)
        broker.launch()
        return broker

    def _wait_for(self, jobs: SparkJobs) -> None:
        deadline = time.monotonic() + STALL_LIMIT_S
        while not jobs.running:
            jobs.check()
            if time.monotonic() > deadline:
                raise DemoFailed(f"Spark did not start its queries within {STALL_LIMIT_S:.0f} s")
            time.sleep(SAMPLE_INTERVAL_S / 5)

    def _stream(self, results: Results, places: Places, client: Client, jobs: SparkJobs) -> None:
        """Load, process and churn at the same time, until all three are done."""
        feed = results.feed
        loader = Loader(places.source, places.topic, feed.events, self._options.pace_s)
        churn = Churn(places.source, places.topic, self._options.pace_s / 8, self._screen.say)
        self._cleanup.callback(churn.stop)
        self._cleanup.callback(loader.stop)
        evidence = RebalanceFollower(
            self._cleanup.enter_context(Client(places.source, client_id="demo", unknown_topic_timeout_ms=1))
        )
        results.members = churn.members
        partitions = [TopicPartition(places.topic, number) for number in range(PARTITIONS)]
        start = moved_at = time.monotonic()
        last: dict[str, int] = {}
        results.began_at = time.time()
        loader.start()
        churn.start()
        while True:
            self._look_after(loader, churn, jobs)
            done = {"loaded": loader.sent} | {group: _position(client, group, partitions) for group in GROUPS}
            now = time.monotonic()
            if done != last:
                moved_at, last = now, done
            results.samples.append(Sample(now - start, done))
            for name, count in done.items():
                self._screen.progress(name, count, len(feed.events))
            self._show_evidence(evidence)
            if all(count == len(feed.events) for count in done.values()) and not churn.running:
                break
            if now - moved_at > STALL_LIMIT_S:
                raise DemoFailed(f"nothing moved for {STALL_LIMIT_S:.0f} s: {done}")
            time.sleep(SAMPLE_INTERVAL_S)
        churn.stop()
        self._wait_for_the_end_of(evidence)
        results.rebalances = [each for each in evidence.rebalances if each.group == GROUP]

    def _look_after(self, loader: Loader, churn: Churn, jobs: SparkJobs) -> None:
        jobs.check()
        for broker in self._brokers:
            broker.check()
        for failure in (loader.failure, churn.failure):
            if failure is not None:
                raise failure

    def _show_evidence(self, evidence: RebalanceFollower) -> None:
        for rebalance in evidence.follow():
            if rebalance.group == GROUP:
                self._screen.say(f"rebalance: {rebalance.line}")

    def _wait_for_the_end_of(self, evidence: RebalanceFollower) -> None:
        """Members have left: wait for the record of the last leave, which is written a little later."""
        deadline = time.monotonic() + EVIDENCE_WAIT_S
        while time.monotonic() < deadline:
            self._show_evidence(evidence)
            if evidence.rebalances and evidence.rebalances[-1].outcome == "empty":
                return
            time.sleep(SAMPLE_INTERVAL_S / 5)

    def _check(self, results: Results, places: Places, ours: Client, theirs: Client, dropped: int) -> None:
        feed, topic = results.feed, places.topic
        found = results.checks
        steps: tuple[Callable[[], checks.DemoCheck], ...] = (
            lambda: checks.check_loaded(ours, topic, feed),
            lambda: checks.check_archive(ours, topic, feed, places.archive),
            lambda: checks.check_mirror(ours, theirs, topic, places.mirrored),
            lambda: checks.check_online(feed, places.online, dropped),
            lambda: checks.check_groups(ours, topic, GROUPS),
            lambda: checks.check_rebalances(len(results.rebalances), len(results.members)),
        )
        for step in steps:
            found.append(step())
            self._screen.progress("checks", len(found), len(steps))
        if places.online.exists():
            with contextlib.suppress(sqlite3.Error, ValueError):  # The check has said it.
                results.online = checks.read_online(places.online)


def _position(client: Client, group: str, partitions: Sequence[TopicPartition]) -> int:
    """How many records a group has committed to have processed."""
    return sum(max(0, offset) for offset in client.committed(group, partitions).values())


def _day(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time_ms / 1_000))
