"""A group of ottla's consumer, kafka-python and librdkafka, whose coordinator is killed again and again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from interop.cluster.watched_group import KINDS, OFFSETS_TOPIC, SETTINGS, WatchedGroup
from ottla.testing import Cluster

# A client of kafka-python that was closed may leave a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def killed() -> Iterator[WatchedGroup]:
    with Cluster(3, settings=SETTINGS) as cluster:
        made = WatchedGroup(cluster, 2 * KINDS)
        try:
            made.settle()
            yield made
        finally:
            made.close()


def check_killed(killed: WatchedGroup, kills: int, seed: int) -> None:
    cluster, chance = killed.cluster, random.Random(seed)
    times = []
    for number in range(kills):
        cluster.wait_until_in_sync(OFFSETS_TOPIC)
        former = killed.coordinator()
        if number % 2:
            killed.replace_one(chance)
        time.sleep(chance.uniform(0, 0.5))  # sleep: the moment of the kill is drawn by lot
        began = time.monotonic()
        cluster.kill(former)
        elected_s = time.monotonic() - began
        killed.settle()
        times.append(time.monotonic() - began)
        killed.check_commits()
        group = killed.seen()
        assert group is not None
        print(
            f"kill {number + 1}: coordinator {former} -> {killed.coordinator()}, killed in {elected_s:.2f} s, "
            f"settled after {times[-1]:.2f} s, generation {group.generation_id}"
        )
        cluster.restart(former)
    times.sort()
    print(
        f"{kills} kills: settled after {times[len(times) // 2]:.2f} s (median), {times[-1]:.2f} s (longest); "
        f"{killed.ledger.commits} commits"
    )
    assert not killed.ledger.wrong


@pytest.mark.spec("G10", "G11")
def test_the_coordinator_is_killed_again_and_again(killed: WatchedGroup) -> None:
    check_killed(killed, 2, 1)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.spec("G10", "G11")
def test_the_coordinator_is_killed_very_often(killed: WatchedGroup) -> None:
    check_killed(killed, 40, 2)
