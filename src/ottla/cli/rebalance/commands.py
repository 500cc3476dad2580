"""`ottla rebalance simulate`, `ottla rebalance compare` and `ottla rebalance example`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ottla.cli.ending import end

if TYPE_CHECKING:
    from ottla.assign.simulation import Change, Outcome, SimulatedGroup
    from ottla.rebalance.comparison import ComparisonResult

MOST_NEWCOMERS = 100_000
MOST_MEMBERS, MOST_PARTITIONS, MOST_TURNS = 500, 10_000, 1_000
"""Of a comparison, in which everything is played out message by message."""

app = typer.Typer(
    name="rebalance",
    help="What would move if a group changed, under each assignor; and how rebalances go, step by step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class OutputFormat(StrEnum):
    """How results are written."""

    table = "table"
    json = "json"


class _Refused(Exception):
    """The wish cannot be granted; the message says why, and what to do."""


@app.command()
def simulate(
    group: Annotated[str | None, typer.Option("--group", "-g", help="A live group, as it is now.")] = None,
    bootstrap_server: Annotated[
        str, typer.Option("--bootstrap-server", "-b", help="Where the live group is.")
    ] = "127.0.0.1:9092",
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A JSON file that describes a group.")] = None,
    add: Annotated[int, typer.Option(help="So many members join.", min=0, max=MOST_NEWCOMERS)] = 0,
    remove: Annotated[
        list[str] | None, typer.Option(help="This member leaves (its id, or how it begins); may be repeated.")
    ] = None,
    partitions: Annotated[
        list[str] | None, typer.Option(help="TOPIC=N: the topic gets N partitions; may be repeated.")
    ] = None,
    assignor: Annotated[
        list[str] | None, typer.Option("--assignor", "-a", help="Only this assignor; may be repeated [all four].")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw it, too, as SVG into this file.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the group as it is now to this JSON file.")] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="Tables, or one JSON object a line.")] = (
        OutputFormat.table
    ),
) -> None:
    """Show what would move under each assignor if members came or went or partitions were added. Changes nothing."""

    def work() -> int:
        before = _group(group, bootstrap_server, file)
        if save is not None:
            _save(before, save)
        outcomes = _outcomes(before, _change(before, add, remove or (), partitions or ()), assignor or ())
        _write(outcomes, output)
        if picture is not None:
            _draw(outcomes, picture)
        return 0

    _end(work)


@app.command()
def compare(
    members: Annotated[int, typer.Option(help="Members at first.", min=1, max=MOST_MEMBERS)] = 8,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic at first.", min=1, max=MOST_PARTITIONS)] = 32,
    turns: Annotated[int, typer.Option(help="Things that befall the group.", min=1, max=MOST_TURNS)] = 20,
    seed: Annotated[int, typer.Option(help="Another seed is another story; the same one is the same story.")] = 1,
    session_timeout_ms: Annotated[
        int, typer.Option(help="Session timeout, with ZooKeeper and with the coordinator.", min=6_000, max=1_800_000)
    ] = 6_000,
    assignor: Annotated[
        list[str] | None,
        typer.Option("--assignor", "-a", help="The coordinator's; may be repeated [range, cooperative-sticky]."),
    ] = None,
    watch_brokers: Annotated[
        bool, typer.Option("--watch-brokers", help="Also ZooKeeper with brokers always watched.")
    ] = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="Also what one change costs as members and partitions grow.")
    ] = False,
    story: Annotated[bool, typer.Option("--story", help="Also what followed each turn.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the timeline, too, as SVG into this file.")] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="Tables, or one JSON object a line.")] = (
        OutputFormat.table
    ),
) -> None:
    """Play the same churn on the group design of ZooKeeper and on the coordinator's, in virtual time, and compare."""
    from ottla.rebalance.comparison import ComparisonRequest, UnknownAssignor, run

    request = ComparisonRequest(
        members, partitions, turns, seed, session_timeout_ms, tuple(assignor or ()), watch_brokers, growth
    )

    def work() -> int:
        try:
            result = run(request)
        except UnknownAssignor as problem:
            raise _Refused(f"--assignor: {problem}") from problem
        _write_comparison(result, output, story=story)
        if picture is not None:
            _draw_timeline(result, picture)
        return 0

    _end(work)


@app.command()
def example(
    name: Annotated[str | None, typer.Argument(help="Which example; without, they are listed.")] = None,
) -> None:
    """Play an example of a rebalance step by step, on the coordinator's state machine and the shipped assignors."""

    def work() -> int:
        from ottla.rebalance.examples import EXAMPLES, listed, play

        if name is None:
            lines = listed()
        elif name in EXAMPLES:
            lines = play(name)
        else:
            raise _Refused(f"there is no example {name!r}; examples are {', '.join(EXAMPLES)}")
        for line in lines:
            print(line)
        return 0

    _end(work)


app.command("lesson", hidden=True)(example)  # the former name


def _group(group: str | None, bootstrap_server: str, file: Path | None) -> SimulatedGroup:
    from ottla.rebalance.group_source import read_file, read_live

    if (group is None) == (file is None):
        raise _Refused("say which group: --group NAME for a live one, or --file FILE (one of them)")
    if file is not None:
        return read_file(file)
    assert group is not None
    return asyncio.run(read_live(bootstrap_server, group))


def _change(
    group: SimulatedGroup, add: int, remove: list[str] | tuple[()], partitions: list[str] | tuple[()]
) -> Change:
    from ottla.assign.simulation import Change, newcomers

    counts: dict[str, int] = {}
    for one in partitions:
        topic, equals, number = one.rpartition("=")
        if not equals or not topic or not number.isascii() or not number.isdecimal() or len(number) > 9:
            raise _Refused(f"--partitions {one!r} is not of the form TOPIC=N")
        counts[topic] = int(number)
    leaving = tuple(dict.fromkeys(_member(group, one) for one in remove))
    return Change(leaving, newcomers(group, add), counts)


def _member(group: SimulatedGroup, wanted: str) -> str:
    """The member of this id, or the only one whose id begins so."""
    found = [wanted] if wanted in group.members else [name for name in group.members if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _Refused(f"--remove {wanted}: {len(found)} members begin so: {', '.join(found[:5])}")
    raise _Refused(f"--remove {wanted}: no such member; members are {', '.join(list(group.members)[:10])}")


def _outcomes(group: SimulatedGroup, change: Change, names: list[str] | tuple[()]) -> list[Outcome]:
    from ottla.assign.registry import BUILT_IN, AssignorError, load_assignors
    from ottla.assign.simulation import Impossible, simulate

    try:
        assignors = [one for name in names or BUILT_IN for one in load_assignors([name])]
    except AssignorError as problem:
        raise _Refused(str(problem)) from problem
    outcomes = []
    for one in assignors:
        outcome = simulate(group, change, type(one))
        if isinstance(outcome, Impossible):
            raise _Refused(outcome.message)
        outcomes.append(outcome)
    return outcomes


def _write(outcomes: list[Outcome], output: OutputFormat) -> None:
    from ottla.cli.rebalance.output import to_json, write_text

    if output is OutputFormat.json:
        for outcome in outcomes:
            print(json.dumps(to_json(outcome), ensure_ascii=False))
    else:
        for line in write_text(outcomes):
            print(line)


def _write_comparison(result: ComparisonResult, output: OutputFormat, *, story: bool) -> None:
    from ottla.cli.rebalance.compare_output import growth_to_json, to_json, write_growth, write_text

    if output is OutputFormat.json:
        for row in (*map(to_json, result.results), *map(growth_to_json, result.growth)):
            print(json.dumps(row))
        return
    for line in write_text(result.script, result.results, story=story):
        print(line)
    if result.growth:
        print()
        for line in write_growth(result.growth):
            print(line)


def _draw(outcomes: list[Outcome], path: Path) -> None:
    from ottla.rebalance.picture import draw

    _write_picture(lambda: draw(outcomes), path, "choose one assignor, or a smaller group")


def _draw_timeline(result: ComparisonResult, path: Path) -> None:
    from ottla.rebalance.timeline import draw_timeline

    _write_picture(lambda: draw_timeline(result.script, result.results), path, "play fewer turns, or fewer partitions")


def _write_picture(draw: Callable[[], str], path: Path, cure: str) -> None:
    from ottla.rebalance.picture import TooLarge

    try:
        path.write_text(draw(), encoding="utf-8")
    except TooLarge as problem:
        raise _Refused(f"--picture: {problem}; {cure}") from problem
    except OSError as error:
        raise _Refused(f"--picture: {path} cannot be written: {error.strerror}") from error


def _save(group: SimulatedGroup, path: Path) -> None:
    from ottla.rebalance.group_source import to_json

    try:
        path.write_text(json.dumps(to_json(group), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise _Refused(f"--save: {path} cannot be written: {error.strerror}") from error


def _end(work: Callable[[], int]) -> NoReturn:
    from ottla.client.errors import ClientError
    from ottla.rebalance.group_source import BadSource

    end("ottla rebalance", work, (_Refused, BadSource, ClientError))
