"""Prometheus itself scrapes a broker under a little load: dashboard and alarms say what happens there."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker
from support.dashboard import LAG, PANELS
from support.ports import free_port
from support.programs import prometheus_executable
from support.promql import Expression
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("U3"), pytest.mark.needs_prometheus, pytest.mark.slow, pytest.mark.timeout(300)]

RULES: Final = Path(__file__).resolve().parents[2] / "docker" / "prometheus-rules.yml"
EVERY: Final = "1s"
TIMEOUT_S: Final = 120.0
#: What is so while ten records wait for one member.
EXPECTED: Final = {
    "max(kafka_brokers)": 1,
    "sum(ottla_ready)": 1,
    "kafka_consumergroup_members": 1,
    "kafka_consumergroup_lag_sum": 10,
    'kafka_topic_partition_current_offset{topic="orders"}': 20,
    # A consumer of a busy machine may join more than once.
    'ottla_group_rebalance_causes_total{cause="member_joined"} >= bool 1': 1,
}
Ask = Callable[[str], dict[str, float]]


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def broker(metrics_port: int) -> Iterator[Broker]:
    kept = {"log.retention.ms": -1}
    with Broker({"orders": 2}, settings={"ottla.metrics.port": metrics_port} | kept) as broker:
        yield broker


@pytest.fixture
def ask(broker: Broker, metrics_port: int, tmp_path: Path) -> Iterator[Ask]:
    """Asks Prometheus for the values of a query, by the labels of the series."""
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    settings = {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "ottla", "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    executable, address = prometheus_executable(), f"127.0.0.1:{free_port()}"
    assert executable is not None
    command = [
        executable,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)

    def ask(query: str) -> dict[str, float]:
        with urlopen(f"http://{address}/api/v1/query?{urlencode({'query': query})}", timeout=TIMEOUT_S) as answer:
            result = json.load(answer)["data"]["result"]
        return {json.dumps(each["metric"], sort_keys=True): float(each["value"][1]) for each in result}

    try:
        wait(lambda: answers(ask, running), "Prometheus to answer")
        yield ask
    finally:
        running.kill()
        running.wait()


def answers(ask: Ask, running: subprocess.Popen[bytes]) -> bool:
    assert running.poll() is None, "Prometheus has ended"
    try:
        return sum(ask("up").values()) == 1
    except (URLError, OSError):
        return False


def wait(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, TIMEOUT_S, interval_s=0.1)


def produce(broker: Broker, count: int, timestamp: int | None = None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("orders", b"x" * 100, partition=number % 2, timestamp=timestamp)


def alarms(ask: Ask) -> set[str]:
    return {json.loads(labels)["alertname"] for labels in ask('ALERTS{alertstate="firing"}')}


def is_plausible(values: dict[str, float]) -> bool:
    return bool(values) and all(math.isfinite(each) and each >= 0 for each in values.values())


def value(ask: Ask, query: str) -> float:
    return sum(ask(query).values())


def test_dashboard_and_alarms_say_what_happens(broker: Broker, ask: Ask) -> None:
    produce(broker, 10)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(["orders"])
        read = 0

        def has_read(count: int) -> bool:
            nonlocal read
            read += len(consumer.poll(100))
            return read >= count

        wait(lambda: has_read(10), "ten records")
        consumer.commit()
        wait(lambda: value(ask, "kafka_consumergroup_current_offset_sum") == 10, "the commit")
        # Rates need two samples between which something came.
        produce(broker, 10)
        wait(
            lambda: (
                value(ask, 'increase(kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}[5m])') > 0
                and value(ask, LAG) == 10
            ),
            "lag and traffic",
        )
        # On a busy machine a scrape may fail or the loop be late: what holds is waited for.
        for query in (query for panel in PANELS for query in panel.queries.values()):
            wait(lambda query=query: is_plausible(ask(query)), query)
        for query, expected in EXPECTED.items():
            wait(lambda query=query, expected=expected: value(ask, query) == expected, f"{query} to be {expected}")
        assert 0 <= value(ask, "max(ottla_consumergroup_lag_seconds)") < 900
        for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
            expression = Expression(rule["expr"])
            expression.read()
            for metric in expression.metrics:
                wait(lambda metric=metric: ask(metric), f"{metric}, for {rule['alert']}")
            wait(lambda rule=rule: not ask(rule["expr"]), f"no {rule['alert']} in a sound cluster")
        wait(lambda: alarms(ask) == set(), "no alarm")

        wait(lambda: has_read(20), "all records")
        consumer.commit()
    # The group is gone; a record waits for it that was written in 1970.
    produce(broker, 1, timestamp=1)
    wait(lambda: alarms(ask) == {"OttlaGroupBehind"}, "the alarm")
    wait(lambda: value(ask, "max(ottla_consumergroup_lag_seconds)") > 1e9, "its cause")
