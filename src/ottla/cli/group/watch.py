"""Groups followed live: their states as they change, and each rebalance when its evidence is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.group.views import state_style
from ottla.cli.group.why import LEGEND, show_rebalance
from ottla.cli.log.output import instant
from ottla.cli.terminal import Style, Terminal, count, printable
from ottla.client.errors import ClientError
from ottla.client.groups import DEAD, GroupDescription, Groups
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.ops.rebalances import RebalanceLog, RebalanceRecord
from ottla.peer.cluster import Cluster


class TextWatcher:
    """Writes lines for people."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        terminal.line(terminal.paint(LEGEND, Style.HEADING))

    def state(self, group: GroupDescription, before: str | None, at_ms: int) -> None:
        """One line."""
        paint = self._terminal.paint
        was = "" if before is None else f"{before} → "
        self._terminal.line(
            f"{instant(at_ms)} UTC  {paint(printable(group.group_id), Style.NAME)}  {was}"
            f"{paint(group.state, state_style(group.state))}, {count(len(group.members), 'member')}"
        )

    def rebalance(self, record: RebalanceRecord) -> None:
        """The rebalance with its timeline."""
        self._terminal.line()
        show_rebalance(self._terminal, record)
        self._terminal.line()


class JsonWatcher:
    """Writes an object for each event; `event` says which kind it is."""

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        self._write = write

    def state(self, group: GroupDescription, before: str | None, at_ms: int) -> None:
        """`{"event": "state", …}`."""
        members = len(group.members)
        self._write(
            {
                "event": "state",
                "group": group.group_id,
                "at_ms": at_ms,
                "before": before,
                "state": group.state,
                "member_count": members,
            }
        )

    def rebalance(self, record: RebalanceRecord) -> None:
        """`{"event": "rebalance", …}` with all fields of the evidence."""
        self._write({"event": "rebalance", **record.value})


GroupWatcher = TextWatcher | JsonWatcher


async def follow(
    cluster: Cluster,
    group_ids: Sequence[str],
    watcher: GroupWatcher,
    interval_s: float,
    most_rebalances: int | None,
    report: Callable[[str], int],
) -> int:
    """Watch these groups (all for none) until `most_rebalances` were reported, else until cancelled.

    ClientError where the cluster cannot be asked at the start; later it is waited for.
    """
    log, states = RebalanceLog(cluster), dict[str, GroupDescription]()
    await log.skip_to_end()
    if not await log.is_there():
        report(
            f"there is no topic {EVIDENCE_TOPIC} (yet): ottla makes it with the first rebalance, Apache Kafka never "
            "does; only changes of state are reported until then"
        )
    await _report_states(cluster, group_ids, states, watcher)
    shown, is_lost = 0, False
    while True:
        await asyncio.sleep(interval_s)
        try:
            fresh = [each for each in await log.follow() if not group_ids or each.group in group_ids]
            for record in fresh:
                watcher.rebalance(record)
                shown += 1
                if shown == most_rebalances:
                    return 0
            await _report_states(cluster, group_ids, states, watcher)
        except ClientError as problem:
            if not is_lost:
                report(f"{problem}; trying again")
            is_lost = True
        else:
            is_lost = False


async def _report_states(
    cluster: Cluster, group_ids: Sequence[str], states: dict[str, GroupDescription], watcher: GroupWatcher
) -> None:
    groups = Groups(cluster)
    found: Iterable[GroupDescription] = await (groups.describe_each(group_ids) if group_ids else groups.list_all())
    now = {group.group_id: group for group in found}
    at_ms = cluster.clock.now_ms()
    for name, group in now.items():
        before = states[name].state if name in states else None
        if group.state != before:
            watcher.state(group, before, at_ms)
    for name in states.keys() - now.keys():
        gone = states.pop(name)
        watcher.state(GroupDescription(name, DEAD, gone.protocol_type, "", gone.coordinator, ()), gone.state, at_ms)
    states |= now
