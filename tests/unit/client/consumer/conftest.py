"""Consumers over fake brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.client_facades import Facade


@pytest.fixture
def patient(fakes: Any) -> None:
    """Fetches wait for records, as with real brokers."""
    fakes.waits_for_records = True


@pytest.fixture
def open_consumer(fakes: Any, facade: Facade) -> Iterator[Callable[..., Any]]:
    """Makes consumers that read from the beginning and do not wait long; they are closed at the end."""
    opened: list[Any] = []

    def make(**settings: Any) -> Any:
        defaults = {"bootstrap_servers": fakes.bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
        opened.append(facade.consumer(**{**defaults, "retry_backoff_ms": 10, **settings}))
        return opened[-1]

    yield make
    for consumer in opened:
        consumer.close()
