"""Figures of clients for Prometheus, by prometheus-client, and for OpenTelemetry, by its API for Python.

They are read at a scrape or a collection, from another thread than the client's; records cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.client_metrics import FIGURES, MetricName
from ottla.env.threads import Thread, monotonic_s
from ottla.records.extras import require_extra

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    Family = CounterMetricFamily | GaugeMetricFamily

#: Label of the client's `client.id`; OpenTelemetry has it as `client-id`, as its agent for Java does.
CLIENT_ID: Final = "client_id"
#: The instruments of a meter share figures that are at most so old.
SHARED_S: Final = 1.0


class ClientFigure(NamedTuple):
    """A figure of one client, with its `client.id` and the values of the figure's tags."""

    client_id: str
    tags: tuple[str, ...]
    value: float


class ClientCollector:
    """Gives the figures of producers and consumers when a registry of prometheus-client asks for them."""

    def __init__(self, *clients: Any) -> None:
        self._clients = clients

    def describe(self) -> list[Family]:
        """The metrics' names, for a registry that refuses doubles."""
        return [_family(name, metric) for name, metric in FIGURES.items()]

    def collect(self) -> Iterator[Family]:
        """The figures that the clients have."""
        for name, readings in _read(self._clients).items():
            family = _family(name, FIGURES[name])
            for each in readings:
                family.add_metric([each.client_id, *each.tags], each.value)
            yield family


class MetricsServer:
    """An endpoint over HTTP, in a thread."""

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port listened on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(port: int, *clients: Any, host: str = "127.0.0.1") -> MetricsServer:
    """Serve the figures of producers and consumers at `http://host:port/metrics`; 0 takes any free port.

    Raises MissingExtraError, OSError.
    """
    require_extra("metrics of clients", "metrics", "prometheus_client")
    return serve_collector(host, port, ClientCollector(*clients))


def serve_collector(host: str, port: int, collector: Any) -> MetricsServer:
    """Serve what a collector of prometheus-client gives, and nothing else. Raises OSError."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(collector)
    return MetricsServer(*start_http_server(port, host, registry))


def observe_metrics(meter: Meter, *clients: Any) -> None:
    """Let a meter of OpenTelemetry observe the figures of producers and consumers; those without a value are left out.

    Names and attributes are those of OpenTelemetry's agent for Java.
    """
    readings = _SharedReadings(clients)
    for name, metric in FIGURES.items():
        create = meter.create_observable_counter if _is_counter(name) else meter.create_observable_gauge
        create(observed_name(name), [partial(_observed, name, readings)], description=metric.documentation)


def prometheus_name(name: str) -> str:
    """The name that the JMX exporter makes of a figure by default, in lower case."""
    group = FIGURES[name].group
    return f"kafka_{_kind(group)}_{group}_{name}".replace("-", "_")


def observed_name(name: str) -> str:
    """The name that OpenTelemetry's agent for Java makes of a figure."""
    return f"kafka.{_kind(FIGURES[name].group)}.{name.replace('-', '_')}"


def _kind(group: str) -> str:
    return group.partition("-")[0]


def _is_counter(name: str) -> bool:
    return name.endswith("-total")


def _family(name: str, metric: MetricName) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make: Callable[..., Family] = CounterMetricFamily if _is_counter(name) else GaugeMetricFamily
    return make(prometheus_name(name), metric.documentation, labels=[CLIENT_ID, *metric.tags])


class _SharedReadings:
    """Figures that all instruments of a collection share, as the API for Python has no callback for several.

    A collection calls each instrument once, so a second call of one begins the next collection.
    """

    def __init__(self, clients: Sequence[Any]) -> None:
        self._clients = clients
        self._figures: dict[str, list[ClientFigure]] = {}
        self._given: set[str] = set(FIGURES)
        self._read_s = 0.0

    def of(self, name: str) -> list[ClientFigure]:
        """The values of a figure."""
        if name in self._given or monotonic_s() - self._read_s > SHARED_S:
            self._figures, self._given, self._read_s = _read(self._clients), set(), monotonic_s()
        self._given.add(name)
        return self._figures.get(name, [])


def _observed(name: str, readings: _SharedReadings, options: CallbackOptions) -> Iterator[Observation]:
    from opentelemetry.metrics import Observation

    keys = ("client-id", *FIGURES[name].tags)
    for each in readings.of(name):
        if not isnan(each.value):
            yield Observation(each.value, dict(zip(keys, (each.client_id, *each.tags), strict=True)))


def _read(clients: Sequence[Any]) -> dict[str, list[ClientFigure]]:
    """The figures of clients by name; a figure's tags are split from its name."""
    found: dict[str, list[ClientFigure]] = {}
    for client in clients:
        # Not `metrics` of the client: a consumer refuses another thread while it is used.
        delegate = getattr(client, "delegate", None) or client._delegate
        for figure, value in delegate.metrics().items():
            name, _, tags = figure.rstrip("}").partition("{")
            values = tuple(tag.partition("=")[2] for tag in tags.split(",") if tag)
            found.setdefault(name, []).append(ClientFigure(delegate.config.client_id, values, value))
    return found
