"""`ottla rebalance simulate`, `ottla rebalance compare` and `ottla rebalance example`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ottla.cli.command import CommandError, write_file
from ottla.cli.options import ClusterOptions, Format, Json, OutputFormat, cluster_command, make_app
from ottla.cli.rebalance import COMMAND
from ottla.cli.terminal import Column, Terminal, write_json

if TYPE_CHECKING:
    from ottla.assign.simulation import GroupChange, Outcome, SimulatedGroup
    from ottla.peer.cluster import Cluster
    from ottla.rebalance.designs.comparison import ComparisonResult
    from ottla.rebalance.examples import Example, ExampleRow

MOST_NEWCOMERS = 100_000
MOST_MEMBERS, MOST_PARTITIONS, MOST_TURNS = 500, 10_000, 1_000
"""Limits of a comparison, which simulates every message."""
MOST_BROKERS = 1_000
"""Of the example of placement."""

app = make_app("rebalance", "Simulate and explain rebalances of consumer groups.")


class _ChangeOptions(NamedTuple):
    add: int
    remove: Sequence[str]
    partitions: Sequence[str]


@cluster_command(app)
def simulate(
    shared: ClusterOptions,
    group: Annotated[str | None, typer.Option("--group", "-g", help="A live group, as it is now.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A JSON file that describes a group.")] = None,
    add: Annotated[int, typer.Option(help="Members that join.", min=0, max=MOST_NEWCOMERS)] = 0,
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
    output: Format = OutputFormat.table,
) -> None:
    """Show what a change of a group would move. Changes nothing.

    The change: members join or leave, or a topic gets partitions. The result is shown for each assignor.
    """
    from ottla.rebalance.group_source import BadSource, read_file, read_live

    def show(before: SimulatedGroup) -> int:
        if save is not None:
            _save(before, save)
        change = _change(before, _ChangeOptions(add, remove or (), partitions or ()))
        outcomes = _outcomes(before, change, assignor or ())
        _write(outcomes, as_json=shared.as_json or output is OutputFormat.json)
        if picture is not None:
            _draw(outcomes, picture)
        return 0

    if (group is None) == (file is None):
        COMMAND.fail("say which group: --group NAME for a live one, or --file FILE (one of them)")
    if file is not None:
        path = file
        COMMAND.run(lambda: show(read_file(path)), (BadSource,))
    name = group or ""

    async def work(cluster: Cluster) -> int:
        return show(await read_live(cluster, name))

    COMMAND.run_with_cluster(shared, work, (BadSource,))


@app.command()
def compare(
    members: Annotated[int, typer.Option(help="Members at first.", min=1, max=MOST_MEMBERS)] = 8,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic at first.", min=1, max=MOST_PARTITIONS)] = 32,
    turns: Annotated[int, typer.Option(help="Changes and faults of the group.", min=1, max=MOST_TURNS)] = 20,
    seed: Annotated[int, typer.Option(help="Of the random churn; the same seed gives the same run.")] = 1,
    session_timeout_ms: Annotated[
        int, typer.Option(help="Session timeout, with ZooKeeper and with the coordinator.", min=6_000, max=1_800_000)
    ] = 6_000,
    slowest: Annotated[
        float,
        typer.Option(
            help="How many times as long the slowest member's messages may take; 1: all are alike.", min=1, max=100
        ),
    ] = 10,
    loss: Annotated[
        float, typer.Option(help="The chance that a message is lost, and its connection with it.", min=0, max=0.1)
    ] = 0.001,
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
    as_json: Json = False,
    output: Format = OutputFormat.table,
) -> None:
    """Compare ZooKeeper's group design with the coordinator's. Both get the same churn, in virtual time."""
    from ottla.rebalance.designs.churn_script import ScriptPlan
    from ottla.rebalance.designs.comparison import USUAL_ASSIGNORS, Comparison, UnknownAssignor, run

    plan = ScriptPlan(members, partitions, turns)
    comparison = Comparison(
        tuple(assignor or USUAL_ASSIGNORS),
        session_timeout_ms,
        watch_brokers=watch_brokers,
        slowest=slowest,
        loss=loss,
    )

    def work() -> int:
        try:
            result = run(plan, comparison, seed, with_growth=growth)
        except UnknownAssignor as problem:
            raise CommandError(f"--assignor: {problem}") from problem
        _write_comparison(result, as_json=as_json or output is OutputFormat.json, story=story)
        if picture is not None:
            _draw_timeline(result, picture)
        return 0

    COMMAND.run(work)


@app.command()
def example(
    name: Annotated[str | None, typer.Argument(help="Which example; without, they are listed.")] = None,
    brokers: Annotated[int | None, typer.Option(help="placement: brokers [6].", min=0, max=MOST_BROKERS)] = None,
    partitions: Annotated[int | None, typer.Option(help="placement: partitions [10].", max=MOST_PARTITIONS)] = None,
    factor: Annotated[int | None, typer.Option(help="placement: the replication factor [3].")] = None,
    racks: Annotated[
        str | None, typer.Option(metavar="a,b,…", help="placement: the racks of brokers 0, 1, …; may be empty.")
    ] = None,
    start: Annotated[int | None, typer.Option(help="placement: place of the first replica [4].", min=0)] = None,
    shift: Annotated[int | None, typer.Option(help="placement: distance of the second, less 1 [0].", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Play an example rebalance step by step. It runs on the coordinator's state machine and the assignors."""
    from ottla.rebalance.examples import EXAMPLES

    chosen = {"brokers": brokers, "partitions": partitions, "factor": factor, "start": start, "shift": shift}
    options = {key: value for key, value in chosen.items() if value is not None}

    def work() -> int:
        terminal = Terminal.standard_output()
        if name is None and as_json:
            write_json(*({"example": key, "about": each.title} for key, each in EXAMPLES.items()))
        elif name is None:
            columns = [Column("EXAMPLE", lambda key: key), Column("ABOUT", lambda key: EXAMPLES[key].title)]
            terminal.table(columns, list(EXAMPLES), indent="")
            terminal.line()
            terminal.line("Play one: ottla rebalance example NAME")
        elif name not in EXAMPLES:
            raise CommandError(f"there is no example {name!r}; examples are {', '.join(EXAMPLES)}")
        else:
            _play(terminal, name, _example(name, options, racks), as_json=as_json)
        return 0

    COMMAND.run(work)


app.command("lesson", hidden=True)(example)  # the former name


def _example(name: str, options: Mapping[str, int], racks: str | None) -> Example:
    from ottla.rebalance.examples import EXAMPLES
    from ottla.rebalance.placement import Placement, introduction, place

    if not options and racks is None:
        return EXAMPLES[name]
    if name != "placement":
        raise CommandError(f"--{next(iter(options), 'racks')} is of the example placement; leave it out for {name}")
    placement = Placement(**options, racks=tuple(racks.split(",")) if racks else ())
    if len(placement.racks) > placement.brokers:
        raise CommandError(
            f"--racks names {len(placement.racks)} racks for {placement.brokers} brokers; name one for each broker"
        )
    return EXAMPLES[name]._replace(play=lambda: introduction(placement), rows=lambda: place(placement))


def _play(terminal: Terminal, name: str, example: Example, *, as_json: bool) -> None:
    from ottla.rebalance.examples import play
    from ottla.rebalance.placement import PlacementRefused

    try:
        rows = list(example.rows())
    except PlacementRefused as problem:
        raise CommandError(str(problem)) from problem
    if as_json:
        write_json(*(rows or ({"line": line} for line in play(name, example))))
        return
    for line in play(name, example):
        terminal.line(line)
    if rows:
        terminal.line()
        terminal.table([Column(key, partial(_example_cell, key)) for key in rows[0]], rows)


def _example_cell(key: str, row: ExampleRow) -> str:
    value = row[key]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "" if value is None else str(value)


def _change(group: SimulatedGroup, options: _ChangeOptions) -> GroupChange:
    from ottla.assign.simulation import GroupChange, newcomers

    counts: dict[str, int] = {}
    for one in options.partitions:
        topic, equals, number = one.rpartition("=")
        if not equals or not topic or not number.isascii() or not number.isdecimal() or len(number) > 9:
            raise CommandError(f"--partitions {one!r} is not of the form TOPIC=N")
        counts[topic] = int(number)
    leaving = tuple(dict.fromkeys(_member(group, one) for one in options.remove))
    return GroupChange(leaving, newcomers(group, options.add), counts)


def _member(group: SimulatedGroup, wanted: str) -> str:
    """The member of this id, or the only one whose id begins so."""
    found = [wanted] if wanted in group.members else [name for name in group.members if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"--remove {wanted}: {len(found)} members begin so: {', '.join(found[:5])}")
    raise CommandError(f"--remove {wanted}: no such member; members are {', '.join(list(group.members)[:10])}")


def _outcomes(group: SimulatedGroup, change: GroupChange, names: Sequence[str]) -> list[Outcome]:
    from ottla.assign.registry import BUILT_IN, AssignorError, load_assignors
    from ottla.assign.simulation import Impossible, simulate

    try:
        assignors = [one for name in names or BUILT_IN for one in load_assignors([name])]
    except AssignorError as problem:
        raise CommandError(str(problem)) from problem
    outcomes = []
    for one in assignors:
        outcome = simulate(group, change, type(one))
        if isinstance(outcome, Impossible):
            raise CommandError(outcome.message)
        outcomes.append(outcome)
    return outcomes


def _write(outcomes: list[Outcome], *, as_json: bool) -> None:
    from ottla.cli.rebalance.output import show, to_json

    if as_json:
        write_json(*map(to_json, outcomes))
    else:
        show(Terminal.standard_output(), outcomes)


def _write_comparison(result: ComparisonResult, *, as_json: bool, story: bool) -> None:
    from ottla.cli.rebalance.compare_output import growth_to_json, show_designs, show_growth, to_json

    if as_json:
        write_json(*map(to_json, result.results), *map(growth_to_json, result.growth))
        return
    terminal = Terminal.standard_output()
    show_designs(terminal, result.script, result.results, story=story)
    if result.growth:
        terminal.line()
        show_growth(terminal, result.growth)


def _draw(outcomes: list[Outcome], path: Path) -> None:
    from ottla.rebalance.picture import draw

    _write_picture(lambda: draw(outcomes), path, "choose one assignor, or a smaller group")


def _draw_timeline(result: ComparisonResult, path: Path) -> None:
    from ottla.rebalance.designs.timeline import draw_timeline

    _write_picture(lambda: draw_timeline(result.script, result.results), path, "play fewer turns, or fewer partitions")


def _write_picture(draw: Callable[[], str], path: Path, cure: str) -> None:
    from ottla.rebalance.picture import PictureTooLarge

    try:
        write_file(path, draw(), "--picture: ")
    except PictureTooLarge as problem:
        raise CommandError(f"--picture: {problem}; {cure}") from problem


def _save(group: SimulatedGroup, path: Path) -> None:
    from ottla.rebalance.group_source import to_json

    write_file(path, json.dumps(to_json(group), ensure_ascii=False, indent=1) + "\n", "--save: ")
