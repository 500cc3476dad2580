"""What the unit tests of several packages share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.env.environment import Environment
from ottla.peer.cluster import Cluster
from ottla.peer.settings import ConnectionSettings
from support.fake_cluster import DROP, DROP_AFTER, SILENT, FakeCluster
from support.quick_settings import QUICK_CLIENT
from support.virtual_fakes import VirtualFakeCluster


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


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    """One fake broker."""
    cluster = FakeCluster(1)
    yield cluster
    cluster.close()


@pytest.fixture
def virtual_fake() -> Iterator[VirtualFakeCluster]:
    """One fake broker on virtual time."""
    cluster = VirtualFakeCluster(1)
    yield cluster
    cluster.close()


@pytest.fixture
def virtual_fakes() -> Iterator[VirtualFakeCluster]:
    """Three fake brokers on virtual time, for clients with an event loop: `virtual_fakes.run_to_end(work())`."""
    cluster = VirtualFakeCluster(3)
    yield cluster
    cluster.close()


@pytest.fixture
def with_cluster() -> Callable[..., Any]:
    """Run `work(cluster)` in an event loop with a client cluster of these bootstrap servers or fakes."""

    def run(fake: FakeCluster | str, work: Callable[[Cluster], Any], **changes: Any) -> Any:
        async def body(environment: Environment) -> Any:
            bootstrap = fake if isinstance(fake, str) else fake.bootstrap
            cluster = Cluster(ConnectionSettings(bootstrap, **{**QUICK_CLIENT, **changes}), environment)
            try:
                return await work(cluster)
            finally:
                await cluster.close()

        if isinstance(fake, VirtualFakeCluster):
            return fake.run_to_end(body(fake.environment))
        return asyncio.run(body(Environment()))

    return run
