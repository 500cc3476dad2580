"""The registry: names, values read at the scrape, and Prometheus's text."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.registry import MetricDeclaration, MetricsRegistry, text_of
from ottla.broker.upkeep import LoopLag

pytestmark = pytest.mark.spec("U3")

REQUESTS = MetricDeclaration("requests_total", "Requests.", ("request",))
LAG = MetricDeclaration("lag_seconds", "Lag.")


def test_values_are_read_when_they_are_asked_for() -> None:
    registry = MetricsRegistry()
    counts = {"Fetch": 1}
    registry.add(REQUESTS, lambda: [((api,), count) for api, count in counts.items()])
    registry.add(LAG, lambda: [((), 0.25)])
    counts['Pro"duce'] = 3
    families = {family.name: family for family in text_string_to_metric_families(text_of(registry.read()).decode())}
    requests = families["requests"]
    assert (requests.type, requests.documentation) == ("counter", "Requests.")
    assert {sample.labels["request"]: sample.value for sample in requests.samples} == {"Fetch": 1.0, 'Pro"duce': 3.0}
    assert [sample.value for sample in families["lag_seconds"].samples] == [0.25]


def test_one_that_cannot_be_read_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[tuple[tuple[str, ...], float]]:
        raise RuntimeError("planted")

    registry = MetricsRegistry()
    registry.add(REQUESTS, broken)
    registry.add(LAG, lambda: [((), 1.0)])
    assert [reading.declaration for reading in registry.read()] == [LAG]
    assert "requests_total cannot be read" in caplog.text


def test_a_name_is_added_once() -> None:
    registry = MetricsRegistry()
    registry.add(LAG, list)
    with pytest.raises(ValueError, match="two metrics are called lag_seconds"):
        registry.add(LAG, list)


def test_the_lag_of_the_loop() -> None:
    lag = LoopLag()
    for due_s, now_s in ((1.0, 1.5), (2.0, 2.25), (3.0, 2.999)):
        lag.measured(due_s, now_s)
    assert (lag.last_s, lag.max_s) == (0.0, 0.5)
