"""`ottla rebalance simulate`, `ottla rebalance compare` and `ottla rebalance lesson`."""

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
    from ottla.cli.rebalance.comparing import Wanted, run

    wanted = Wanted(
        members,
        partitions,
        turns,
        seed,
        session_timeout_ms,
        tuple(assignor or ()),
        watch_brokers,
        growth,
        story,
        picture,
    )

    def work() -> int:
        for line in run(wanted, as_json=output is OutputFormat.json):
            print(line)
        return 0

    _end(work)


@app.command()
def lesson(
    name: Annotated[str | None, typer.Argument(help="Which lesson; without, they are listed.")] = None,
) -> None:
    """Play an example of how groups share partitions, step by step, on the real machine and the real assignors."""

    def work() -> int:
        from ottla.cli.rebalance.lessons import LESSONS, listed, play

        if name is None:
            lines = listed()
        elif name in LESSONS:
            lines = play(name)
        else:
            raise _Refused(f"there is no lesson {name!r}; lessons are {', '.join(LESSONS)}")
        for line in lines:
            print(line)
        return 0

    _end(work)


def _group(group: str | None, bootstrap_server: str, file: Path | None) -> SimulatedGroup:
    from ottla.cli.rebalance.source import read_file, read_live

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


def _draw(outcomes: list[Outcome], path: Path) -> None:
    from ottla.cli.rebalance.picture import TooLarge, draw

    try:
        path.write_text(draw(outcomes), encoding="utf-8")
    except TooLarge as problem:
        raise _Refused(f"--picture: {problem}; choose one assignor, or a smaller group") from problem
    except OSError as error:
        raise _Refused(f"--picture: {path} cannot be written: {error.strerror}") from error


def _save(group: SimulatedGroup, path: Path) -> None:
    from ottla.cli.rebalance.source import to_json

    try:
        path.write_text(json.dumps(to_json(group), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise _Refused(f"--save: {path} cannot be written: {error.strerror}") from error


def _end(work: Callable[[], int]) -> NoReturn:
    from ottla.cli.rebalance.comparing import NotCompared
    from ottla.cli.rebalance.source import BadSource
    from ottla.client.errors import ClientError

    end("ottla rebalance", work, (_Refused, BadSource, NotCompared, ClientError))
