"""The picture of a comparison, as SVG: for each design a strip with a line per partition, from left to right in time.

A line has the colour of the member that reads the partition; it is white while none does, and black while two do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ottla.rebalance.designs.churn_script import ChurnScript
from ottla.rebalance.designs.consumption import Reading
from ottla.rebalance.designs.results import DesignResult
from ottla.rebalance.picture import COLOURS, FAINT, PictureTooLarge, svg

MOST_READINGS = 50_000
"""Pieces of lines of all strips together; more are not drawn."""

_WIDTH, _LINE, _MARGIN, _LABELS, _HEAD = 1400, 5, 18, 22, 26
_SHORT = {"start": "+", "leave": "−", "die": "✗", "freeze": "‖", "cut": "⚡", "grow": "▤", "broker": "B"}
_LEGEND = (
    "each line is a partition, its colour the member that reads it; white: none, black: two at once.  "
    "+ a member comes  − leaves  ✗ dies  ‖ stands still  ⚡ is cut off  ▤ more partitions  B a broker goes"
)


def draw_timeline(script: ChurnScript, results: Sequence[DesignResult]) -> str:
    """The whole picture. Raises PictureTooLarge."""
    pieces = sum(len(result.readings) for result in results)
    if pieces > MOST_READINGS:
        raise PictureTooLarge(f"a picture of {pieces:,} pieces would be too large ({MOST_READINGS:,} at most)")
    names = list(dict.fromkeys([*script.members, *(turn.member for turn in script.turns if turn.member)]))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    scale = _WIDTH / (script.end_ms - script.begin_ms)
    lines: list[str] = []
    top = _MARGIN
    for result in results:
        partitions = 1 + max((reading.partition for reading in result.readings), default=0)
        height = partitions * _LINE
        lines.append(
            f'<text x="{_MARGIN}" y="{top + 14}" font-size="15" font-weight="bold">{escape(result.design)}</text>'
        )
        top += _HEAD
        lines += _turns(script, scale, top, height)
        lines += _readings(result.readings, script, scale, top, colours)
        top += height + _LABELS + 14
    height = top + 20
    lines.append(f'<text x="{_MARGIN}" y="{height - 10}" fill="{FAINT}">{_LEGEND}</text>')
    return svg(_WIDTH + 2 * _MARGIN, height, lines)


def _turns(script: ChurnScript, scale: float, top: int, height: int) -> Iterator[str]:
    for turn in script.turns:
        x, bottom = _MARGIN + (turn.at_ms - script.begin_ms) * scale, top + height
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom + 4}" stroke="{FAINT}" stroke-width="0.6"/>'
        yield (
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="{FAINT}">'
            f"{_SHORT[turn.action]}<title>{escape(str(turn))}</title></text>"
        )


def _readings(
    readings: Sequence[Reading], script: ChurnScript, scale: float, top: int, colours: dict[str, str]
) -> Iterator[str]:
    seen = [reading for reading in readings if reading.to_ms > script.begin_ms]
    for reading in seen:
        yield _piece(reading.partition, reading.from_ms, reading.to_ms, script, scale, top, colours[reading.member])
    for partition, from_ms, to_ms in _doubled(seen):
        if to_ms > script.begin_ms:
            yield _piece(partition, from_ms, to_ms, script, scale, top, "#000000")


def _piece(partition: int, from_ms: int, to_ms: int, script: ChurnScript, scale: float, top: int, colour: str) -> str:
    left = (max(from_ms, script.begin_ms) - script.begin_ms) * scale
    width = (to_ms - script.begin_ms) * scale - left
    return (
        f'<rect x="{_MARGIN + left:.1f}" y="{top + partition * _LINE}" width="{max(width, 0.4):.1f}" '
        f'height="{_LINE - 1}" fill="{colour}"/>'
    )


def _doubled(readings: Sequence[Reading]) -> Iterator[tuple[int, int, int]]:
    """Partition, from and to where two readings of a partition lie over each other."""
    until: dict[int, int] = {}
    for reading in sorted(readings, key=lambda one: (one.partition, one.from_ms)):
        end_ms = until.get(reading.partition, 0)
        if reading.from_ms < end_ms:
            yield reading.partition, reading.from_ms, min(end_ms, reading.to_ms)
        until[reading.partition] = max(end_ms, reading.to_ms)
