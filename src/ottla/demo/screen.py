"""The demo's output while it runs: the command line shows it."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self


class Screen(Protocol):
    """The demo's output: lines that stay, and the progress of named tasks."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def say(self, text: str, *, strong: bool = False) -> None:
        """Write a line that stays."""

    def progress(self, name: str, done: int, total: int) -> None:
        """Show how far a task is."""

    def table(self, title: str, rows: Iterable[tuple[str, str, str]]) -> None:
        """Write rows of (mark, name, detail); the mark is ok, FAILED or empty."""
