"""The metrics and the health of one broker from its start to its stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metrics.lag_figures import LagFigures

if TYPE_CHECKING:
    from ottla.broker.metrics.endpoint import MetricsEndpoint
    from ottla.broker.services import BrokerServices
    from ottla.env.network import EventLoop, ListeningSocket, ServerNetwork


class MetricsService:
    """Call `bind`, `start`, `started` and `stopping` in this order to serve metrics and health; `close` at any time."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._listening: ListeningSocket | None = None
        self._endpoint: MetricsEndpoint | None = None
        self.lags = LagFigures()

    @property
    def left_out(self) -> int:
        """Metrics that could not be read, or had too many values."""
        registry = None if self._endpoint is None else self._endpoint.registry
        return 0 if registry is None else len(registry.left_out)

    @property
    def port(self) -> int | None:
        """The metrics port; None if metrics are not served."""
        return None if self._endpoint is None else self._endpoint.port

    def bind(self, network: ServerNetwork) -> None:
        """Bind the configured port, if any. Raises NetworkError with the cause."""
        config = self._broker.config
        if config.get_int("ottla.metrics.port") < 0:
            return
        # Imported late: most brokers serve no metrics and start sooner without these modules.
        from ottla.broker.metrics.endpoint import listen_for_scrapes

        self._listening = listen_for_scrapes(config, network)

    def start(self, loop: EventLoop) -> None:
        """Start to answer: the broker lives, and is not ready."""
        if self._listening is not None:
            from ottla.broker.metrics.endpoint import TLS_LISTENER, MetricsEndpoint

            secured = self._broker.config.get_string_or_none(TLS_LISTENER)
            tls = None if secured is None else self._broker.listener_tls.terms[secured]
            self._endpoint = MetricsEndpoint(loop, self._listening, self._broker.slices, self._broker.executor, tls)

    def started(self) -> None:
        """Answer scrapes, and say whether the broker is ready."""
        if self._endpoint is not None:
            from ottla.broker.metrics.catalogue import broker_registry
            from ottla.broker.metrics.health import not_ready

            self._endpoint.registry = broker_registry(self._broker)
            self._endpoint.not_ready = partial(not_ready, self._broker)

    def stopping(self) -> None:
        """Say that the broker is not ready any more."""
        if self._endpoint is not None:
            from ottla.broker.metrics.endpoint import because

            self._endpoint.not_ready = partial(because, "the broker stops")

    def close(self) -> None:
        """Stop answering scrapes."""
        if self._endpoint is not None:
            self._endpoint.close()
        elif self._listening is not None:
            self._listening.close()
        self._listening = self._endpoint = None
