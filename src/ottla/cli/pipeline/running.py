"""`ottla pipeline run`: a session, the query, signals, progress, metrics, the report."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ottla.cli.command import EXIT_INTERRUPTED, CommandError
from ottla.cli.pipeline import COMMAND, java_end, refusals, spark_refusals
from ottla.cli.terminal import printable
from ottla.spark.pipelines.running.progress import RunHistory, live_line, sample
from ottla.spark.pipelines.settings.references import redacted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.listening.listener import QueryListener
    from ottla.spark.listening.queries import Query
    from ottla.spark.pipelines.running.runner import Ending, PipelineRunner, StopWish
    from ottla.spark.pipelines.settings.model import PipelineSettings

#: The variable by which a program knows that spark-submit has started it, and Java.
_GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
#: Limit for brokers to say where the run begins; without an answer its first batch has no rate.
START_TIMEOUT_MS = 10_000
_REWRITE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command."""

    report: Path | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    spark_log: Path | None = None
    continue_from_table: bool = False
    take_over: bool = False


class LiveOutput:
    """The live line, and the history of the run: rewritten in place on a terminal, a line a batch elsewhere.

    A thread of the listener calls `show`.
    """

    def __init__(self, stream: TextIO, secrets: tuple[str, ...], now_s: Callable[[], float] = time.time) -> None:
        self.history = RunHistory()
        self._stream = stream
        self._in_place = stream.isatty()
        self._secrets = secrets
        self._now_s = now_s
        self._lock = threading.Lock()
        self._is_open = False

    def show(self, query: Query) -> None:
        """Show the last batch of a query, and remember it."""
        if query.last is None:
            return
        now_s = self._now_s()
        with self._lock:
            line = printable(redacted(live_line(query, now_s), self._secrets))
            self.history.add(sample(query.last, now_s))
            if self._in_place:
                self._stream.write(_REWRITE + line)
                self._is_open = True
            elif query.last.rows:
                self._stream.write(line + "\n")
            self._stream.flush()

    def say(self, text: str) -> None:
        """A line of its own, below the live one."""
        self.end_line()
        self._stream.write(text + "\n")
        self._stream.flush()

    def end_line(self) -> None:
        """End the live line, so that what others write stands below it."""
        with self._lock:
            if self._is_open:
                self._stream.write("\n")
                self._stream.flush()
            self._is_open = False


def run_command(settings: PipelineSettings, options: RunOptions) -> int:
    """Run a pipeline until it ends or is asked to; the exit code. Raises CommandError."""
    from ottla.spark.pipelines.running.runner import Ending, PipelineRunner, StopWish

    output = LiveOutput(sys.stdout, settings.secrets)
    wish = StopWish()
    with refusals(settings):
        _check_before(settings, options)
        runner = PipelineRunner(settings.checkpoint, wish)
        runner.announce()
        ending = Ending()
        started_s = time.monotonic()
        try:
            with ExitStack() as stack:
                with spark_refusals(settings):
                    spark = _session(settings, options, stack)
                    _obey_signals(wish)
                    ending = _follow(settings, options, spark, runner, output, stack)
                # While Java lives: PySpark asks it for the text of an exception.
                code, text = _outcome(settings, ending, wish)
            if options.report is not None:
                _report(settings, options.report, text, time.monotonic() - started_s, output)
        except BaseException as failure:
            runner.close(failed=not isinstance(failure, KeyboardInterrupt))
            raise
        # The last heartbeat comes last: who waits for the end finds all of it done.
        runner.close(failed=ending.failure is not None)
    if ending.failure is not None:
        output.end_line()
        return COMMAND.report(text)
    output.say(text)
    return code


def _check_before(settings: PipelineSettings, options: RunOptions) -> None:
    """Refuse what would fail at the end of a run, and a second runner beside one that is surely there."""
    from ottla.spark.pipelines.running.control import Liveness, RunnerNotes
    from ottla.spark.pipelines.running.plots import require_plots
    from ottla.spark.pipelines.running.process import host_name, is_running

    if options.report is not None:
        require_plots()
        if not options.report.absolute().parent.is_dir():
            raise CommandError(f"--report {options.report}: there is no folder {options.report.absolute().parent}")
    found = RunnerNotes(settings.checkpoint).runner(host_name(), round(time.time() * 1_000), is_running)
    if found.liveness is not Liveness.alive or found.heartbeat is None or options.take_over:
        return
    if found.heartbeat.host == host_name() and found.heartbeat.pid != os.getpid():
        raise CommandError(
            f"{settings.name} runs already ({found.reason}); ottla pipeline stop ends it, or --take-over"
        )
    COMMAND.report(f"another runner may be at work ({found.reason}); one of the two will end")


def _session(settings: PipelineSettings, options: RunOptions, stack: ExitStack) -> SparkSession:
    from ottla.cli.java_home import java_home
    from ottla.spark.noise import silence_spark
    from ottla.spark.pipelines.running.sessions import close_session, open_session

    silence_spark()
    attached = _GATEWAY_PORT in os.environ
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)))
    log_file = options.spark_log or scratch / "spark.log"
    spark = open_session(settings, java_home=java_home(), folder=scratch, log_file=log_file, attached=attached)
    stack.callback(close_session, settings, spark, attached=attached)
    return spark


def _obey_signals(wish: StopWish) -> None:
    """Ctrl-C and SIGTERM ask to end after the batch in work; the second time, at once."""

    def ask(number: int, frame: object) -> None:
        wish.ask()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def _follow(
    settings: PipelineSettings,
    options: RunOptions,
    spark: SparkSession,
    runner: PipelineRunner,
    output: LiveOutput,
    stack: ExitStack,
) -> Ending:
    """Start the query and follow it; one that ended to add fields is started again."""
    listener = _listen(settings, options, spark, output)
    stack.callback(listener.close)
    if listener.port is not None:
        output.say(f"metrics at http://{options.metrics_host}:{listener.port}/metrics")
    while True:
        before = _fields(settings)
        query = _starter(settings, options)(spark)
        output.say(f"pipeline {settings.name} runs; Ctrl-C or ottla pipeline stop ends it after the batch in work")
        ending = runner.follow(query)
        if ending.failure is None or _fields(settings) == before:
            return ending
        output.say("fields were added; the query starts again with them")


def _starter(settings: PipelineSettings, options: RunOptions) -> Callable[[SparkSession], StreamingQuery]:
    if settings.mirror is not None:
        from ottla.spark.pipelines.mirroring.start import start_mirror

        return lambda spark: start_mirror(spark, settings)
    from ottla.spark.pipelines.queries.start import start_pipeline

    return lambda spark: start_pipeline(spark, settings, continue_from_table=options.continue_from_table)


def _fields(settings: PipelineSettings) -> list[str]:
    """The fields that the checkpoint has added to each source's schema; each start again has more."""
    from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
    from ottla.spark.pipelines.queries.schemas import added_fields
    from ottla.spark.pipelines.settings.model import NewFields

    if settings.new_fields is not NewFields.add:
        return []
    return [added_fields(QueryCheckpoint(settings.checkpoint), each) for each in settings.sources]


def _listen(settings: PipelineSettings, options: RunOptions, spark: SparkSession, output: LiveOutput) -> QueryListener:
    from ottla.spark.listening.listener import listen
    from ottla.spark.pipelines.running.clusters import read_clusters, run_start
    from ottla.spark.pipelines.running.progress import RowCount

    counted = RowCount(run_start(settings, START_TIMEOUT_MS)).counted
    sources = {} if settings.mirror else {settings.name: [each.options for each in read_clusters(settings)]}

    def show(_: str) -> None:
        for query in listener.queries:
            if query.name == settings.name:
                output.show(query)

    try:
        listener = listen(
            spark, sources, port=options.metrics_port, host=options.metrics_host, show=show, counted=counted
        )
    except OSError as problem:
        raise CommandError(f"--metrics-port {options.metrics_port}: {problem.strerror}; choose another one") from None
    return listener


def _outcome(settings: PipelineSettings, ending: Ending, wish: StopWish) -> tuple[int, str]:
    from ottla.spark.pipelines.queries.ending import why_it_ended
    from ottla.spark.pipelines.running.reasons import short_reason

    if ending.failure is not None:
        sentence = java_end(ending.failure) or why_it_ended(ending.failure)
        text = str(sentence) if sentence is not None else short_reason(str(ending.failure))
        return 1, redacted(f"{settings.name} ended: {text}", settings.secrets)
    if not ending.was_stopped:
        return 0, f"pipeline {settings.name} has processed what was there"
    again = f"pipeline {settings.name} stopped; it continues where it was when it is run again"
    return EXIT_INTERRUPTED if wish.after_batch else 0, again


def _report(settings: PipelineSettings, path: Path, ending: str, seconds: float, output: LiveOutput) -> None:
    from ottla.spark.pipelines.running.report import RunReport, write_report

    report = RunReport(settings.name, settings.kind.value, ending, seconds, output.history, settings.secrets)
    try:
        write_report(report, path)
    except OSError as problem:
        raise CommandError(f"--report {path}: it cannot be written ({problem.strerror})") from None
    output.say(f"report in {path}")
