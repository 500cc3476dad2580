"""How the demo is shown while it runs: progress bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ottla.demo.screen import Screen

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_INTERVAL_S = 3.0


def make_screen() -> Screen:
    """Bars where standard output is a terminal, else lines."""
    return RichScreen() if sys.stdout.isatty() else PlainScreen()


class RichScreen:
    """Bars at the bottom of the terminal, and lines that scroll above them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def say(self, text: str, *, strong: bool = False) -> None:
        """Write a line above the bars."""
        from rich.text import Text

        # Not by markup=False, which would hold for the bars, too: they are drawn again below the line.
        self._console.print(Text(text, style="bold" if strong else ""))

    def progress(self, name: str, done: int, total: int) -> None:
        """Move a bar, or add it."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)

    def table(self, title: str, rows: Iterable[tuple[str, str, str]]) -> None:
        """A table with coloured marks."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
        colours = {"ok": "[green]ok[/]", "FAILED": "[bold red]FAILED[/]"}
        for mark, name, detail in rows:
            table.add_row(colours.get(mark, escape(mark)), escape(name), escape(detail))
        self._console.print(table)


class PlainScreen:
    """Lines with the seconds since the start; progress at most every few seconds."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._progress: dict[str, tuple[int, int]] = {}
        self._shown: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._show_progress()

    def say(self, text: str, *, strong: bool = False) -> None:
        """Write a line."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def progress(self, name: str, done: int, total: int) -> None:
        """Remember it, and write a line when the last one is old enough."""
        finished = done >= total and self._progress.get(name) != (done, total)
        self._progress[name] = (done, total)
        if finished or time.monotonic() - self._shown_at >= PLAIN_INTERVAL_S:
            self._show_progress()

    def table(self, title: str, rows: Iterable[tuple[str, str, str]]) -> None:
        """One line per row."""
        print(title)
        for mark, name, detail in rows:
            print(f"  {mark:<6}  {name}: {detail}" if mark else f"  {name}: {detail}", flush=True)

    def _show_progress(self) -> None:
        if self._progress != self._shown:
            self.say("   ".join(f"{name} {done:,}/{total:,}" for name, (done, total) in self._progress.items()))
        self._shown = dict(self._progress)
        self._shown_at = time.monotonic()
