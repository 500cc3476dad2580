"""How partitions are moved, verified and cancelled: shown, confirmed, then done."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed, write_file
from ottla.cli.reassign import COMMAND
from ottla.cli.reassign.plan_files import files_of_plan
from ottla.cli.reassign.views import show_standing, show_wanted, to_copy, wanted_row
from ottla.cli.terminal import Terminal, count, write_json
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import InvalidArgumentError
from ottla.client.model import TopicPartition
from ottla.ops.moves.files import WantedMove, moves_json, parse_moves, parse_topics
from ottla.ops.moves.moving import (
    MovePlan,
    Standing,
    cancel,
    check_plan,
    clear_throttles,
    execute,
    move_row,
    proposed,
    read_standing,
)
from ottla.peer.cluster import Cluster

T = TypeVar("T")

ADVICE = "run `ottla reassign verify --wait`: it takes the throttle away when all is done"
#: Pause between two looks at moves that are waited for.
ASK_AGAIN_S = 0.5
#: Looks in a row at which nothing moves before it is believed: a broker may not know yet that a move is done.
MOST_IDLE_LOOKS = 4
#: Partitions named in one message.
GONE_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of `execute`."""

    path: str
    throttle: int | None
    log_dir_throttle: int | None
    additional: bool
    save: str | None


@dataclass(frozen=True, slots=True)
class ProposalOptions:
    """Options of `generate`."""

    topics: tuple[str, ...]
    path: str | None
    brokers: str
    disable_rack_aware: bool
    output: str | None


def read_file(path: str, parse: Callable[[str], T]) -> T:
    """Read and parse a file; "-" is standard input. Raises CommandError."""
    try:
        return parse(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        files = files_of_plan(Path(path)) if isinstance(error, FileNotFoundError) else []
        instead = f"; the plan has the files {', '.join(files)}, one after the other" if files else ""
        raise CommandError(f"{path} cannot be read: {error.strerror}{instead}") from error
    except (UnicodeDecodeError, InvalidArgumentError) as error:
        raise CommandError(f"{path}: {error}") from error


async def execute_moves(cluster: Cluster, options: Execution, *, yes: bool, as_json: bool) -> int:
    """Show the moves, confirm, and begin them; returns the exit code."""
    plan = MovePlan(read_file(options.path, parse_moves), options.throttle, options.log_dir_throttle)
    plan.standing = standing = await read_standing(cluster, plan.moves)
    check_plan(plan, is_additional=options.additional)
    for broker, problem in standing.status.silent.items():
        COMMAND.report(f"broker {broker} did not answer: {problem}")
    if not as_json:
        show_wanted(Terminal.standard_output(), standing)
    if not confirmed(f"Move {count(len(plan.moves), 'partition')}?", yes=yes, as_json=as_json):
        if as_json:
            _write_wanted(plan, ())
        return COMMAND.report(NOT_CONFIRMED)
    if options.save is not None:
        write_file(options.save, moves_json(standing.now) + "\n")
    elif not as_json:
        sys.stdout.write(f"the way back, for `ottla reassign execute`:\n{moves_json(standing.now)}\n")
    refused = await execute(cluster, plan)
    for reason in refused.values():
        COMMAND.report(reason)
    begun = [move.partition for move in plan.moves if move.partition not in refused]
    if as_json:
        _write_wanted(plan, begun)
    elif begun:
        sys.stdout.write(f"begun: {count(len(begun), 'move')}\n")
    if options.throttle is not None or options.log_dir_throttle is not None:
        COMMAND.report(ADVICE)
    return 1 if refused else 0


def _write_wanted(plan: MovePlan, begun: Sequence[TopicPartition]) -> None:
    copied = to_copy(plan.standing)
    for each in plan.standing.moves:
        write_json(wanted_row(each, copied[each.partition], begun=each.partition in begun))


async def verify_moves(cluster: Cluster, path: str, *, wait: bool, preserve_throttles: bool, as_json: bool) -> int:
    """Show how the moves stand, and take the throttles away where nothing moves; 0 if all are done, else 1."""
    moves = read_file(path, parse_moves)
    standing = await read_standing(cluster, moves, sizes=False)
    idle_looks = 0
    while wait and not standing.is_done and idle_looks < MOST_IDLE_LOOKS:
        await asyncio.sleep(ASK_AGAIN_S)
        standing = await read_standing(cluster, moves, sizes=False)
        idle_looks = 0 if standing.is_moving else idle_looks + 1
    if as_json:
        write_json(*map(move_row, standing.moves), *map(move_row, standing.replicas))
    else:
        show_standing(Terminal.standard_output(), standing)
    _report_gone(standing, path)
    if not standing.is_moving and not preserve_throttles:
        await clear_throttles(cluster, moves, standing)
        if not as_json:
            sys.stdout.write("throttles are taken away from brokers and topics\n")
    return 0 if standing.is_done else 1


async def cancel_moves(cluster: Cluster, path: str, *, preserve_throttles: bool, yes: bool, as_json: bool) -> int:
    """Show the moves under way, confirm, and cancel them; returns the exit code."""
    moves: list[WantedMove] = read_file(path, parse_moves)
    standing = await read_standing(cluster, moves, sizes=False)
    moving = [each for each in standing.moves if each.partition in standing.under_way]
    if not as_json:
        show_standing(Terminal.standard_output(), standing)
    _report_gone(standing, path)
    if moving and not confirmed(f"Cancel {count(len(moving), 'move')}?", yes=yes, as_json=as_json):
        if as_json:
            _write_cancelled([each.partition for each in moving], ())
        return COMMAND.report(NOT_CONFIRMED)
    done, refused = await cancel(cluster, standing)
    for reason in refused.values():
        COMMAND.report(reason)
    if not preserve_throttles and not refused:
        await clear_throttles(cluster, moves, standing)
    if as_json:
        _write_cancelled([each.partition for each in moving], done)
    else:
        sys.stdout.write(f"cancelled: {count(len(done), 'move')}\n" if done else "none of these partitions moves\n")
    return 1 if refused else 0


def _report_gone(standing: Standing, path: str) -> None:
    gone = standing.gone
    if gone:
        names = ", ".join(map(str, gone[:GONE_SHOWN])) + (", …" if len(gone) > GONE_SHOWN else "")
        COMMAND.report(f"not in the cluster, so that their moves are never done: {names}. Take them out of {path}")


def _write_cancelled(moving: Sequence[TopicPartition], done: Sequence[TopicPartition]) -> None:
    write_json(*({**each._asdict(), "cancelled": each in done} for each in moving))


async def generate_moves(cluster: Cluster, options: ProposalOptions, *, as_json: bool) -> int:
    """Propose where topics could be, and show where they are; returns the exit code."""
    names = [*options.topics, *(read_file(options.path, parse_topics) if options.path is not None else ())]
    if not names:
        raise CommandError("name topics, or a file of them: --topics-to-move-json-file")
    try:
        wanted = dict.fromkeys(int(each) for each in options.brokers.split(","))
    except ValueError as error:
        raise CommandError(f"--broker-list {options.brokers}: expected ids of brokers, as in 1,2,3") from error
    topics = await TopicAdmin(cluster).describe_topics(dict.fromkeys(names))
    nodes = cluster.metadata.nodes
    unknown = [str(each) for each in wanted if each not in nodes]
    if unknown:
        raise CommandError(f"Unknown broker id {', '.join(unknown)}; the brokers are {', '.join(map(str, nodes))}")
    found = proposed(
        topics.values(),
        [nodes[each] for each in wanted],
        random.SystemRandom().randrange,
        rack_aware=not options.disable_rack_aware,
    )
    now = {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in topics.values()
        for each in topic.partitions
    }
    if options.output is not None:
        write_file(options.output, moves_json(found) + "\n")
    if as_json:
        for partition, replicas in found.items():
            write_json({**partition._asdict(), "now": now[partition], "new": replicas})
        return 0
    sys.stdout.write(f"Current partition replica assignment\n{moves_json(now)}\n\n")
    sys.stdout.write(f"Proposed partition reassignment configuration\n{moves_json(found)}\n")
    return 0
