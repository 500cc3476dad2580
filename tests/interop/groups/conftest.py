"""The brokers that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.groups.brokers import GroupBrokers
from support.apache import ApacheZooKeeper


@pytest.fixture(scope="package")
def group_brokers(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper
) -> Iterator[GroupBrokers]:
    """ottla and Apache Kafka with short sessions: use groups of your own."""
    brokers = GroupBrokers.start(tmp_path_factory.mktemp("groups"), apache_zookeeper)
    yield brokers
    brokers.stop()
