"""Clients of both kinds, with an event loop and without, for tests that hold for either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.client_facades import FACADES, Facade


@pytest.fixture(params=FACADES)
def facade(request: pytest.FixtureRequest) -> Iterator[Facade]:
    """Makes clients of one kind; see `support.client_facades`."""
    made = Facade(request.param)
    yield made
    made.close()
