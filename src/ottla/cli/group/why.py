"""A rebalance as text: why, who, how long, what moved, and what it cost each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ottla.cli.group.views import distinct_names
from ottla.cli.log.output import instant
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, duration, numbers, printable
from ottla.ops.rebalances import RebalanceRecord, cause_in_words
from ottla.rebalance.notation import ranges

CAUSES_SHOWN = 8
MEMBERS_SHOWN = 20
MOVES_SHOWN = 12
TIMELINE_WIDTH = 24
MOST_RANGES = 6
WAITS_TO_JOIN, WAITS_FOR_OTHERS, WAITS_FOR_ASSIGNMENT, FREE = "░", "▒", "█", "·"
LEGEND = (
    f"{WAITS_TO_JOIN} notified, not joined yet   {WAITS_FOR_OTHERS} joined, waits for the others   "
    f"{WAITS_FOR_ASSIGNMENT} waits for the assignment"
)

_OUTCOMES = {"stable": Style.GOOD, "empty": Style.FAINT, "superseded": Style.BUSY, "failed": Style.BAD}


def show_rebalance(terminal: Terminal, record: RebalanceRecord) -> None:
    """One rebalance; `LEGEND` explains its timelines."""
    evidence = record.value
    names = _names(evidence)
    outcome = printable(evidence["outcome"])
    facts = [
        terminal.paint(
            f"{printable(record.group)}  generation {evidence['previous_generation']} → {evidence['generation']}",
            Style.NAME,
        ),
        terminal.paint(outcome, _OUTCOMES.get(outcome, Style.PLAIN)),
        f"{instant(record.started_at_ms)} UTC",
        f"took {duration(evidence['duration_ms'])}",
    ]
    terminal.line("  ".join(facts))
    for at, cause in enumerate(evidence["causes"][:CAUSES_SHOWN]):
        terminal.line(f"  {'why' if at == 0 else '   '}    {_cause(cause, names, record.started_at_ms)}")
    more = max(evidence["cause_count"], len(evidence["causes"])) - CAUSES_SHOWN
    if more > 0:
        terminal.line(f"         and {count(more, 'more cause')}")
    terminal.line(f"  how    {_course(evidence, names)}")
    _show_moves(terminal, evidence, names)
    gone = [
        f"{printable(names[each['member_id']])} ({printable(str(each.get('cause'))).replace('_', ' ')})"
        for each in evidence["removed"]
    ]
    if gone:
        terminal.line(f"  gone   {', '.join(gone[:CAUSES_SHOWN])}{'' if len(gone) <= CAUSES_SHOWN else ', …'}")
    if evidence["members"]:
        _show_members(terminal, record, names)


def rebalance_line(record: RebalanceRecord) -> str:
    """A rebalance in one line: what led to it, what it led to, and its cost."""
    evidence = record.value
    causes = [_cause(each, _names(evidence), record.started_at_ms) for each in evidence["causes"][:1]]
    more = max(evidence["cause_count"], len(evidence["causes"])) - 1
    facts = [
        *causes,
        *([count(more, "more cause")] if more > 0 else []),
        f"longest pause {duration(record.longest_pause_ms)}",
        f"{count(evidence['moved_count'], 'partition')} changed hands",
        f"generation {evidence['generation']} {printable(evidence['outcome'])}",
    ]
    return f"{printable(record.group)}: {', '.join(facts)}"


def _names(evidence: Mapping[str, Any]) -> dict[str, str]:
    """Short names by member id: those of the clients, with the end of the member id where several share one."""
    people = {each["member_id"]: each for each in (*evidence["causes"], *evidence["removed"], *evidence["members"])}
    names = {
        member_id: str(each.get("group_instance_id") or each.get("client_id") or member_id)
        for member_id, each in people.items()
    }
    # A static member that is replaced has one name and two member ids.
    return distinct_names(names, [member_id for member_id, each in people.items() if each.get("group_instance_id")])


def _cause(cause: Mapping[str, Any], names: Mapping[str, str], started_at_ms: int) -> str:
    name, host = names.get(cause["member_id"], "") if cause["member_id"] else "", _host(cause)
    text = printable(cause_in_words(cause, f"{name} ({host})" if name and host else name))
    at_ms = cause.get("at_ms")
    later = f", {duration(at_ms - started_at_ms)} later" if isinstance(at_ms, int) and at_ms > started_at_ms else ""
    detail = cause.get("detail")
    reason = f": {printable(str(detail))}" if detail else ""
    return f"{text}{later}{reason}"


def _course(evidence: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """How it went: by which assignor, when the join and the assignment were complete."""
    facts = [count(evidence["member_count"], "member")]
    if evidence.get("assignor"):
        facts.append(evidence["assignor"])
    if evidence.get("leader"):
        facts.append(f"led by {names.get(evidence['leader'], evidence['leader'])}")
    for name, what in (("joined_at_ms", "all joined after"), ("stable_at_ms", "assigned after")):
        if evidence.get(name) is not None:
            facts.append(f"{what} {duration(evidence[name] - evidence['started_at_ms'])}")
    return ", ".join(printable(each) for each in facts)


def _show_moves(terminal: Terminal, evidence: Mapping[str, Any], names: Mapping[str, str]) -> None:
    if evidence["outcome"] != "stable":
        return
    moves = sorted(evidence["moved"], key=_move_key)
    taken = sum(each.get("from") is None for each in moves)
    released = sum(each.get("to") is None for each in moves)
    facts = [f"{evidence['kept_count']:,} stayed", f"{evidence['moved_count']:,} changed hands"]
    facts += [f"{released:,} were released"] if released else []
    facts += [f"{taken:,} found an owner"] if taken else []
    terminal.line(f"  moved  of the partitions {', '.join(facts)}")
    grouped = [(key, [each["partition"] for each in same]) for key, same in groupby(moves, _move_key)]
    rows = [
        (topic, ranges(partitions, MOST_RANGES), _owner(before, names), "→", _owner(after, names))
        for (before, after, topic), partitions in grouped[:MOVES_SHOWN]
    ]
    for line in _aligned(rows):
        terminal.line(f"         {line}")
    if len(grouped) > MOVES_SHOWN:
        terminal.line(f"         and {count(len(grouped) - MOVES_SHOWN, 'more move')} (--json has all)")


def _move_key(move: Mapping[str, Any]) -> tuple[str, str, str]:
    return move.get("from") or "", move.get("to") or "", move["topic"]


def _owner(member_id: str, names: Mapping[str, str]) -> str:
    return names.get(member_id, member_id) if member_id else "no owner"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _show_members(terminal: Terminal, record: RebalanceRecord, names: Mapping[str, str]) -> None:
    evidence = record.value
    members = sorted(evidence["members"], key=lambda each: (-(each.get("pause_ms") or 0), names[each["member_id"]]))
    terminal.table(_member_columns(record, names), members[:MEMBERS_SHOWN])
    if len(members) > MEMBERS_SHOWN:
        rest = count(len(members) - MEMBERS_SHOWN, "more member")
        terminal.line(f"  and {rest}, none of which paused longer (--json has all)")


def _member_columns(record: RebalanceRecord, names: Mapping[str, str]) -> Sequence[Column[Mapping[str, Any]]]:
    span_ms = max(1, record.value["duration_ms"])
    counts = {"HAD": "before", "KEPT": "kept", "GAINED": "gained", "GAVE UP": "given_up", "HAS": "after"}
    return (
        Column("MEMBER", lambda each: names[each["member_id"]], may_shrink=True),
        Column("HOST", _host, may_shrink=True),
        numbers("PAUSE", _pause),
        *(numbers(heading, partial(_count, f"partitions_{name}")) for heading, name in counts.items()),
        Column("TIMELINE", lambda each: _timeline(each, record.started_at_ms, span_ms)),
    )


def _pause(member: Mapping[str, Any]) -> Cell:
    pause_ms = member.get("pause_ms")
    return Cell(duration(pause_ms), Style.BUSY if pause_ms else Style.PLAIN)


def _count(name: str, member: Mapping[str, Any]) -> int | None:
    return member.get(name)


def _timeline(member: Mapping[str, Any], started_at_ms: int, span_ms: int) -> str:
    """Draw the member's waits, from the beginning of the rebalance to its end."""
    line = [FREE] * TIMELINE_WIDTH
    for name, mark in _STEPS:
        at_ms = member.get(name)
        if at_ms is not None:
            place = min(max((at_ms - started_at_ms) * TIMELINE_WIDTH // span_ms, 0), TIMELINE_WIDTH - 1)
            # A wait shorter than one mark is shown, too.
            start = place + 1 if mark is FREE else place
            line[start:] = [mark] * (TIMELINE_WIDTH - start)
    return "".join(line)


_STEPS = (
    ("told_at_ms", WAITS_TO_JOIN),
    ("joined_at_ms", WAITS_FOR_OTHERS),
    ("synced_at_ms", WAITS_FOR_ASSIGNMENT),
    ("answered_at_ms", FREE),
)


def _host(each: Mapping[str, Any]) -> str:
    return str(each.get("client_host") or "").removeprefix("/")
