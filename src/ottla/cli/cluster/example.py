"""`ottla cluster example failover`: how it is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from ottla.cli.command import EXIT_REFUSED, CommandError
from ottla.cli.terminal import Column, Terminal, numbers, write_json
from ottla.rebalance.failover.phases import PHASES, FailoverResult, play
from ottla.testing.errors import WaitedInVainError

EXAMPLES: Final = {"failover": "the coordinator of a group dies in each of the five phases of a rebalance (G11)"}


def show_example(name: str | None, phase: int | None, *, as_json: bool) -> int:
    """Play an example, or list them; returns the exit code: 0 where the group was well at the end of each phase."""
    terminal = Terminal.standard_output()
    if name is None:
        if as_json:
            write_json(*({"example": key, "about": about} for key, about in EXAMPLES.items()))
        else:
            terminal.table([Column("EXAMPLE", lambda key: key), Column("ABOUT", EXAMPLES.get)], EXAMPLES, indent="")
        return 0
    if name not in EXAMPLES:
        raise CommandError(f"example {name!r} does not exist; examples are {', '.join(EXAMPLES)}")
    # Brokers log their neighbour's death, which would stand between the lines.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    results = [_play(terminal, number, as_json=as_json) for number in (PHASES if phase is None else [phase])]
    if len(results) > 1 and not as_json:
        terminal.table(_COLUMNS, results, indent="")
    return 0 if all(each.is_well for each in results) else EXIT_REFUSED


def _play(terminal: Terminal, number: int, *, as_json: bool) -> FailoverResult:
    try:
        result = play(number, (lambda _: None) if as_json else terminal.line)
    except (WaitedInVainError, TimeoutError) as problem:
        raise CommandError(
            f"phase {number} did not end ({str(problem) or 'its time is up'}); try again when the machine is less busy"
        ) from problem
    if as_json:
        write_json(asdict(result))
    else:
        terminal.line(
            f"  In the end: generation {result.generation_after}, joined again {_listed(result.joined_again)}, "
            f"partitions owned twice {_listed(result.owned_twice)}, without owner {_listed(result.unowned)}, "
            f"commits lost {_listed(result.offsets_lost)}"
        )
        terminal.line()
    return result


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"


_COLUMNS: Final[list[Column[FailoverResult]]] = [
    numbers("PHASE", lambda row: row.phase),
    Column("THE COORDINATOR DIES", lambda row: row.moment),
    Column("GENERATION", lambda row: f"{row.generation_before} → {row.generation_after}"),
    Column("JOINED AGAIN", lambda row: _listed(row.joined_again)),
    Column("OWNED TWICE", lambda row: _listed(row.owned_twice)),
    Column("COMMITS LOST", lambda row: _listed(row.offsets_lost)),
]
