"""Partitions move to and fro between brokers of Apache Kafka and of ottla under load; some moves are cancelled.

Followers that are not in sync are throttled, so that a move takes some seconds, and is cancelled at any point of it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.cluster.mixes import mix
from ottla.client.admin import ConfigResource
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.ops.moves.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from support.acknowledged_load import AcknowledgedLoad
from support.cluster_load import check_replicas
from support.tapped_cluster import Maker, TappedCluster
from support.waiting import wait_until

pytestmark = [
    pytest.mark.needs_kafka,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.spec("R1", "R5", "R8"),
]

TOPIC = "wandering"
PARTITIONS = 3
ROUNDS = 12
#: Bytes of each partition before the moves, and bytes a second that followers copy.
FILLED = 600_000
THROTTLE = 300_000
#: Seconds after which a move is cancelled: it may have ended by then.
CANCELLED_AFTER_S = (0.0, 2.5)
#: A move ends when the followers that it adds have connected and copied.
MOVED_WITHIN_S = 90.0


@pytest.mark.parametrize("makers", [mix("apache", "ottla", "ottla"), mix("ottla", "apache", "apache")])
def test_moves_to_and_fro(tmp_path: Path, makers: Sequence[Maker]) -> None:
    chance = random.Random(f"{makers}")
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    moved = cancelled = 0
    with TappedCluster(tmp_path, makers).prepared() as cluster:
        cluster.start_all()
        assignment = [[1, 2], [2, 3], [3, 1]]
        wanted = NewTopic(TOPIC, PARTITIONS, replica_assignment=assignment, config={"min.insync.replicas": "2"})
        creator = AdminClient({"bootstrap.servers": cluster.bootstrap})
        creator.create_topics([wanted])[TOPIC].result(60)
        cluster.wait_for_isr(TOPIC)
        fill(cluster)
        with (
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
            AcknowledgedLoad(cluster.bootstrap, TOPIC, PARTITIONS) as load,
        ):
            load.wait_for_more()
            throttle(admin, cluster)
            for _ in range(ROUNDS):
                chosen = chance.sample(partitions, chance.randint(1, PARTITIONS))
                moves = {each: chance.sample(sorted(cluster.brokers), 2) for each in chosen}
                admin.alter_partition_reassignments(dict(moves))
                moved += len(moves)
                if chance.random() < 0.5:
                    threading.Event().wait(chance.uniform(*CANCELLED_AFTER_S))
                    cancelled += cancel(admin)
                wait_until(lambda: not admin.list_partition_reassignments(), "the end of the moves", MOVED_WITHIN_S)
                cluster.wait_for_isr(TOPIC)
                load.wait_for_more(50)
            assert cluster.brokers[cluster.controller()].maker == makers[0]
        load.check()
        check_replicas(cluster, TOPIC)
    print(f"{moved} moves, {cancelled} of them cancelled")
    assert cancelled > 0


def fill(cluster: TappedCluster) -> None:
    """Give each partition records that take a while to copy."""
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for index in range(PARTITIONS):
            for _ in range(FILLED // 1_000):
                producer.send(TOPIC, b"f" * 990 + b" 0", partition=index)
        producer.flush()


def throttle(admin: Admin, cluster: TappedCluster) -> None:
    """Have all brokers obey a throttle for all replicas that are not in sync."""
    rates = {LEADER_RATE: str(THROTTLE), FOLLOWER_RATE: str(THROTTLE)}
    changes: dict[ConfigResource, Mapping[str, str | None]] = {
        ConfigResource.broker(broker): rates for broker in cluster.brokers
    }
    changes[ConfigResource.topic(TOPIC)] = {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}
    admin.incremental_alter_configs(changes)


def cancel(admin: Admin) -> int:
    """Cancel what moves; how many were cancelled: some may end meanwhile."""
    moving = admin.list_partition_reassignments()
    if not moving:
        return 0
    try:
        admin.alter_partition_reassignments(dict.fromkeys(moving))
    except PartlyFailedError as error:
        return len(error.values)
    except BrokerError:
        return 0
    return len(moving)
