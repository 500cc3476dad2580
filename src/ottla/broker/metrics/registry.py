"""A registry of metrics and their text form, that of Prometheus, which `prometheus-client` writes.

Nothing is counted here: a metric is a name, a help text and a function that reads what its owner has counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

log = logging.getLogger("ottla.broker")

Labelled = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and the value that the metric has for them."""


class MetricKind(Enum):
    """What may become of a value."""

    COUNTER = "counter"
    """It grows until the broker is started again; its name ends in `_total`."""
    GAUGE = "gauge"
    """It goes up and down."""


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """What is known of a metric without its value."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class MetricReading(NamedTuple):
    """A metric with its values at one moment."""

    declaration: MetricDeclaration
    values: list[tuple[tuple[str, ...], float]]


class MetricsRegistry:
    """All metrics of a process, in the order in which they were added."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[MetricDeclaration, Callable[[], Labelled]]] = {}

    def add(self, declaration: MetricDeclaration, read: Callable[[], Labelled]) -> None:
        """Add a metric; `read` gives one value for each combination of labels, for no labels with `()`.

        A name that is there already, and a counter's that does not end in `_total`, are bugs: ValueError.
        """
        name = declaration.name
        if name in self._metrics:
            raise ValueError(f"two metrics are called {name}")
        if (declaration.kind is MetricKind.COUNTER) != name.endswith("_total"):
            raise ValueError(f"{name}: the names of counters, and no others, end in _total")
        self._metrics[name] = (declaration, read)

    def read(self) -> list[MetricReading]:
        """Every metric with its values now. One that cannot be read is left out and logged."""
        readings = []
        for declaration, read in self._metrics.values():
            try:
                readings.append(MetricReading(declaration, list(read())))
            except Exception:
                log.exception("the metric %s cannot be read", declaration.name)
        return readings


class _Families:
    """Readings as `prometheus_client` wants them."""

    def __init__(self, readings: Iterable[MetricReading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        """See `prometheus_client.registry.Collector`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.GAUGE: GaugeMetricFamily}
        for declaration, values in self._readings:
            family = families[declaration.kind](declaration.name, declaration.help, labels=declaration.labels)
            for labels, value in values:
                family.add_metric(labels, value)
            yield family


def text_of(readings: Iterable[MetricReading]) -> bytes:
    """The readings in Prometheus's text format (version 0.0.4). Raises ImportError without `prometheus-client`."""
    from prometheus_client import generate_latest

    return generate_latest(_Families(readings))
