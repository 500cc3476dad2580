"""What every benchmark of two brokers does: its options, its temporary folder, its report, and stopping in any case."""

from __future__ import annotations

import argparse
import datetime
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import machine
from report import RESULTS, write_section

from support.java import java_executable, kafka_libs

PROJECT = Path(__file__).resolve().parents[1]
#: More than this used by others, and the figures are not worth keeping.
QUIET_SHARE = 0.1


class Figures(Protocol):
    """What was measured, as tables, and what the reader has to know about them."""

    legend: str

    def goals(self) -> tuple[int, int]: ...

    def tables(self) -> Iterable[str]: ...


class Bench(Protocol):
    """One run: `run` measures, `stop` kills what still runs."""

    @property
    def figures(self) -> Figures: ...

    def run(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Options:
    """What the command line chose."""

    quick: bool
    parts: frozenset[str]
    #: All of it, for options that one benchmark alone has.
    arguments: argparse.Namespace


def say(text: str) -> None:
    """Tell what is being measured."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def execute(
    name: str,
    description: str | None,
    parts: Sequence[str],
    rounds: int,
    make: Callable[[Options, Path], Bench],
    add_options: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> int:
    """Run the benchmark `bench/NAME.py` that `make` makes, print its tables, and write them where asked to.

    `add_options` adds to the parser what this benchmark alone takes; it is in `Options.arguments`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/RESULTS.md")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="measure these parts only")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.write and (arguments.quick or set(arguments.only) != set(parts)):
        parser.error("--write keeps complete runs only")
    if java_executable() is None or kafka_libs() is None:
        print("bench: Java 17 or Apache Kafka's jars are missing; use ./run bench, which fetches them", file=sys.stderr)
        return 1
    # A request to stop takes the brokers and their data along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cache = PROJECT / ".cache"
    cache.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=cache))
    bench = make(Options(arguments.quick, frozenset(arguments.only), arguments), folder)
    begun, bystanders = time.monotonic(), machine.Bystanders()
    try:
        bench.run()
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    command = " ".join([f"./run bench {name}", *sys.argv[1:]])
    rounds = getattr(arguments, "rounds", None) or rounds
    told = f"medians of {rounds} rounds" if rounds > 1 else "one round"
    if arguments.quick:
        told = "one round only (`--quick`)"
    text = _report(bench.figures, told, time.monotonic() - begun, bystanders.share(), command)
    print(text)
    if arguments.write:
        write_section(f"bench/{name}.py", text)
        say(f"written to {RESULTS.relative_to(PROJECT)}")
    return 0


def _report(figures: Figures, rounds: str, seconds: float, others: float, command: str) -> str:
    goals, met = figures.goals()
    now = datetime.datetime.now(datetime.UTC)
    noise = "" if others <= QUIET_SHARE else " **The machine was not quiet: do not trust absolute figures.**"
    head = (
        f"`{command}`, {now:%Y-%m-%d %H:%M} UTC, {seconds:.0f} s, {rounds}. {machine.describe()}. "
        f"Other processes used {others:.0%} of the machine.{noise}\n\n"
        f"{figures.legend} Goals met: {met} of {goals}."
    )
    return "\n\n".join((head, *figures.tables()))
