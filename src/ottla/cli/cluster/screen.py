"""How a cluster on this machine is shown while it runs: one screen on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class ShownBroker:
    """A broker: `state` is "running" or how it ended; the figures are None while nothing is known."""

    broker: int
    address: str
    pid: int
    state: str
    is_controller: bool = False
    leads: int | None = None
    replicas: int | None = None
    in_sync: int | None = None


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """The state of the cluster; `health` is in Kafka's words, empty while the cluster could not be asked."""

    brokers: tuple[ShownBroker, ...] = ()
    topics: int = 0
    partitions: int = 0
    health: str = ""

    @property
    def controller(self) -> int | None:
        """The id of the controller, None where there is none, or none is known."""
        return next((each.broker for each in self.brokers if each.is_controller), None)

    @property
    def summary(self) -> str:
        """The cluster in one line."""
        if not self.health:
            return "no broker answers"
        controller = "no controller" if self.controller is None else f"controller {self.controller}"
        return f"{controller}, {self.topics:,} topics, {self.partitions:,} partitions: {self.health}"


class PlainClusterScreen:
    """Lines with the seconds since the start; a line of state only where something has changed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return

    def say(self, text: str) -> None:
        """Write a line."""
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)

    def show(self, cluster: ShownCluster) -> None:
        """Write the summary, if it is another one than before."""
        if cluster.summary != self._shown:
            self._shown = cluster.summary
            self.say(cluster.summary)


class RichClusterScreen:
    """A table that is kept up to date at the bottom of the terminal, and lines that scroll above it."""

    def __init__(self, footer: Sequence[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._footer = list(footer)
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Write a line above the table."""
        from rich.text import Text

        # Not by markup=False, which would hold for the table, too: it is drawn again below the line.
        self._console.print(Text(text))

    def show(self, cluster: ShownCluster) -> None:
        """Redraw the table."""
        self._live.update(self.table(cluster), refresh=True)

    def table(self, cluster: ShownCluster) -> Table:
        """The state as a table."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(cluster.summary), caption=escape("\n".join(self._footer)), title_justify="left")
        table.caption_justify = "left"
        for heading in ("broker", "address", "process", "state", "leads", "in sync"):
            table.add_column(heading, no_wrap=heading != "state")
        for each in cluster.brokers:
            is_running = each.state == "running"
            state = "[green]running[/]" if is_running else f"[bold red]{escape(each.state)}[/]"
            state += ", controller" if is_running and each.is_controller else ""
            known = each.leads is not None
            table.add_row(
                str(each.broker),
                escape(each.address),
                str(each.pid),
                state,
                str(each.leads) if known else "-",
                f"{each.in_sync} of {each.replicas}" if known else "-",
            )
        return table


ClusterScreen = PlainClusterScreen | RichClusterScreen


def make_cluster_screen(footer: Sequence[str]) -> ClusterScreen:
    """One screen where standard output is a terminal and rich is installed, else lines."""
    if sys.stdout.isatty() and find_spec("rich") is not None:
        return RichClusterScreen(footer)
    return PlainClusterScreen()
