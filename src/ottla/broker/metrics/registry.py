"""A registry of metrics and their Prometheus text format, which `prometheus-client` writes.

Nothing is counted here: a metric is a name, a help text and a function that reads its owner's counter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

log = logging.getLogger("ottla.broker")

MOST_VALUES = 100_000
"""Most values of one metric; one that has more is left out."""
PROCESS_METRICS = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""What `prometheus-client` adds on Linux, of every program."""

Labelled = Iterable[tuple[tuple[str, ...], float] | None]
"""Label values, and the metric's value for them; None where a piece of work ends that gives no value."""
VALUES_PER_PIECE = 256
"""Values that are read in one piece of work on the loop."""


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """A metric's name, help text and labels.

    One whose name ends in `_total` is a counter, which grows until the broker restarts; a gauge can go up and down.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_counter(self) -> bool:
        """Whether it only grows, by its name, as Prometheus has it."""
        return self.name.endswith("_total")


class MetricReading(NamedTuple):
    """A metric and its values at one moment."""

    declaration: MetricDeclaration
    values: list[tuple[tuple[str, ...], float]]


class MetricsRegistry:
    """All metrics of a process, in order of registration."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[MetricDeclaration, Callable[[], Labelled]]] = {}
        #: Metrics that had too many values, or could not be read, at the last scrape.
        self.left_out: set[str] = set()
        #: Those of them with too many values that were logged.
        self._logged: set[str] = set()

    def add(self, declaration: MetricDeclaration, read: Callable[[], Labelled]) -> None:
        """Add a metric; `read` returns one value per combination of labels (`()` for a metric without labels).

        Raises ValueError for a duplicate name.
        """
        if declaration.name in self._metrics:
            raise ValueError(f"two metrics are called {declaration.name}")
        self._metrics[declaration.name] = (declaration, read)

    def read(self) -> Iterator[MetricReading | None]:
        """Read one metric after the other; None ends a piece of work between them.

        One that fails or has too many values is left out, and logged.
        """
        for declaration, read in self._metrics.values():
            values: list[tuple[tuple[str, ...], float]] = []
            try:
                for value in read():
                    if value is not None:
                        values.append(value)
                    if len(values) > MOST_VALUES:
                        break
                    if value is None or not len(values) % VALUES_PER_PIECE:
                        yield None
            except Exception:
                log.exception("the metric %s cannot be read", declaration.name)
                self.left_out.add(declaration.name)
                continue
            if len(values) <= MOST_VALUES:
                self.left_out.discard(declaration.name)
                yield MetricReading(declaration, values)
                continue
            self.left_out.add(declaration.name)
            if declaration.name not in self._logged:
                self._logged.add(declaration.name)
                log.warning("the metric %s is left out: it has more than %d values", declaration.name, MOST_VALUES)


class _Families:
    """Adapts readings to a `prometheus_client` collector."""

    def __init__(self, readings: Iterable[MetricReading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        from prometheus_client import ProcessCollector
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for declaration, values in self._readings:
            kind = CounterMetricFamily if declaration.is_counter else GaugeMetricFamily
            family = kind(declaration.name, declaration.help, labels=declaration.labels)
            for labels, value in values:
                family.add_metric(labels, value)
            yield family
        yield from ProcessCollector(registry=None).collect()


def text_of(readings: Iterable[MetricReading]) -> bytes:
    """The readings in Prometheus's text format (version 0.0.4). Raises ImportError without `prometheus-client`."""
    from prometheus_client import generate_latest

    return generate_latest(_Families(readings))
