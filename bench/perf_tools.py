"""Apache Kafka's own performance tools, which load either broker; they measure mostly themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contestants import Started
from frames import HOST, Caller
from loads import delete_topic, make_topic

from support.java import java_command
from support.processes import run_tool

#: The heap that `kafka-producer-perf-test.sh` and its like give themselves.
TOOL_JVM = ("-XX:+UseG1GC", "-Xmx512m")
TOOL_TIMEOUT_S = 120.0
PARTITIONS = 4
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"

#: "300000 records sent, 98071.265119 records/sec (95.77 MB/sec), 120.35 ms avg latency, …, 310 ms 99th, 330 ms 99.9th."
_PRODUCED = re.compile(
    r"records sent, (?P<per_s>[\d.]+) records/sec.* (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th", re.MULTILINE
)
#: Start, end, MB, MB/s, records, records/s, rebalance time, fetch time in ms, fetch MB/s, fetch records/s.
_FETCHED_PER_S = 9
_CONSUMED_COLUMNS = 10


@dataclass
class ToolFigures:
    """Records a second as the tools tell them, the 99th percentile, and the broker's CPU for each million records."""

    produced_per_s: float
    produced_p99_ms: float
    produce_cpu_s_per_million: float
    consumed_per_s: float
    consume_cpu_s_per_million: float


def run_perf_tools(broker: Started, record_bytes: int, records: int) -> ToolFigures:
    """Produce and then consume this many records with both tools' default settings."""
    with Caller(broker.port) as caller:
        topic, _ = make_topic(caller, PARTITIONS)
        bootstrap = f"{HOST}:{broker.port}"
        before = broker.cpu_seconds()
        produce = [PRODUCER, "--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)]
        told = _run([*produce, "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"])
        between = broker.cpu_seconds()
        found = list(_PRODUCED.finditer(told))
        if not found:
            raise AssertionError(f"no summary in the output of {PRODUCER}:\n{told[-2000:]}")
        consume = [CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(records)]
        row = _run([*consume, "--hide-header", "--timeout", "30000"]).strip().splitlines()[-1].split(",")
        after = broker.cpu_seconds()
        if len(row) != _CONSUMED_COLUMNS:
            raise AssertionError(f"unknown output of {CONSUMER}: {row}")
        delete_topic(caller, broker, topic)
    million = records / 1e6
    return ToolFigures(
        produced_per_s=float(found[-1]["per_s"]),
        produced_p99_ms=float(found[-1]["p99"]),
        produce_cpu_s_per_million=(between - before) / million,
        consumed_per_s=float(row[_FETCHED_PER_S]),
        consume_cpu_s_per_million=(after - between) / million,
    )


def _run(arguments: list[str]) -> str:
    return run_tool(java_command(*arguments, options=TOOL_JVM), timeout_s=TOOL_TIMEOUT_S).stdout
