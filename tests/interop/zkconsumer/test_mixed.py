"""Consumers of 0.8.2.2 and ours in one group: they share partitions, and read on from each other's offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop.zkconsumer.conftest import Cluster, Group
from ottla.zkconsumer import Whitelist
from support.old_consumers import OldConsumer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.needs_082, pytest.mark.slow, pytest.mark.spec("Z4", "Z6", "A7")]


def values(consumer: OldConsumer) -> list[int]:
    return sorted(int(got.value) for got in consumer.got())


@pytest.mark.parametrize("storage", ["zookeeper", pytest.param("kafka", marks=pytest.mark.long)])
def test_one_group_of_both(
    cluster: Cluster, group: Group, unique: str, old_consumer: Callable[..., OldConsumer], storage: str
) -> None:
    cluster.create(unique, 5)
    cluster.produce(unique, 5, 50)
    settings = {"offsets.storage": storage}
    theirs = old_consumer("c1", group=group.name, subscription=f"{unique}:2", settings=settings)
    wait_until(lambda: values(theirs) == list(range(50)), "theirs to read all")
    ours = group.start({unique: 2}, consumer_id="c2", offsets_storage=storage)
    group.wait_until_owned_by(unique, {0: "c1-0", 1: "c1-0", 2: "c1-1", 3: "c2-0", 4: "c2-1"})
    cluster.produce(unique, 5, 50, first=50)
    wait_until(lambda: set(values(theirs)) | set(ours.values) == set(range(100)), "both to read all")
    assert {partition for partition, _, _ in ours.got} == {3, 4}
    assert min(ours.values) >= 50
    theirs.close()
    group.wait_until_owned_by(unique, {0: "c2-0", 1: "c2-0", 2: "c2-0", 3: "c2-1", 4: "c2-1"})
    cluster.produce(unique, 5, 50, first=100)
    wait_until(lambda: set(range(100, 150)) <= set(ours.values), "ours to read all")
    assert min(value for value in ours.values if value % 5 < 3) >= 100  # what theirs had read is not read again
    ours.close()
    assert group.offsets(unique, 5) == [30] * 5
    again = old_consumer("c3", group=group.name, subscription=f"{unique}:1", settings=settings)
    cluster.produce(unique, 5, 5, first=150)
    wait_until(lambda: values(again) == list(range(150, 155)), "theirs to read the rest, and no more")
    again.close()


def test_filters_of_both(cluster: Cluster, group: Group, unique: str, old_consumer: Callable[..., OldConsumer]) -> None:
    first, second = f"{unique}-a", f"{unique}-b"
    cluster.create(first, 2)
    pattern = f"{unique}-.*"
    ours = group.connect(consumer_id="c1")
    ours.read(ours.connector.create_message_streams_by_filter(Whitelist(pattern)))
    theirs = old_consumer("c2", group=group.name, subscription=f"white_list:{pattern}:1")
    group.wait_until_owned_by(first, {0: "c1-0", 1: "c2-0"})
    cluster.create(second, 2)
    group.wait_until_owned_by(second, {0: "c1-0", 1: "c2-0"})
    cluster.produce(first, 2, 10)
    cluster.produce(second, 2, 10, first=10)
    wait_until(lambda: set(values(theirs)) | set(ours.values) == set(range(20)), "both to read all")
    theirs.close()
