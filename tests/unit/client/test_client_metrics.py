"""Figures of clients: totals, rates, averages, over the windows that the settings say."""

from __future__ import annotations

from math import isnan, nan

import pytest

from ottla.client.client_metrics import GAUGES, Metrics
from ottla.client.consumer.membership import ClientState
from ottla.env.clock import VirtualClock


def test_totals_have_rates_per_second() -> None:
    clock = VirtualClock(0)
    metrics = Metrics(clock, num_samples=2, sample_window_ms=1000)
    sent = metrics.total("record-send")
    assert metrics.read() == {"record-send-total": 0, "record-send-rate": 0}
    sent.value += 10
    clock.advance(500)
    assert metrics.read() == {"record-send-total": 10, "record-send-rate": 20}
    clock.advance(500)
    assert metrics.read()["record-send-rate"] == 10
    clock.advance(1000)
    assert metrics.read()["record-send-rate"] == 5
    clock.advance(1000)
    assert metrics.read() == {"record-send-total": 10, "record-send-rate": 0}


def test_averages_and_largest_values_are_of_the_window() -> None:
    clock = VirtualClock(0)
    metrics = Metrics(clock, num_samples=2, sample_window_ms=1000)
    latency = metrics.measured("request-latency")
    assert isnan(metrics.read()["request-latency-avg"])
    assert isnan(metrics.read()["request-latency-max"])
    for value in (1, 6, 2):
        latency.add(value)
    clock.advance(1000)
    assert metrics.read() == {"request-latency-avg": 3, "request-latency-max": 6}
    latency.add(5)
    clock.advance(1000)
    assert metrics.read() == {"request-latency-avg": 3.5, "request-latency-max": 6}
    clock.advance(1000)
    assert metrics.read() == {"request-latency-avg": 5, "request-latency-max": 5}
    clock.advance(1000)
    assert [str(value) for value in metrics.read().values()] == [str(nan), str(nan)]


def test_gauges_are_read_when_they_are_asked_for() -> None:
    metrics = Metrics(VirtualClock(0))
    lags = {("t", 0): 3, ("t", 1): 7}
    metrics.gauge("records-lag-max", lambda: max(lags.values()))
    metrics.tagged("records-lag", lambda: lags)
    assert metrics.read() == {
        "records-lag-max": 7,
        "records-lag{topic=t,partition=0}": 3,
        "records-lag{topic=t,partition=1}": 7,
    }


def test_names_are_those_that_are_declared() -> None:
    metrics = Metrics(VirtualClock(0))
    for register in (metrics.total, metrics.measured, lambda name: metrics.gauge(name, lambda: 0)):
        with pytest.raises(KeyError):
            register("nobody-knows")


@pytest.mark.spec("G10")
def test_the_states_of_a_client_are_documented_by_number() -> None:
    told = GAUGES["client-state"].documentation
    names = {
        ClientState.DOWN: "down",
        ClientState.FINDING_COORDINATOR: "finding the coordinator",
        ClientState.MEMBER: "member",
        ClientState.FINDING_COORDINATOR_AGAIN: "finding the coordinator again",
        ClientState.STOPPED: "stopped",
    }
    assert set(names) == set(ClientState)
    assert [state for state, name in names.items() if f"{state.value} {name}" not in told] == []
