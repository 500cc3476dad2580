"""What the unit tests of several packages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fake_cluster import DROP, DROP_AFTER, SILENT, FakeCluster


@pytest.fixture
def fakes() -> Iterator[FakeCluster]:
    """Three fake brokers."""
    cluster = FakeCluster(3)
    yield cluster
    cluster.close()


@pytest.fixture
def faults() -> dict[str, str]:
    """The kinds of fault that are no error codes."""
    return {"DROP": DROP, "DROP_AFTER": DROP_AFTER, "SILENT": SILENT}
