"""Figures of clients for Prometheus and OpenTelemetry: names, labels, values of clients at work."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from opentelemetry.metrics import CallbackOptions
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

from ottla.client import ClientCollector, observe_metrics, serve_metrics
from ottla.client.client_metrics import FIGURES
from ottla.client.exporting import SHARED_S, observed_name, prometheus_name
from ottla.client.sync import Consumer, Producer
from ottla.testing import Broker

pytestmark = pytest.mark.spec("U3")


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Any]]:
    """A producer that has sent three records, and a member of a group that has read them."""
    window = {"metrics_sample_window_ms": 3_600_000}  # averages are there however long the tests take
    with (
        Broker({"orders": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="till", **window) as producer,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            client_id="reader",
            group_id="g",
            auto_offset_reset="earliest",
            **window,
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
    """As a meter of OpenTelemetry of which one instrument at a time is collected."""

    def __init__(self) -> None:
        self._callbacks: dict[str, Any] = {}

    def create_observable_counter(self, name: str, callbacks: Any, unit: str = "", description: str = "") -> None:
        self._callbacks[name] = callbacks

    create_observable_gauge = create_observable_counter

    def collected(self, name: str) -> list[float]:
        """Values of the observations."""
        return [one.value for callback in self._callbacks[name] for one in callback(CallbackOptions())]


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
    now_s = [100.0]
    monkeypatch.setattr("ottla.client.exporting.monotonic_s", lambda: now_s[0])
    client, meter = CountedReads(), Instruments()
    observe_metrics(meter, client)
    sent, failed = "kafka.producer.record_send_total", "kafka.producer.record_error_total"
    for collection in (1, 2):
        assert [meter.collected(each) for each in (sent, failed)] == [[collection]] * 2
    assert client.reads == 2
    now_s[0] += SHARED_S + 0.1  # an instrument that only another reader collects
    assert meter.collected("kafka.producer.record_retry_total") == []
    assert client.reads == 3


class Collected(NamedTuple):
    """A figure as OpenTelemetry's SDK has it: its kind, and its values with their attributes."""

    kind: str
    points: list[tuple[float, dict[str, Any]]]


def collected(reader: InMemoryMetricReader) -> dict[str, Collected]:
    """What a collection finds, by name. A metric has its points once."""
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    assert len({one.name for one in metrics}) == len(metrics)
    found = {}
    for one in metrics:
        kind = "counter" if isinstance(one.data, Sum) and one.data.is_monotonic else type(one.data).__name__.lower()
        found[one.name] = Collected(kind, [(each.value, dict(each.attributes)) for each in one.data.data_points])
    return found


def test_the_sdk_of_opentelemetry_collects_them(clients: list[Any]) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    try:
        observe_metrics(provider.get_meter("orders"), *clients)
        before, after = collected(reader), collected(reader)
    finally:
        provider.shutdown()
    till, member = {"client-id": "till"}, {"client-id": "reader"}
    partition = {**member, "topic": "orders", "partition": "0"}
    for figures in (before, after):
        assert figures["kafka.producer.record_send_total"] == Collected("counter", [(3, till)])
        assert figures["kafka.producer.record_error_total"] == Collected("counter", [(0, till)])
        assert figures["kafka.consumer.records_consumed_total"] == Collected("counter", [(3, member)])
        assert figures["kafka.consumer.commit_total"] == Collected("counter", [(1, member)])
        assert figures["kafka.consumer.records_lag"] == Collected("gauge", [(0, partition)])
        assert figures["kafka.consumer.assigned_partitions"] == Collected("gauge", [(1, member)])
        for name in ("producer.record_send_rate", "producer.request_latency_avg", "consumer.fetch_size_avg"):
            kind, ((value, _),) = figures[f"kafka.{name}"]
            assert kind == "gauge"
            assert 0 < value < 1e6, name
    # Those without a value are left out, and a counter never falls.
    values = [value for kind, points in after.values() for value, _ in points]
    assert not any(isnan(value) for value in values)
    for name in (name for name, figure in before.items() if figure.kind == "counter"):
        assert after[name].points[0][0] >= before[name].points[0][0], name
    assert before.keys() | after.keys() <= {observed_name(name) for name in FIGURES}
