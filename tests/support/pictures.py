"""SVG pictures of docs/pictures: terminals as commands draw them, and drawings of the tour's tables and runs."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

CHARACTER: Final = 8.4
LINE: Final = 18
MARGIN: Final = 14
#: As terminals show the eight colours on a dark ground.
COLOURS: Final = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341", 7: "#c9d1d9"}
GROUND, TEXT, FAINT = "#161b22", "#e6edf3", "#8b949e"
MONOSPACE: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
SANS: Final = "system-ui, Helvetica, Arial, DejaVu Sans, sans-serif"

#: Drawings have a light ground of their own, so that dark pages show them as light ones do.
PAPER, INK, EDGE, GREEN, AMBER, GREY, BLUE = (
    "#ffffff",
    "#1f2328",
    "#59636e",
    "#d3f5da",
    "#fff0c2",
    "#e6eaef",
    "#dbeafe",
)
RED: Final = "#b42318"


def terminal_picture(command: str, shown: Text | str) -> str:
    """The command and what it shows, coloured as in a terminal."""
    text = Text.from_ansi(shown) if isinstance(shown, str) else shown
    lines = [Text.assemble(("$ ", "dim"), (command, "bold")), *text.split("\n", allow_blank=True)]
    while not lines[-1].plain.strip():
        lines.pop()
    width = max(len(each.plain.rstrip()) for each in lines)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=width + 1)
    rows = (
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (at + 0.75):g}" xml:space="preserve">{_spans(line, console)}</text>'
        for at, line in enumerate(lines)
        if line.plain.strip()
    )
    ground = f'<rect width="100%" height="100%" rx="8" fill="{GROUND}" stroke="#6e7681"/>'
    style = f'font-family="{MONOSPACE}" font-size="14" fill="{TEXT}"'
    return svg(round(width * CHARACTER) + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN, style, [ground, *rows])


def _spans(line: Text, console: Console) -> str:
    """The line in pieces of one style. Each has its place, since fonts differ in the width of arrows and blocks."""
    found, column = [], 0
    for segment in Segment.simplify(line.render(console)):
        for word in re.finditer(r"\S+(?: \S+)*", segment.text):
            looks = f'x="{MARGIN + (column + word.start()) * CHARACTER:.5g}"'
            looks += f' textLength="{len(word[0]) * CHARACTER:.5g}"'
            if (style := segment.style) is not None:
                colour = FAINT if style.dim else COLOURS.get(style.color.number or 0) if style.color else None
                looks += f' fill="{colour}"' if colour else ""
                looks += ' font-weight="bold"' if style.bold else ""
            found.append(f"<tspan {looks}>{escape(word[0], quote=False)}</tspan>")
        column += len(segment.text)
    return "".join(found)


def svg(width: int, height: int, style: str, parts: Iterable[str]) -> str:
    """A picture of these parts."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join((f"{head} {style}>", *parts, "</svg>")) + "\n"


def drawing(width: int, height: int, parts: Iterable[str]) -> str:
    """A drawing on paper."""
    arrow = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{EDGE}"/></marker></defs>'
    )
    paper = f'<rect width="100%" height="100%" rx="8" fill="{PAPER}" stroke="#afb8c1"/>'
    return svg(width, height, f'font-family="{SANS}" font-size="13" fill="{INK}"', [arrow, paper, *parts])


def words(x: float, y: float, text: str, *, anchor: str = "start", more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(text, quote=False)}</text>'


def lines(x: float, y: float, texts: Sequence[str], *, anchor: str = "middle", more: str = "") -> Iterator[str]:
    """Lines of text, the first at `y`."""
    for at, text in enumerate(texts):
        yield words(x, y + 16 * at, text, anchor=anchor, more=more)


def box(x: float, y: float, width: float, height: float, fill: str = PAPER) -> str:
    """A box with its edge."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}" stroke="{EDGE}"/>'


def path(way: str, *, colour: str = EDGE, dashed: bool = False, arrow: bool = True) -> str:
    """A line, with an arrow at its end."""
    looks = ' stroke-dasharray="5 4"' if dashed else ""
    looks += ' marker-end="url(#to)"' if arrow else ""
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.5"{looks}/>'
