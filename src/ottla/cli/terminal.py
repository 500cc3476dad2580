"""Text output: aligned columns that fit the window, colours on a terminal, JSON lines.

Only a terminal gets colours and shortened cells. Piped output is complete and the same on every machine, with ASCII in
place of arrows and blocks where the encoding has none.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TextIO, TypeVar

if TYPE_CHECKING:
    from ottla.client.model import TopicPartition

NARROWEST_CELL = 8
NARROWEST_WINDOW = 60
THOUSAND = 1000
WINDOW_IF_UNKNOWN = (100, 24)
#: Characters that JSON leaves as they are and that a terminal obeys: DEL, controls of C1, marks of direction.
_OBEYED = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ASCII = str.maketrans("→█▒░…·–─■▣□", ">#+.~---#+o")


class Style(StrEnum):
    """How a text is shown, by its escape sequence (SGR)."""

    PLAIN = ""
    HEADING = "2"
    NAME = "1"
    GOOD = "32"
    BUSY = "33"
    BAD = "31"
    FAINT = "2;37"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text in a table and how it is shown."""

    text: str
    style: Style = Style.PLAIN


Row = TypeVar("Row", contravariant=True)
AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its heading, its value in a row, whether it is of numbers, and whether it may be shortened to fit.

    None is shown as "-".
    """

    heading: str
    value: Callable[[Row], str | int | Cell | None]
    is_number: bool = False
    may_shrink: bool = False


def numbers(heading: str, value: Callable[[AnyRow], str | int | Cell | None]) -> Column[AnyRow]:
    """A column of numbers, aligned at the right."""
    return Column(heading, value, is_number=True)


class OfPartition(Protocol):
    """A row about a partition."""

    @property
    def partition(self) -> TopicPartition:
        """The partition."""
        ...


TOPIC: Column[OfPartition] = Column("TOPIC", lambda row: row.partition.topic, may_shrink=True)
PARTITION: Column[OfPartition] = numbers("PARTITION", lambda row: row.partition.partition)


class Terminal:
    """An output for text. `width` is None where it is not shown in a window."""

    def __init__(self, stream: TextIO, *, width: int | None, colours: bool) -> None:
        self._stream = stream
        self.width = width
        self._colours = colours
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
        self._is_ascii = not encoding.startswith("utf")

    @classmethod
    def standard_output(cls) -> Terminal:
        """Standard output as it is now. NO_COLOR switches colours off."""
        if not sys.stdout.isatty():
            return cls(sys.stdout, width=None, colours=False)
        import shutil  # imported late: shutil imports the archivers, which would slow the start of a broker

        width = max(NARROWEST_WINDOW, shutil.get_terminal_size(WINDOW_IF_UNKNOWN).columns)
        return cls(sys.stdout, width=width, colours=not os.environ.get("NO_COLOR"))

    def paint(self, text: str, style: Style) -> str:
        """The text in its colour."""
        return f"\x1b[{style}m{text}\x1b[0m" if self._colours and style and text else text

    def line(self, text: str = "") -> None:
        """Write one line and flush it, so that a follower sees it at once."""
        self._write(text)
        self._stream.flush()

    def table(
        self, columns: Sequence[Column[AnyRow]], rows: Iterable[AnyRow], indent: str = "  ", *, headings: bool = True
    ) -> None:
        """Write rows under their headings; columns that are empty in every row are left out."""
        cells = [[_cell(column.value(row)) for column in columns] for row in rows]
        used = [at for at in range(len(columns)) if not cells or any(row[at].text not in ("", "-") for row in cells)]
        columns, cells = [columns[at] for at in used], [[row[at] for at in used] for row in cells]
        widths = [max(len(each.heading), *(len(row[at].text) for row in cells), 0) for at, each in enumerate(columns)]
        self._fit(columns, widths, len(indent))
        if headings:
            self._write(self._row([Cell(each.heading, Style.HEADING) for each in columns], columns, widths, indent))
        for row in cells:
            self._write(self._row(row, columns, widths, indent))
        self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write((text.translate(_ASCII) if self._is_ascii else text) + "\n")

    def _fit(self, columns: Sequence[Column[Any]], widths: list[int], indent: int) -> None:
        if self.width is None:
            return
        excess = sum(widths) + 2 * (len(widths) - 1) + indent - self.width
        while excess > 0:
            candidates = [at for at, each in enumerate(columns) if each.may_shrink and widths[at] > NARROWEST_CELL]
            if not candidates:
                return
            widths[max(candidates, key=lambda at: widths[at])] -= 1
            excess -= 1

    def _row(self, row: Sequence[Cell], columns: Sequence[Column[Any]], widths: Sequence[int], indent: str) -> str:
        shown = []
        for cell, column, width in zip(row, columns, widths, strict=True):
            text = shortened(cell.text, width)
            padding = " " * (width - len(text))
            painted = self.paint(text, cell.style)
            shown.append(padding + painted if column.is_number else painted + padding)
        return (indent + "  ".join(shown)).rstrip()


def attributes(row: object, *names: str) -> dict[str, Any]:
    """These attributes by their names, for JSON."""
    return {name: getattr(row, name) for name in names}


def json_line(row: Mapping[str, Any]) -> str:
    """The object as JSON in one line, with its newline."""
    text = json.dumps(row, ensure_ascii=False, separators=(", ", ": "))
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def write_json(*rows: Mapping[str, Any]) -> None:
    """Write each object as a line of JSON to standard output and flush it."""
    sys.stdout.writelines(map(json_line, rows))
    sys.stdout.flush()


def shortened(text: str, width: int) -> str:
    """The text in at most `width` characters; its end, which distinguishes members and topics, stays."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def printable(text: str) -> str:
    """Foreign text, with nothing in it that a terminal would obey."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def duration(ms: float | None) -> str:
    """A length of time as people say it, in at most eight characters; "-" where it is not known."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(int(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {seconds:02}s"


def data_size(size_bytes: int) -> str:
    """A number of bytes as people say it: "512 B", "1.5 MB"."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < THOUSAND or unit == "TB":
            break
        amount /= THOUSAND
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"


def count(number: int, noun: str) -> str:
    """A number of things: "1 member", "2,000 members"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _cell(value: str | int | Cell | None) -> Cell:
    cell = value if isinstance(value, Cell) else Cell("-" if value is None else str(value))
    return Cell(printable(cell.text), cell.style)
