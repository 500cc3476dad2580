"""Metrics of requests: how many, how long they take, what waits, and how busy the event loop is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.declaring import BrokerMetric, kafka, ottla
from ottla.broker.metrics.health import not_ready
from ottla.broker.replicas.purgatory import DelayedDeleteRecords, DelayedFetch, DelayedProduce
from ottla.broker.request_figures import TIMED_EVERY, TIMES_KEPT
from ottla.wire.apis import API

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.metrics.registry import Labelled
    from ottla.broker.request_figures import RequestFigures
    from ottla.broker.services import BrokerServices

#: The percentiles of Kafka's histograms, as the exporter writes them.
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
#: What requests wait in, by Kafka's names.
PURGATORIES: Final = {"Produce": DelayedProduce, "Fetch": DelayedFetch, "DeleteRecords": DelayedDeleteRecords}
_REQUESTS: Final = "kafka.network:type=RequestMetrics,name="


def _by_name(broker: BrokerServices) -> Iterator[tuple[str, RequestFigures]]:
    """The figures of each API, and as in Kafka those of fetches also by who fetches."""
    yield from ((API[key].name, figures) for key, figures in broker.dispatcher.requests.items())
    yield from zip(("FetchConsumer", "FetchFollower"), broker.dispatcher.fetches, strict=True)


def _requests(broker: BrokerServices) -> Labelled:
    return [
        ((name, str(version)), count)
        for name, figures in _by_name(broker)
        for version, count in enumerate(figures.by_version)
        if count
    ]


def _times(broker: BrokerServices) -> Labelled:
    quantiles = tuple(map(float, QUANTILES))
    return [
        ((name, quantile), time_ms)
        for name, figures in _by_name(broker)
        for quantile, time_ms in zip(QUANTILES, figures.quantiles_ms(quantiles), strict=False)
    ]


def _ready(broker: BrokerServices) -> Labelled:
    reasons = yield from not_ready(broker)
    yield (), int(not reasons)


def _waiting(broker: BrokerServices) -> Labelled:
    states = (connection.state for connection in broker.connections.snapshot())
    counts = Counter(type(getattr(state, "pending", None)) for state in states)
    return [((name,), counts[kind]) for name, kind in PURGATORIES.items()]


REQUESTS: Final[tuple[BrokerMetric, ...]] = (
    kafka(
        f"{_REQUESTS}RequestsPerSec,request=*,version=*",
        "Requests taken up, by API and version; those of which there was one. Fetch is FetchConsumer and FetchFollower "
        "together.",
        _requests,
    ),
    kafka(
        f"{_REQUESTS}TotalTimeMs,request=*,quantile=*",
        "Milliseconds from a request to its answer, waits included. About one request in "
        f"{TIMED_EVERY} is timed; the quantiles are of the last {TIMES_KEPT} times.",
        _times,
    ),
    kafka(
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
        "Requests that wait: for replicas, for records, for the deletion of records.",
        _waiting,
    ),
    kafka(
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "The part of the last second, from 0 to 1, in which the event loop used no processor.",
        lambda broker: broker.upkeep.loop_lag.idle_share,
    ),
    kafka(
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
        "The same: one event loop handles the network and the requests.",
        lambda broker: broker.upkeep.loop_lag.idle_share,
    ),
    ottla(
        "kept_request_bytes",
        "Bytes of requests that are kept while they are worked on.",
        lambda broker: broker.dispatcher.queued.held,
    ),
    ottla(
        "unsent_response_bytes",
        "Bytes of answers that clients have not taken yet.",
        lambda broker: sum(each.unsent_bytes for each in broker.connections.snapshot()),
    ),
    ottla("ready", "1 if the broker is ready, as `/health/ready` says.", _ready),
)
