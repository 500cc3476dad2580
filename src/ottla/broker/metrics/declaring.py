"""How a metric of the broker is declared: its name, made of Kafka's MBean where there is one, and its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metrics.registry import VALUES_PER_PIECE, Labelled, MetricDeclaration

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

Read = Callable[["BrokerServices"], float | Labelled]


class BrokerMetric(NamedTuple):
    """A metric of the broker; `mbean` is Kafka's name of it, None if Kafka has no such metric."""

    declaration: MetricDeclaration
    mbean: str | None
    read: Callable[[BrokerServices], Labelled]


def kafka(mbean: str, text: str, read: Read) -> BrokerMetric:
    """A metric that Kafka has, with the name and labels that Strimzi's rules for the JMX exporter give it.

    A property `name=*` of the MBean is a label, whose values `read` returns; any other one has always that value.
    """
    domain, _, rest = mbean.partition(":")
    properties = [each.partition("=") for each in rest.split(",")]
    type_, attribute = [value or key for key, _, value in properties[:2]]
    name = re.sub(r"[.-]", "_", f"{domain}_{type_}_{attribute}".lower())
    name = re.sub("persec$", "_total", re.sub("percent$", "_percent", name))
    constant = {key: value for key, _, value in properties[2:] if value != "*"}
    labels = (*constant, *(key for key, _, value in properties[2:] if value == "*"))
    return _metric(MetricDeclaration(name, text, labels), mbean, read, tuple(constant.values()))


def ottla(name: str, text: str, read: Read, *labels: str) -> BrokerMetric:
    """A metric that only ottla has."""
    return _metric(MetricDeclaration(f"ottla_{name}", text, labels), None, read)


def exporter(name: str, text: str, read: Read, *labels: str) -> BrokerMetric:
    """A metric with the name and labels that kafka_exporter gives it."""
    return _metric(MetricDeclaration(f"kafka_{name}", text, labels), None, read)


def summed(numbers: Callable[[BrokerServices], Iterable[float]]) -> Read:
    """Reads the sum of numbers, of which there may be many, in pieces of work."""

    def read(broker: BrokerServices) -> Labelled:
        total = 0.0
        for count, number in enumerate(numbers(broker), 1):
            total += number
            if count % VALUES_PER_PIECE == 0:
                yield None
        yield (), total

    return read


def _metric(
    declaration: MetricDeclaration, mbean: str | None, read: Read, constant: tuple[str, ...] = ()
) -> BrokerMetric:
    def values(broker: BrokerServices) -> Labelled:
        value = read(broker)
        if isinstance(value, int | float):
            return [(constant, value)]
        return value if not constant else (each and ((*constant, *each[0]), each[1]) for each in value)

    return BrokerMetric(declaration, mbean, values)
