"""`ottla top` in a terminal: one screen, drawn again at each look and each key."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ottla.cli.terminal import Style, Terminal, printable
from ottla.cli.top_views import PANELS, events, summary
from ottla.client.errors import ClientError
from ottla.ops.cluster_look import ClusterLooks
from ottla.ops.cluster_view import ClusterRates

EVENT_LINES = 6
"""The last rebalances, at the foot of the screen."""
LINES_AROUND = 5
"""Of the screen: head, keys, an empty line, the headings of the table, and an empty line below it."""
END = "q"
MOST_KEYS = 64
"""Bytes that are read at once from the keyboard."""
_SEQUENCE = re.compile(r"\x1b(?:[\[O][0-9;]*.?)?")
"""An arrow, a function key."""


class TopScreen:
    """The screen: which table it shows, and in which order."""

    def __init__(self, rates: ClusterRates, console: Console) -> None:
        self._console = console
        self._rates = rates
        self._events: deque[str] = deque(maxlen=EVENT_LINES)
        self._problem = ""
        self._panel = 0
        self._orders = [0] * len(PANELS)

    def update(self, rates: ClusterRates) -> None:
        """Take another look over."""
        self._rates, self._problem = rates, ""
        self._events.extend(events(rates))

    def fail(self, problem: str) -> None:
        """Show why another look failed; the last one stays."""
        self._problem = printable(problem)

    def press(self, key: str) -> None:
        """A key: another table, or another order."""
        if key == "\t":
            self._panel = (self._panel + 1) % len(PANELS)
        elif key in ("1", "2", "3"):
            self._panel = int(key) - 1
        elif key == "s":
            self._orders[self._panel] = (self._orders[self._panel] + 1) % len(PANELS[self._panel].orders)

    def draw(self) -> Text:
        """The screen as it is now, in lines that the window cuts."""
        stream = io.StringIO()
        terminal = Terminal(
            stream,
            width=self._console.width,
            colours=self._console.color_system is not None and not self._console.no_color,
        )
        panel, order = PANELS[self._panel], self._orders[self._panel]
        problem = terminal.paint(f"{self._problem}; trying again", Style.BAD) if self._problem else ""
        terminal.line(problem or summary(self._rates, terminal))
        names = [
            terminal.paint(f"[{at} {each.name}]", Style.NAME) if each is panel else f" {at} {each.name} "
            for at, each in enumerate(PANELS, 1)
        ]
        terminal.line(f"{' '.join(names)}   s: by {list(panel.orders)[order]}   q: quit")
        terminal.line()
        panel.show(terminal, self._rates, max(self._console.height - LINES_AROUND - len(self._events), 1), order)
        if self._events:
            terminal.line()
            for each in self._events:
                terminal.line(each)
        return Text.from_ansi(stream.getvalue(), no_wrap=True, overflow="crop")


async def watch(looks: ClusterLooks, interval_s: float) -> int:
    """Show looks until q is pressed, or SIGTERM or SIGHUP comes. Raises ClientError where the first look fails."""
    screen = TopScreen(await looks.next(), console := Console(highlight=False))
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    with Live(console=console, screen=True, auto_refresh=False) as live:

        def redraw() -> None:
            live.update(screen.draw(), refresh=True)

        def pressed(keys: str) -> None:
            for key in keys:
                screen.press(key)
            redraw()
            if END in keys:
                end()

        async def look_on() -> None:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    screen.update(await looks.next())
                except ClientError as problem:
                    screen.fail(str(problem))
                redraw()

        with _keys_and_signals(loop, pressed, {"SIGTERM": end, "SIGHUP": end, "SIGWINCH": redraw}):
            redraw()
            looking = asyncio.create_task(look_on())
            try:
                await asyncio.wait((looking, ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                looking.cancel()
        if looking.done():
            looking.result()
    return 0


@contextmanager
def _keys_and_signals(
    loop: asyncio.AbstractEventLoop, pressed: Callable[[str], None], handlers: Mapping[str, Callable[[], None]]
) -> Iterator[None]:
    """Keys as they are pressed, where standard input is a terminal; END where it is closed. And these signals.

    Ctrl-Z does nothing: a shell would get the terminal as the screen has set it.
    """
    if sys.platform == "win32":  # Ctrl-C ends it there
        yield
        return
    import termios
    import tty

    def read(keyboard: int) -> None:
        keys = os.read(keyboard, MOST_KEYS).decode(errors="replace")
        pressed(_SEQUENCE.sub("", keys) if keys else END)

    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = None if keyboard is None else termios.tcgetattr(keyboard)
    for name, handler in handlers.items():
        loop.add_signal_handler(getattr(signal, name), handler)
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
            modes = termios.tcgetattr(keyboard)
            modes[6][termios.VSUSP] = os.fpathconf(keyboard, "PC_VDISABLE").to_bytes()
            termios.tcsetattr(keyboard, termios.TCSANOW, modes)
            loop.add_reader(keyboard, read, keyboard)
        yield
    finally:
        for name in handlers:
            loop.remove_signal_handler(getattr(signal, name))
        if keyboard is not None and before is not None:
            loop.remove_reader(keyboard)
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
