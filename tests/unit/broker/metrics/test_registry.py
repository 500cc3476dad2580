"""The registry: names, values read at the scrape, and Prometheus's text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.coordinators import rebalance_figures
from ottla.broker.coordinators.rebalance_figures import MOST_GROUPS, RebalanceFigures
from ottla.broker.metrics import registry as registries
from ottla.broker.metrics.declaring import ottla, summed
from ottla.broker.metrics.registry import VALUES_PER_PIECE, MetricDeclaration, MetricsRegistry, text_of
from ottla.broker.request_figures import TIMED_EVERY, TIMES_KEPT, RequestFigures
from ottla.broker.upkeep import LoopLag
from ottla.groups.evidence import Evidence

pytestmark = pytest.mark.spec("U3")

REQUESTS = MetricDeclaration("requests_total", "Requests.", ("request",))
LAG = MetricDeclaration("lag_seconds", "Lag.")


def test_values_are_read_when_they_are_asked_for() -> None:
    registry = MetricsRegistry()
    counts = {"Fetch": 1}
    registry.add(REQUESTS, lambda: [((api,), count) for api, count in counts.items()])
    registry.add(LAG, lambda: [((), 0.25)])
    counts['Pro"duce'] = 3
    families = {
        family.name: family
        for family in text_string_to_metric_families(text_of(filter(None, registry.read())).decode())
    }
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
    assert [reading.declaration for reading in registry.read() if reading] == [LAG]
    assert "requests_total cannot be read" in caplog.text
    assert registry.left_out == {"requests_total"}


def test_one_with_too_many_values_is_left_out_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "MOST_VALUES", 3)
    registry = MetricsRegistry()
    names = ["a", "b", "c", "d"]
    registry.add(REQUESTS, lambda: [((name,), 1.0) for name in names])
    registry.add(LAG, lambda: [((), 1.0)])
    for _ in range(2):
        assert [reading.declaration for reading in registry.read() if reading] == [LAG]
        assert registry.left_out == {"requests_total"}
    assert caplog.text.count("requests_total is left out: it has more than 3 values") == 1
    names.pop()
    assert [reading.declaration for reading in registry.read() if reading] == [REQUESTS, LAG]
    assert registry.left_out == set()


def test_many_values_are_read_in_pieces() -> None:
    registry = MetricsRegistry()
    registry.add(REQUESTS, lambda: (((str(number),), 1.0) for number in range(3 * VALUES_PER_PIECE)))
    registry.add(LAG, lambda: iter((None, ((), 1.0))))
    assert [reading and reading.declaration for reading in registry.read()] == [None] * 3 + [REQUESTS, None, LAG]


def test_a_sum_of_many_numbers_is_made_in_pieces() -> None:
    metric = ottla("sum", "A sum.", summed(lambda _: (1 for _ in range(2 * VALUES_PER_PIECE + 1))))
    broker: Any = None
    assert list(metric.read(broker)) == [None, None, ((), 2 * VALUES_PER_PIECE + 1)]


def test_requests_are_counted_by_version_and_some_are_timed() -> None:
    figures = RequestFigures(3)
    timed = [at for at in range(100 * TIMED_EVERY) if figures.taken_up(2 * (at > 0))]
    assert timed[0] == 0
    assert 90 < len(timed) < 105
    assert {later - earlier for earlier, later in pairwise(timed)} == set(
        range(1 + TIMED_EVERY // 2, 1 + TIMED_EVERY // 2 + TIMED_EVERY)
    )
    assert figures.by_version == [1, 0, 100 * TIMED_EVERY - 1]
    assert figures.quantiles_ms((0.5,)) == []
    figures.times_ms.extend(map(float, range(TIMES_KEPT + 100)))
    assert figures.quantiles_ms((0.5, 0.999)) == [100.0 + TIMES_KEPT // 2, 99.0 + TIMES_KEPT]


def test_figures_of_rebalances_are_kept_of_the_groups_that_rebalanced_last() -> None:
    figures = RebalanceFigures()
    closed = {"causes": [], "duration_ms": 1, "members": []}
    for number in (*range(MOST_GROUPS), 0, MOST_GROUPS):
        figures.add([Evidence(str(number), 0, closed)])
    assert len(figures.groups) == MOST_GROUPS
    assert "1" not in figures.groups
    assert figures.groups["0"].causes == {"unknown": 2}


def test_groups_with_many_causes_make_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance_figures, "MOST_CAUSES", 3)
    figures = RebalanceFigures()

    def add(group: str, cause: str) -> None:
        figures.add([Evidence(group, 0, {"causes": [{"cause": cause}], "duration_ms": 1, "members": []})])

    for group, cause in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "x"), ("b", "y")):
        add(group, cause)
    assert {group: dict(each.causes) for group, each in figures.groups.items()} == {"b": {"x": 2, "y": 1}}
    add("a", "x")
    assert list(figures.groups) == ["b", "a"]


def test_the_part_of_the_time_without_work() -> None:
    lag = LoopLag()
    lag.worked(1.0, 10.0)
    assert lag.idle_share == 1.0
    lag.worked(1.25, 11.0)
    assert lag.idle_share == 0.75


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
