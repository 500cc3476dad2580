"""`ottla cluster health`: what is wrong with a cluster, once or as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from ottla.cli.cluster import COMMAND
from ottla.cli.log.output import instant
from ottla.cli.terminal import Style, Terminal, count, printable, write_json
from ottla.client.errors import ClientError
from ottla.ops.health.facts import HealthFacts, Metrics, lagging, read_health_facts
from ottla.ops.health.findings import ClusterFinding, HealthLevel
from ottla.ops.health.judging import judge, worst
from ottla.peer.cluster import Cluster

#: How long a broker has to say its metrics, and the most that is read of them.
METRICS_TIMEOUT_S = 2.0
MOST_METRICS_BYTES = 16 * 1024 * 1024
STATES = {HealthLevel.NOTICE: "healthy", HealthLevel.WARNING: "warnings", HealthLevel.CRITICAL: "critical"}
_STYLES = {HealthLevel.NOTICE: Style.FAINT, HealthLevel.WARNING: Style.BUSY, HealthLevel.CRITICAL: Style.BAD}


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """The command's options; `looks` None watches until Ctrl-C."""

    watch: bool
    interval_s: float
    looks: int | None
    as_json: bool


class TextHealth:
    """Lines for people."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def whole(self, facts: HealthFacts, findings: list[ClusterFinding]) -> None:
        """A line for the cluster, two for each finding."""
        paint, status = self._terminal.paint, facts.status
        level = worst(findings)
        state = paint(STATES[level], Style.GOOD if level is HealthLevel.NOTICE else _STYLES[level])
        what = [count(len(status.brokers), "broker"), count(len(status.partitions), "partition"), state]
        name = f"cluster {printable(status.cluster_id or 'without an id')}"
        self._terminal.line(f"{paint(name, Style.NAME)}  {' · '.join(what)}")
        for each in findings:
            self._terminal.line()
            self._finding(each)

    def _finding(self, each: ClusterFinding, before: str = "") -> None:
        paint = self._terminal.paint
        level = paint(each.kind.level.name.lower(), _STYLES[each.kind.level])
        self._terminal.line(f"{before}{level}  {paint(each.kind.slug, Style.NAME)}  {printable(each.what)}")
        self._terminal.line(f"    {printable(each.cure)}")

    def change(self, finding: ClusterFinding, at_ms: int, *, is_over: bool) -> None:
        """One line where it is over, else two."""
        when = f"{instant(at_ms)} UTC  "
        if is_over:
            over = self._terminal.paint("over", Style.GOOD)
            self._terminal.line(f"{when}{over}  {finding.kind.slug}  {printable(finding.what)}")
        else:
            self._finding(finding, when)


class JsonHealth:
    """Objects, one a line."""

    def whole(self, facts: HealthFacts, findings: list[ClusterFinding]) -> None:
        """Each finding, then `{"kind": "health", …}`."""
        for each in findings:
            write_json(each.row())
        write_json(
            {
                "kind": "health",
                "state": STATES[worst(findings)],
                "cluster_id": facts.status.cluster_id,
                "brokers": len(facts.status.brokers),
                "partitions": len(facts.status.partitions),
                "findings": len(findings),
            }
        )

    def change(self, finding: ClusterFinding, at_ms: int, *, is_over: bool) -> None:
        """The finding, with when it began or was over."""
        write_json({**finding.row(), "event": "over" if is_over else "began", "at_ms": at_ms})


async def scrape(host: str, port: int) -> Metrics:
    """The broker's metrics without labels; nothing where they cannot be read."""
    return await asyncio.to_thread(_scraped, host, port)


def _scraped(host: str, port: int) -> Metrics:
    try:
        with urlopen(f"http://{host}:{port}/metrics", timeout=METRICS_TIMEOUT_S) as answer:
            text = answer.read(MOST_METRICS_BYTES).decode()
    except (URLError, OSError, ValueError):
        return {}
    return parse_metrics(text)


def parse_metrics(text: str) -> dict[str, float]:
    """Values without labels in Prometheus's text format, by name; lines that are not understood are passed over."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if not name.startswith("#") and "{" not in name:
            try:
                found[name] = float(value.split(" ")[0])
            except ValueError:
                continue
    return found


HealthView = TextHealth | JsonHealth


async def show_health(cluster: Cluster, options: HealthOptions) -> int:
    """Look and show; returns the exit code. Raises ClientError where the cluster cannot be asked at the start."""
    view: HealthView = JsonHealth() if options.as_json else TextHealth(Terminal.standard_output())
    facts = await read_health_facts(cluster, scrape)
    before = None
    if not options.watch and _needs_another_look(facts):
        await asyncio.sleep(options.interval_s)
        before, facts = facts, await read_health_facts(cluster, scrape)
    findings = judge(facts, before)
    view.whole(facts, findings)
    if not options.watch:
        return int(worst(findings))
    return await _follow(cluster, options, view, facts, findings)


def _needs_another_look(facts: HealthFacts) -> bool:
    """Whether anything is under way of which one look cannot say whether it makes progress."""
    return any(each.adding or each.removing or lagging(each) for each in facts.status.partitions)


async def _follow(
    cluster: Cluster, options: HealthOptions, view: HealthView, facts: HealthFacts, findings: list[ClusterFinding]
) -> int:
    """Report what begins and ends; returns the exit code after the last look."""
    known = _by_subject(findings)
    is_lost = False
    looks = 1
    while options.looks is None or looks < options.looks:
        await asyncio.sleep(options.interval_s)
        looks += 1
        try:
            before, facts = facts, await read_health_facts(cluster, scrape)
        except ClientError as problem:
            if not is_lost:
                COMMAND.report(f"{problem}; trying again")
            is_lost = True
            continue
        is_lost = False
        now = _by_subject(judge(facts, before))
        at_ms = cluster.clock.now_ms()
        for subject, each in known.items():
            if subject not in now:
                view.change(each, at_ms, is_over=True)
        for subject, each in now.items():
            if subject not in known:
                view.change(each, at_ms, is_over=False)
        known = dict(now)
    return int(HealthLevel.CRITICAL if is_lost else worst(list(known.values())))


def _by_subject(findings: list[ClusterFinding]) -> Mapping[Any, ClusterFinding]:
    return {each.subject: each for each in findings}
