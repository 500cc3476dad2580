"""The brokers that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.both_brokers import BrokerPair
from interop.groups.brokers import GroupBrokers
from interop.groups.player import TOPICS
from interop.raw import RawConnection
from interop.wire_json import Definitions
from support.apache import ApacheZooKeeper


@pytest.fixture(scope="package")
def group_brokers(
    tmp_path_factory: pytest.TempPathFactory, apache_zookeeper: ApacheZooKeeper, definitions: Definitions
) -> Iterator[GroupBrokers]:
    """ottla and Apache Kafka with short sessions and topics for commits: use groups of your own."""
    brokers = GroupBrokers.start(tmp_path_factory.mktemp("groups"), apache_zookeeper)
    try:
        bootstraps = brokers.bootstraps
        with (
            RawConnection(bootstraps["ottla"], definitions) as ours,
            RawConnection(bootstraps["kafka"], definitions) as theirs,
        ):
            for topic in TOPICS:
                BrokerPair(ours, theirs).create_topic(topic, partitions=2)
        yield brokers
    finally:
        brokers.stop()
