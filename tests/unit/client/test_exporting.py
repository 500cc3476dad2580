"""Figures of clients for Prometheus and OpenTelemetry: names, labels, values of clients at work."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.client import ClientCollector, observe_metrics, serve_metrics
from ottla.client.client_metrics import FIGURES
from ottla.client.exporting import SHARED_S, observed_name, prometheus_name
from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker

pytestmark = pytest.mark.spec("U3")


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Any]]:
    """A producer that has sent three records, and a member of a group that has read them."""
    with (
        Broker({"orders": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="till") as producer,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers, client_id="reader", group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send_many([(None, b"1"), (None, b"2"), (None, b"3")], "orders").result()
        consumer.subscribe(["orders"])
        read = 0
        while read < 3:
            read += len(list(consumer.poll(10_000)))
        consumer.commit()
        yield [producer, consumer]


def test_prometheus_gets_them_over_http(clients: list[Any]) -> None:
    server = serve_metrics(0, *clients)
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as response:
            lines = response.read().decode().splitlines()
    finally:
        server.close()
    assert 'kafka_producer_producer_metrics_record_send_total{client_id="till"} 3.0' in lines
    assert 'kafka_consumer_consumer_fetch_manager_metrics_records_consumed_total{client_id="reader"} 3.0' in lines
    assert (
        'kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="reader",partition="0",topic="orders"} 0.0'
        in lines
    )
    assert 'kafka_consumer_consumer_coordinator_metrics_commit_total{client_id="reader"} 1.0' in lines
    assert "# TYPE kafka_producer_producer_metrics_record_send_total counter" in lines
    assert "# TYPE kafka_producer_producer_metrics_record_send_rate gauge" in lines


def test_a_registry_of_the_application_takes_them(clients: list[Any]) -> None:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(ClientCollector(*clients))
    name = "kafka_producer_producer_metrics_record_send_total"
    assert registry.get_sample_value(name, {"client_id": "till"}) == 3
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(ClientCollector(*clients))


def test_all_figures_that_clients_give_are_declared(clients: list[Any]) -> None:
    given = {name.partition("{")[0] for client in clients for name in client.metrics()}
    assert given == set(FIGURES)


def test_the_names_are_different() -> None:
    assert len({prometheus_name(name) for name in FIGURES}) == len({observed_name(name) for name in FIGURES})


class Instruments:
    """As a meter of OpenTelemetry: keeps what it was to observe, and collects it."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self._callbacks: dict[str, Any] = {}

    def create_observable_counter(self, name: str, callbacks: Any, unit: str = "", description: str = "") -> None:
        self.kinds[name], self._callbacks[name] = "counter", callbacks

    def create_observable_gauge(self, name: str, callbacks: Any, unit: str = "", description: str = "") -> None:
        self.kinds[name], self._callbacks[name] = "gauge", callbacks

    def collected(self, name: str) -> list[tuple[float, dict[str, str]]]:
        """Values and attributes of the observations."""
        from opentelemetry.metrics import CallbackOptions

        observed = [one for callback in self._callbacks[name] for one in callback(CallbackOptions())]
        return [(one.value, dict(one.attributes)) for one in observed]


class CountedReads:
    """As a producer: each reading of its figures counts up the records that were sent."""

    config = SimpleNamespace(client_id="counted")

    def __init__(self) -> None:
        self.delegate = self
        self.reads = 0

    def metrics(self) -> dict[str, float]:
        """The figures; a number for each call."""
        self.reads += 1
        return {"record-send-total": self.reads, "record-error-total": self.reads}


def test_a_collection_reads_a_client_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.metrics", reason="opentelemetry-api is not installed")
    now_s = [100.0]
    monkeypatch.setattr("ottla.client.exporting.monotonic_s", lambda: now_s[0])
    client, meter = CountedReads(), Instruments()
    observe_metrics(meter, client)
    sent, failed = "kafka.producer.record_send_total", "kafka.producer.record_error_total"
    for collection in (1, 2):
        assert [meter.collected(each)[0][0] for each in (sent, failed)] == [collection] * 2
    assert client.reads == 2
    now_s[0] += SHARED_S + 0.1  # an instrument that only another reader collects
    assert meter.collected("kafka.producer.record_retry_total") == []
    assert client.reads == 3


def test_a_meter_of_opentelemetry_observes_them(clients: list[Any]) -> None:
    metrics = pytest.importorskip("opentelemetry.metrics", reason="opentelemetry-api is not installed")
    meter = Instruments()
    observe_metrics(meter, *clients)
    assert meter.collected("kafka.producer.record_send_total") == [(3, {"client-id": "till"})]
    lag = {"client-id": "reader", "topic": "orders", "partition": "0"}
    assert meter.collected("kafka.consumer.records_lag") == [(0, lag)]
    assert meter.collected("kafka.producer.produce_throttle_time_max") in ([], [(0, {"client-id": "till"})])
    assert meter.kinds["kafka.producer.record_send_total"] == "counter"
    assert meter.kinds["kafka.producer.record_send_rate"] == "gauge"
    observe_metrics(metrics.NoOpMeter("ottla"), *clients)  # the signatures are those of the API
