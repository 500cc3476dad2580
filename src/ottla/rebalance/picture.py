"""The picture of a simulation, as SVG: for each assignor the members before and after, each square a partition.

A square has the colour of the member that owned it before, so that what moved is seen as a strange colour in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ottla.assign.consumer_protocol import Partitions
from ottla.assign.simulation import Outcome, Owners, owners

MOST_SQUARES = 20_000
"""Partitions of all panels together; more are not drawn."""

COLOURS = ("#2f6fb0", "#e07b39", "#3a9a6b", "#8a5fb0", "#c44d58", "#b59a2b", "#4aa3b5", "#a0608a", "#6b7a86", "#7a9a3a")
INK, FAINT, _NEW = "#22303c", "#5b6975", "#ffffff"
_SQUARE, _GAP, _PER_LINE = 11, 2, 32
_STEP = _SQUARE + _GAP
_LABEL, _MARGIN, _ROW_GAP = 190, 18, 8
_COLUMN = _LABEL + _PER_LINE * _STEP + 28
_HEAD = 46

Row = tuple[str, list[tuple[str, int]], bool]
"""A member: its name, its partitions in order, whether it is there at all."""


class PictureTooLarge(Exception):
    """There are more squares than a picture can show."""


def draw(outcomes: Sequence[Outcome]) -> str:
    """The whole picture. Raises TooLarge."""
    squares = sum(len(owners(one.before)) + len(owners(one.after)) for one in outcomes)
    if squares > MOST_SQUARES:
        raise PictureTooLarge(f"a picture of {squares:,} squares would be too large ({MOST_SQUARES:,} at most)")
    names = list(dict.fromkeys(name for one in outcomes for name in (*one.before, *one.after)))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    panels, top = [], _MARGIN
    for outcome in outcomes:
        panel, height = _panel(outcome, names, colours, top)
        panels += panel
        top += height
    width, height = 2 * _COLUMN + 2 * _MARGIN, top + 24
    legend = "square: a partition, in the colour of the member that owned it before; white: none"
    return svg(width, height, [*panels, f'<text x="{_MARGIN}" y="{height - 12}" fill="{FAINT}">{legend}</text>'])


def svg(width: int, height: int, elements: Sequence[str]) -> str:
    """A picture of this size with these elements, on white."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="{INK}">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *elements,
            "</svg>",
            "",
        ]
    )


def _panel(outcome: Outcome, names: list[str], colours: Mapping[str, str], top: int) -> tuple[list[str], int]:
    old = owners(outcome.before)
    summary = f"{outcome.kept} kept, {outcome.moved} moved, {outcome.taken_over} taken over, {outcome.paused} paused"
    rebalances = "1 rebalance" if len(outcome.rounds) == 1 else f"{len(outcome.rounds)} rebalances"
    lines = [
        f'<text x="{_MARGIN}" y="{top + 14}" font-size="15" font-weight="bold">{escape(outcome.assignor)}</text>',
        f'<text x="{_MARGIN + _LABEL}" y="{top + 14}" fill="{FAINT}">before</text>',
        f'<text x="{_MARGIN + _COLUMN + _LABEL}" y="{top + 14}" fill="{FAINT}">after {rebalances}: {summary}</text>',
    ]
    y = top + _HEAD - 20
    for name in names:
        before, after = _row(name, outcome.before), _row(name, outcome.after)
        lines += _squares(before, _MARGIN, y, colours, old)
        lines += _squares(after, _MARGIN + _COLUMN, y, colours, old)
        y += max(_height(before), _height(after)) + _ROW_GAP
    return lines, y - top + 20


def _row(name: str, assigned: Mapping[str, Partitions]) -> Row:
    pairs = [(topic, index) for topic, indexes in sorted(assigned.get(name, {}).items()) for index in sorted(indexes)]
    return name, pairs, name in assigned


def _height(row: Row) -> int:
    return max(1, -(-len(row[1]) // _PER_LINE)) * _STEP


def _squares(row: Row, x: int, y: int, colours: Mapping[str, str], old: Owners) -> Iterator[str]:
    name, pairs, is_there = row
    shown = name if len(name) <= 26 else f"{name[:12]}…{name[-13:]}"
    if not is_there:
        yield f'<text x="{x}" y="{y + 10}" fill="{FAINT}">{escape(shown)} –</text>'
        return
    yield f'<rect x="{x}" y="{y}" width="4" height="{_SQUARE}" fill="{colours[name]}"/>'
    yield f'<text x="{x + 9}" y="{y + 10}">{escape(shown)}</text>'
    for at, pair in enumerate(pairs):
        left, upper = x + _LABEL + at % _PER_LINE * _STEP, y + at // _PER_LINE * _STEP
        owner = old.get(pair)
        fill = _NEW if owner is None else colours[owner]
        title = f"{pair[0]}-{pair[1]}" + (f", from {owner}" if owner not in (None, name) else "")
        yield (
            f'<rect x="{left}" y="{upper}" width="{_SQUARE}" height="{_SQUARE}" fill="{fill}" '
            f'stroke="{FAINT}" stroke-width="{0.5 if owner == name else 1.2}"><title>{escape(title)}</title></rect>'
        )
