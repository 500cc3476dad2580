"""The tables of `ottla top`, and its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from ottla.cli.group.views import state_style
from ottla.cli.group.why import rebalance_line
from ottla.cli.log.output import instant
from ottla.cli.terminal import (
    Cell,
    Column,
    Style,
    Terminal,
    attributes,
    count,
    data_size,
    duration,
    numbers,
    printable,
)
from ottla.ops.cluster_view import BrokerPresence, BrokerRates, ClusterRates, GroupRates, TopicRates

MOST_ROWS = 1_000
"""Rows of a table, and objects of a list in JSON."""
_TENTHS_BELOW = 10

Row = TypeVar("Row")


@dataclass(frozen=True)
class Panel(Generic[Row]):
    """A table: its rows, how many there are in all, and by what they may be sorted, the first one at the start."""

    name: str
    columns: Sequence[Column[Row]]
    rows: Callable[[ClusterRates], Sequence[Row]]
    total: Callable[[ClusterRates], int]
    orders: Mapping[str, Callable[[Row], Any]]

    def show(self, terminal: Terminal, rates: ClusterRates, most: int = MOST_ROWS, order: int = 0) -> None:
        """The table, with at most `most` lines under its headings."""
        rows = sorted(self.rows(rates), key=list(self.orders.values())[order])
        total = self.total(rates)
        shown = rows if total <= most else rows[: max(most - 1, 0)]
        terminal.table(self.columns, shown, indent="")
        if len(shown) < total:
            terminal.line(f"… {total - len(shown):,} more")


def _brokers() -> Panel[BrokerRates]:
    return Panel(
        "brokers",
        (
            numbers("BROKER", lambda each: Cell(str(each.node.node_id), Style.NAME)),
            Column(
                "ADDRESS", lambda each: f"{each.node.host}:{each.node.port}" if each.node.host else None, False, True
            ),
            numbers("LEADS", lambda each: each.leads),
            numbers("IN SYNC", lambda each: _in_sync(each)),
            numbers("RECORDS/S", lambda each: rate(each.records_per_s)),
            numbers("BYTES/S", lambda each: _size(each.bytes_per_s)),
            numbers("SIZE", lambda each: _size(each.size_bytes)),
            Column("NOTE", lambda each: _broker_note(each), may_shrink=True),
        ),
        lambda rates: rates.brokers,
        lambda rates: len(rates.brokers),
        {
            "id": lambda each: each.node.node_id,
            "records/s": lambda each: (-(each.records_per_s or 0), each.node.node_id),
            "size": lambda each: (-(each.size_bytes or 0), each.node.node_id),
        },
    )


def _topics() -> Panel[TopicRates]:
    return Panel(
        "topics",
        (
            Column(
                "TOPIC", lambda each: Cell(each.topic, Style.FAINT if each.is_internal else Style.NAME), False, True
            ),
            numbers("PARTITIONS", lambda each: each.partitions),
            numbers("RECORDS/S", lambda each: rate(each.records_per_s)),
            numbers("BYTES/S", lambda each: _size(each.bytes_per_s)),
            numbers("SIZE", lambda each: _size(each.size_bytes)),
            numbers("UNDER-REPLICATED", lambda each: _warned(each.under_replicated, Style.BUSY)),
            numbers("OFFLINE", lambda each: _warned(each.offline, Style.BAD)),
        ),
        lambda rates: rates.topics,
        lambda rates: len(rates.topics),
        {
            "records/s": lambda each: (-(each.records_per_s or 0), each.is_internal, each.topic),
            "name": lambda each: each.topic,
            "size": lambda each: (-(each.size_bytes or 0), each.topic),
            "under-replicated": lambda each: (-each.offline, -each.under_replicated, each.topic),
        },
    )


def _groups() -> Panel[GroupRates]:
    return Panel(
        "groups",
        (
            Column("GROUP", lambda each: Cell(each.group.group_id, Style.NAME), False, True),
            Column("STATE", lambda each: Cell(each.group.state, state_style(each.group.state)), False, True),
            numbers("MEMBERS", lambda each: each.group.member_count),
            numbers("LAG", lambda each: each.lag),
            numbers("CONSUMED/S", lambda each: rate(each.consumed_per_s)),
            numbers("LAG/S", lambda each: _trend(each)),
            numbers("CATCHES UP", lambda each: _catches_up(each)),
        ),
        lambda rates: rates.groups,
        lambda rates: rates.group_count,
        {
            "lag": lambda each: (-(each.lag or 0), each.group.group_id),
            "name": lambda each: each.group.group_id,
            "consumed/s": lambda each: (-(each.consumed_per_s or 0), each.group.group_id),
        },
    )


PANELS: tuple[Panel[Any], ...] = (_brokers(), _topics(), _groups())


def rate(per_s: float | None) -> str | None:
    """A rate, with tenths where it is small."""
    if per_s is None:
        return None
    return f"{per_s:.1f}" if 0 < abs(per_s) < _TENTHS_BELOW else f"{per_s:.0f}"


def _size(size_bytes: float | None) -> str | None:
    return None if size_bytes is None else data_size(round(size_bytes))


def summary(rates: ClusterRates, terminal: Terminal) -> str:
    """The cluster in one line."""
    up = sum(each.state is BrokerPresence.UP for each in rates.brokers)
    brokers = count(len(rates.brokers), "broker")
    facts = [
        brokers if up == len(rates.brokers) else terminal.paint(f"{up} of {brokers}", Style.BAD),
        terminal.paint("no controller", Style.BAD) if rates.controller is None else f"controller {rates.controller}",
        count(len(rates.topics), "topic"),
        count(rates.group_count, "group"),
        f"{clock(rates.at_ms)} UTC",
        f"cluster {printable(rates.cluster_id or 'without an id')}",
    ]
    return " · ".join(facts)


def show_all(terminal: Terminal, rates: ClusterRates) -> None:
    """The summary and all tables that have rows, each in its first order."""
    terminal.line(summary(rates, terminal))
    for panel in PANELS:
        if panel.rows(rates):
            terminal.line()
            panel.show(terminal, rates)
    for line in events(rates):
        terminal.line(line)


def events(rates: ClusterRates) -> list[str]:
    """The rebalances since the look before; changes of state where the cluster keeps no evidence of rebalances."""
    if rates.rebalances is not None:
        return [f"{clock(each.started_at_ms)}  {rebalance_line(each)}" for each in rates.rebalances]
    return [
        printable(
            f"{clock(each.at_ms)}  {each.group.group_id}: {each.before or 'new'} → {each.group.state}"
            + (f", {count(members, 'member')}" if (members := each.group.member_count) is not None else "")
        )
        for each in rates.state_changes
    ]


def clock(at_ms: int) -> str:
    """The time of day, UTC."""
    return instant(at_ms)[11:19]


def rates_row(rates: ClusterRates) -> dict[str, Any]:
    """The whole as one object."""
    return {
        **attributes(rates, "at_ms", "cluster_id", "controller"),
        "brokers": [_broker_row(each) for each in rates.brokers[:MOST_ROWS]],
        "topics": [asdict(each) for each in rates.topics[:MOST_ROWS]],
        "groups": [_group_row(each) for each in rates.groups[:MOST_ROWS]],
        "broker_count": len(rates.brokers),
        "topic_count": len(rates.topics),
        "group_count": rates.group_count,
        "state_changes": [
            {"group": each.group.group_id, "before": each.before, "state": each.group.state}
            for each in rates.state_changes
        ],
        "rebalances": None if rates.rebalances is None else [each.value for each in rates.rebalances],
    }


def _broker_row(each: BrokerRates) -> dict[str, Any]:
    figures = ("is_controller", "leads", "replicas", "in_sync", "records_per_s", "size_bytes", "problem")
    where = {"host": each.node.host or None, "port": each.node.port or None}
    return {"broker": each.node.node_id, **where, "state": each.state, **attributes(each, *figures)}


def _group_row(each: GroupRates) -> dict[str, Any]:
    return {
        "group": each.group.group_id,
        "state": each.group.state,
        "member_count": each.group.member_count,
        "coordinator": each.group.coordinator.node_id,
        **attributes(each, "lag", "consumed_per_s", "lag_per_s", "catch_up_ms"),
    }


def _warned(number: int, style: Style) -> Cell | None:
    return Cell(str(number), style) if number else None


def _in_sync(each: BrokerRates) -> Cell:
    behind = each.in_sync < each.replicas
    return Cell(f"{each.in_sync} of {each.replicas}", Style.BUSY if behind else Style.PLAIN)


def _broker_note(each: BrokerRates) -> str | Cell:
    if each.state is not BrokerPresence.UP:
        return Cell(each.state, Style.BAD)
    if each.problem:
        return Cell(each.problem, Style.BUSY)
    return "controller" if each.is_controller else ""


def _trend(each: GroupRates) -> Cell | None:
    text = rate(each.lag_per_s)
    if text is None or each.lag_per_s is None:
        return None
    grows = each.lag_per_s > 0
    return Cell(f"+{text}" if grows else text, Style.BUSY if grows else Style.GOOD if each.lag_per_s else Style.PLAIN)


def _catches_up(each: GroupRates) -> str | Cell | None:
    if each.catch_up_ms is not None:
        return duration(each.catch_up_ms) if each.lag else None
    return None if each.lag is None or each.lag_per_s is None else Cell("never", Style.BUSY)
