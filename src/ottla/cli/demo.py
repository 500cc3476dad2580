"""`ottla demo`: one stream of events through a broker, three Spark pipelines and a group that keeps changing."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from ottla.demo.course import DemoOptions
    from ottla.demo.feed import Feed
    from ottla.demo.results import Results
    from ottla.demo.screen import Screen

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
DEFAULT_OUTPUT = Path("demo-output")
DEFAULT_PACE_S = 25.0
_PACKAGES = ("pyspark", "pyarrow", "confluent_kafka", "matplotlib")


def demo(
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="A .csv, .ndjson or .jsonl file of your own events instead of the flights."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The column of --input whose value is the record's key.")] = None,
    time: Annotated[
        str | None, typer.Option(help="The column of --input that holds the event's time (ISO 8601, or since 1970).")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the Parquet files and the report.")] = DEFAULT_OUTPUT,
    pace: Annotated[
        float, typer.Option(help="Seconds over which the events are sent.", min=0.0, max=3_600.0)
    ] = DEFAULT_PACE_S,
) -> None:
    """Show it all: a broker, three Spark pipelines, a consumer group that rebalances, checks, and a report."""
    if input_file is None and (key is not None or time is not None):
        _refuse("--key and --time belong to --input; give a file with them")
    if input_file is not None and (key is None or time is None):
        _refuse("--input needs --key COLUMN and --time COLUMN")
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        _refuse(f"the demo needs {', '.join(missing)}: pip install 'ottla[demo]'")
    from ottla.cli.demo_screen import make_screen
    from ottla.cli.java_home import java_home
    from ottla.demo.course import DemoOptions, prepare_output
    from ottla.demo.flights import flights_file, read_flights
    from ottla.demo.inputs import InputError, read_input

    try:
        feed = read_flights(flights_file()) if input_file is None else read_input(input_file, str(key), str(time))
        prepare_output(output)
    except InputError as problem:
        _refuse(str(problem))
    with make_screen() as screen:
        code = _run(feed, DemoOptions(output, pace, java_home()), screen)
    sys.exit(code)


def _run(feed: Feed, options: DemoOptions, screen: Screen) -> int:
    from ottla.client.errors import ClientError
    from ottla.demo.course import DemoFailed, DemoRun
    from ottla.demo.jobs import JobFailed
    from ottla.demo.loading import LoadFailed
    from ottla.demo.processes import ProcessFailed
    from ottla.spark.java import JavaNotFound

    course = DemoRun(feed, options, screen)
    try:
        with _signals_interrupt():
            results = course.run()
            _report(results, options.output, screen)
        return 0 if results.passed else EXIT_FAILED
    except (DemoFailed, ProcessFailed, LoadFailed, JobFailed, ClientError, JavaNotFound, OSError) as problem:
        screen.say(f"the demo failed: {problem}", strong=True)
        screen.say(f"what Spark and the brokers said is in {course.keep_logs()}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        screen.say("interrupted; stopping everything", strong=True)
        return EXIT_INTERRUPTED
    finally:
        # What is being stopped now shall not be left half stopped by a second Ctrl-C.
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
            ("", str(output / "archive"), f"the archive, {files:,} Parquet files"),
            ("", str(output / "online.parquet"), "the online totals"),
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


def _refuse(message: str) -> NoReturn:
    print(f"ottla demo: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)
