"""Brokers with a ZooKeeper that the programs of 0.8.2.2 can go to themselves."""

from __future__ import annotations

import pytest

from support.zk_clusters import Cluster


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("ottla_on_apache", marks=pytest.mark.long),
        pytest.param("apache_on_ottla", marks=pytest.mark.long),
        pytest.param("apache", marks=pytest.mark.long),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of them in turn; those with Apache Kafka in long runs, to see what is right."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found
