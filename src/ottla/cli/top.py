"""`ottla top`: brokers, topics and groups of any Kafka cluster, with their rates, live."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import Command
from ottla.cli.options import ClusterOptions, checked_seconds

if TYPE_CHECKING:
    from ottla.ops.cluster_look import ClusterLooks
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla top")
NO_SCREEN = ("dumb", "unknown")
"""Values of TERM of terminals that only write lines."""


def top(
    shared: ClusterOptions,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, print the tables, and end; also done outside a terminal.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", help="Seconds between two looks.", min=0.1, callback=checked_seconds)
    ] = 2.0,
) -> None:
    """Show brokers, topics and groups live.

    Records in a second, lag and its trend, and rebalances with their cause, in the terminal.

    Keys: 1, 2, 3 or Tab for brokers, topics and groups, s for another order, q or Ctrl-C to end. With --json an object
    for each look.
    """
    from ottla.ops.cluster_look import ClusterLooks

    async def work(cluster: Cluster) -> int:
        looks = ClusterLooks(cluster)
        if once or not (shared.as_json or has_screen()):
            return await _show_once(looks, interval_s, as_json=shared.as_json)
        if shared.as_json:
            return await _write_each(looks, interval_s)
        from ottla.cli.top_screen import watch

        return await watch(looks, interval_s)

    COMMAND.run_with_cluster(shared, work, until_closed=True)


def has_screen() -> bool:
    """Whether standard output is a terminal that can show a screen."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in NO_SCREEN


async def _show_once(looks: ClusterLooks, interval_s: float, *, as_json: bool) -> int:
    from ottla.cli.terminal import Terminal, write_json
    from ottla.cli.top_views import rates_row, show_all

    await looks.next()
    await asyncio.sleep(interval_s)
    rates = await looks.next()
    if as_json:
        write_json(rates_row(rates))
    else:
        show_all(Terminal.standard_output(), rates)
    return 0


async def _write_each(looks: ClusterLooks, interval_s: float) -> int:
    """An object for each look, the first one without rates. Later looks that fail are reported once in a row."""
    from ottla.cli.terminal import write_json
    from ottla.cli.top_views import rates_row
    from ottla.client.errors import ClientError

    write_json(rates_row(await looks.next()))
    is_lost = False
    while True:
        await asyncio.sleep(interval_s)
        try:
            write_json(rates_row(await looks.next()))
        except ClientError as problem:
            if not is_lost:
                COMMAND.report(f"{problem}; trying again")
            is_lost = True
        else:
            is_lost = False
