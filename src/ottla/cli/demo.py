"""`ottla demo`: one stream of events through a broker, three Spark pipelines and a group that keeps changing."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import EXIT_INTERRUPTED, EXIT_REFUSED, Command, CommandError

if TYPE_CHECKING:
    from ottla.demo.feed import Feed
    from ottla.demo.results import Results
    from ottla.demo.screen import Screen

COMMAND = Command("ottla demo")
DEFAULT_OUTPUT = Path("demo-output")
DEFAULT_PACE_S = 25.0
_PACKAGES = ("pyspark", "pyarrow", "deltalake", "sqlglot", "confluent_kafka", "matplotlib", "rich")


def demo(
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="A .csv, .ndjson or .jsonl file of your own events instead of the flights."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The column of --input whose value is the record's key.")] = None,
    time: Annotated[
        str | None, typer.Option(help="The column of --input that holds the event's time (ISO 8601, or since 1970).")
    ] = None,
    output: Annotated[Path, typer.Option(help="Directory for the Parquet files and the report.")] = DEFAULT_OUTPUT,
    pace: Annotated[
        float, typer.Option(help="Seconds over which the events are sent.", min=0.0, max=3_600.0)
    ] = DEFAULT_PACE_S,
) -> None:
    """Run the demo on this machine and write a report.

    It starts brokers, three Spark pipelines and a consumer group that rebalances, and checks the results.
    """

    def work() -> int:
        if input_file is None and (key is not None or time is not None):
            raise CommandError("--key and --time belong to --input; give a file with them")
        if input_file is not None and (key is None or time is None):
            raise CommandError("--input needs --key COLUMN and --time COLUMN")
        COMMAND.require("the demo", _PACKAGES, "demo")
        feed = _prepare(input_file, str(key), str(time), output)
        return _run(feed, output, pace)

    COMMAND.run(work)


def _prepare(input_file: Path | None, key: str, time: str, output: Path) -> Feed:
    from ottla.demo.course import prepare_output
    from ottla.demo.flights import flights_file, read_flights
    from ottla.demo.inputs import InputError, read_input

    try:
        feed = read_flights(flights_file()) if input_file is None else read_input(input_file, key, time)
        prepare_output(output)
    except InputError as problem:
        raise CommandError(str(problem)) from problem
    return feed


def _run(feed: Feed, output: Path, pace_s: float) -> int:
    from ottla.cli.demo_screen import make_screen
    from ottla.cli.java_home import java_home
    from ottla.client.errors import ClientError
    from ottla.demo.course import DemoFailed, DemoOptions, DemoRun
    from ottla.demo.jobs import JobFailed
    from ottla.demo.loading import LoadFailed
    from ottla.demo.processes import ProcessFailed
    from ottla.spark.java import JavaNotFound
    from ottla.spark.pipelines.errors import PipelineError

    refusals = (DemoFailed, ProcessFailed, LoadFailed, JobFailed, PipelineError, ClientError, JavaNotFound, OSError)
    with make_screen() as screen:
        course = DemoRun(feed, DemoOptions(output, pace_s, java_home()), screen)
        try:
            with _signals_interrupt():
                results = course.run()
                _report(results, output, screen)
            return 0 if results.passed else EXIT_REFUSED
        except refusals as problem:
            screen.say(f"the demo failed: {problem}", strong=True)
            screen.say(f"the logs of Spark and the brokers are in {course.keep_logs()}")
            return EXIT_REFUSED
        except KeyboardInterrupt:
            screen.say("interrupted; stopping everything", strong=True)
            return EXIT_INTERRUPTED
        finally:
            # A second Ctrl-C must not interrupt the clean-up.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            course.close()


def _report(results: Results, output: Path, screen: Screen) -> None:
    from ottla.demo.page import cards, write_report

    screen.say("drawing the report")
    write_report(results, output)
    screen.table("Figures", [("", name, value) for name, value in cards(results)])
    screen.table("Checks", [("ok" if check.passed else "FAILED", check.name, check.detail) for check in results.checks])
    files = sum(1 for _ in (output / "archive").rglob("*.parquet"))
    screen.table(
        "Left for you",
        [
            ("", str(output / "report.html"), "the report, one page"),
            ("", str(output / "report.png"), "its plots"),
            ("", str(output / "pipelines"), "the three pipelines, a file each"),
            ("", str(output / "archive"), f"the archive, a Delta table of {files:,} Parquet files"),
            ("", str(output / "online.sqlite"), "the online totals, a SQLite database"),
        ],
    )


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP do what Ctrl-C does, so that they clean up as well."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
