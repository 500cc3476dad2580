"""The tables of bench/clients.py: a line for each client and way, and the goals below."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from client_programs import meter as m
from client_programs.meter import Measured
from client_worker import AIOKAFKA, CONFLUENT, CONFLUENT_TUNED, KAFKA_PYTHON, OTHERS, OTTLA, OTTLA_SYNC
from report import AT_LEAST_EQUAL, AT_MOST_EQUAL, Goal, number, table

OURS = (OTTLA, OTTLA_SYNC)
HALF_AS_FAST = Goal(0.5, at_least=True)
FIVE_TIMES = Goal(5.0, at_least=True)

#: How each load is written with each client.
CALLS = {
    (m.PRODUCE_LOOP, CONFLUENT): "produce",
    (m.PRODUCE_LOOP, KAFKA_PYTHON): "send",
    (m.PRODUCE_LOOP, AIOKAFKA): "await send",
    (m.PRODUCE_LOOP, OTTLA): "await send",
    (m.PRODUCE_LOOP, OTTLA_SYNC): "send",
    (m.PRODUCE_BATCH, CONFLUENT): "produce_batch",
    (m.PRODUCE_BATCH, AIOKAFKA): "send_batch",
    (m.PRODUCE_BATCH, OTTLA): "send_many",
    (m.PRODUCE_BATCH, OTTLA_SYNC): "send_many",
    (m.PRODUCE_ARROW, OTTLA): "send_arrow",
    (m.PRODUCE_ARROW, OTTLA_SYNC): "send_arrow",
    (m.CONSUME_LOOP, CONFLUENT): "poll",
    (m.CONSUME_LOOP, CONFLUENT_TUNED): "poll",
    (m.CONSUME_LOOP, KAFKA_PYTHON): "for",
    (m.CONSUME_LOOP, AIOKAFKA): "async for",
    (m.CONSUME_LOOP, OTTLA): "async for",
    (m.CONSUME_LOOP, OTTLA_SYNC): "for",
    (m.CONSUME_BATCH, CONFLUENT): "consume",
    (m.CONSUME_BATCH, CONFLUENT_TUNED): "consume",
    (m.CONSUME_BATCH, KAFKA_PYTHON): "poll",
    (m.CONSUME_BATCH, AIOKAFKA): "getmany",
    (m.CONSUME_BATCH, OTTLA): "poll",
    (m.CONSUME_BATCH, OTTLA_SYNC): "poll",
    (m.CONSUME_ARROW, OTTLA): "poll_arrow",
    (m.CONSUME_ARROW, OTTLA_SYNC): "poll_arrow",
    (m.SINGLE, CONFLUENT): "produce, poll",
    (m.SINGLE, KAFKA_PYTHON): "send, get",
    (m.SINGLE, AIOKAFKA): "send_and_wait",
    (m.SINGLE, OTTLA): "await await send",
    (m.SINGLE, OTTLA_SYNC): "send, result",
}
TITLES = {
    m.PRODUCE_LOOP: "Produce record by record",
    m.PRODUCE_BATCH: "Produce in batches",
    m.PRODUCE_ARROW: "Produce in batches",
    m.CONSUME_LOOP: "Consume record by record",
    m.GROUP_LOOP: "Consume record by record, in a group",
    m.CONSUME_BATCH: "Consume in batches",
    m.CONSUME_ARROW: "Consume in batches",
    m.SINGLE: "Single sends",
}


@dataclass(frozen=True)
class Key:
    """What was measured."""

    broker: str
    load: str
    value_bytes: int
    client: str

    @property
    def call(self) -> str:
        """The line of the table."""
        load = m.CONSUME_LOOP if self.load == m.GROUP_LOOP else self.load
        return f"{self.client}: {CALLS[load, self.client]}"


@dataclass
class Compared:
    """A goal, and what came of it."""

    what: str
    value: float
    goal: Goal

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.goal.met(self.value)

    def cells(self) -> list[str]:
        """The row of the table."""
        return [self.what, f"{self.value:.2f}", str(self.goal), "met" if self.met else "NOT met"]


def size_title(value_bytes: int) -> str:
    """For tables."""
    return "1 KiB" if value_bytes == 1024 else f"{value_bytes} B"


class ClientFigures:
    """All measurements of a run; figures are medians."""

    def __init__(self, legend: str) -> None:
        self.legend = legend
        self._values: dict[Key, list[Measured]] = {}

    def add(self, key: Key, measured: Measured) -> None:
        """Take one measurement."""
        self._values.setdefault(key, []).append(measured)

    def _median(self, key: Key, name: str) -> float:
        return statistics.median(_figure(one, name) for one in self._values[key])

    def goals(self) -> tuple[int, int]:
        """How many goals there are, and how many were met."""
        compared = list(self._compared())
        return len(compared), sum(one.met for one in compared)

    def tables(self) -> Iterable[str]:
        """A table for each kind of load and broker, then the goals."""
        groups: dict[str, list[Key]] = {}
        for key in sorted(self._values, key=lambda key: (m.LOADS.index(key.load), key.broker)):
            groups.setdefault(f"{TITLES[key.load]}, {key.broker}", []).append(key)
        for title, keys in groups.items():
            yield self._single(title, keys) if keys[0].load == m.SINGLE else self._rates(title, keys)
        rows = [one.cells() for one in self._compared()]
        if rows:
            yield table(["Goals", "ratio", "goal", ""], rows)

    def _rates(self, title: str, keys: list[Key]) -> str:
        sizes = sorted({key.value_bytes for key in keys})
        columns = (("per_s", "records/s"), ("cpu", "client CPU s/M"), ("broker_cpu", "broker CPU s/M"))
        lines: dict[str, dict[int, Key]] = {}
        for key in keys:
            lines.setdefault(key.call, {})[key.value_bytes] = key
        head = [title, *(f"{size_title(size)}: {label}" for size in sizes for _, label in columns)]
        rows = [
            [
                call,
                *(
                    number(self._median(by_size[size], name)) if size in by_size else ""
                    for size in sizes
                    for name, _ in columns
                ),
            ]
            for call, by_size in lines.items()
        ]
        return table(head, rows)

    def _single(self, title: str, keys: list[Key]) -> str:
        columns = (("p50", "p50 ms"), ("p99", "p99 ms"), ("per_s", "sends/s"), ("cpu", "client CPU s/M"))
        rows = [[key.call, *(number(self._median(key, name)) for name, _ in columns)] for key in keys]
        return table([title, *(label for _, label in columns)], rows)

    def _compared(self) -> Iterator[Compared]:
        for key in self._values:
            if key.client in OURS:
                yield from self._goals_of(key)

    def _goals_of(self, key: Key) -> Iterator[Compared]:
        prefix = f"{TITLES[key.load]}, {key.broker}, {size_title(key.value_bytes)}, {key.call}"

        def against(others: Iterable[str], load: str, name: str, goal: Goal) -> Iterator[Compared]:
            there = [Key(key.broker, load, key.value_bytes, other) for other in others]
            theirs = [(self._median(one, name), one.client) for one in there if one in self._values]
            if theirs:
                best, client = max(theirs) if goal.at_least else min(theirs)
                yield Compared(f"{prefix} / {client}", self._median(key, name) / best, goal)

        match key.load:
            case m.PRODUCE_LOOP:
                yield from against((KAFKA_PYTHON, AIOKAFKA), key.load, "per_s", AT_LEAST_EQUAL)
                yield from against((CONFLUENT,), key.load, "per_s", HALF_AS_FAST)
            case m.CONSUME_LOOP | m.GROUP_LOOP:
                yield from against((KAFKA_PYTHON, AIOKAFKA), key.load, "per_s", AT_LEAST_EQUAL)
                yield from against((CONFLUENT, CONFLUENT_TUNED), key.load, "per_s", AT_LEAST_EQUAL)
            case m.PRODUCE_BATCH | m.PRODUCE_ARROW:
                yield from against(OTHERS, m.PRODUCE_LOOP, "per_s", FIVE_TIMES)
            case m.CONSUME_BATCH | m.CONSUME_ARROW:
                yield from against(OTHERS, m.CONSUME_LOOP, "per_s", FIVE_TIMES)
            case _:
                yield from against((CONFLUENT,), key.load, "p99", AT_MOST_EQUAL)


def _figure(measured: Measured, name: str) -> float:
    match name:
        case "per_s":
            return measured.records / measured.seconds
        case "cpu":
            return measured.cpu_s / measured.records * 1e6
        case "broker_cpu":
            return measured.broker_cpu_s / measured.records * 1e6
        case "p50":
            return measured.p50_ms
        case _:
            return measured.p99_ms
