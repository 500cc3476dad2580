"""What happens to three brokers of Apache Kafka while their requests to each other are recorded, scene by scene."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from support.recording_tap import Exchange
from support.tapped_cluster import SETTLE_TIMEOUT_S, TappedCluster
from support.waiting import wait_until

#: So long nothing but idle fetches has to pass before a scene is over.
QUIET_S = 1.5
TOPIC = "three"
#: Each broker leads one partition.
ASSIGNMENT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]

Znodes = dict[str, tuple[str, int, int]]


class Scene(NamedTuple):
    """What was recorded from the end of the scene before on."""

    name: str
    text: str
    began_ms: int
    exchanges: list[Exchange]
    #: Path to data, version and czxid, at its end.
    znodes: Znodes


class Stage:
    """Plays scenes and gathers what is recorded."""

    def __init__(self, cluster: TappedCluster, is_idle: Callable[[Exchange], bool]) -> None:
        self.cluster = cluster
        self.scenes: list[Scene] = []
        self._is_idle = is_idle

    def play(self, name: str, act: Callable[[TappedCluster], object]) -> None:
        """Do it, wait until the brokers have no more to say about it, and take down what they said."""
        began_ms = time.time_ns() // 1_000_000
        act(self.cluster)
        self._wait_for_quiet()
        text = (act.__doc__ or "").strip()
        exchanges = self.cluster.recording.taken()
        self.scenes.append(Scene(name, text, began_ms, exchanges, self._znodes()))

    def _wait_for_quiet(self) -> None:
        def last() -> int:
            # What is not answered yet is a fetch that waits, or somebody who is dead.
            busy = [one for one in self.cluster.recording.exchanges() if one.answered and not self._is_idle(one)]
            return max((one.answered for one in busy), default=0)

        seen, since = last(), time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = last()
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_S

        wait_until(quiet, "silence between the brokers", SETTLE_TIMEOUT_S, 0.2)

    def _znodes(self) -> Znodes:
        found: Znodes = {}
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            data, stat = self.cluster.zk.get(path)
            found[path] = ((data or b"").decode(), stat.version, stat.czxid)
            waiting += [
                f"{path.rstrip('/')}/{name}" for name in self.cluster.zk.get_children(path) if name != "zookeeper"
            ]
        return dict(sorted(found.items()))


def admin(cluster: TappedCluster, ask: Callable[[AdminClient], Any]) -> None:
    """Ask for something by futures, and wait until all are done."""
    running = [broker.bootstrap for broker in cluster.brokers.values() if broker.server.server.running]
    # It ends with its last reference, and all it does with it.
    client = AdminClient({"bootstrap.servers": ",".join(running)})
    for future in ask(client).values():
        future.result(60)


def start_three_brokers(cluster: TappedCluster) -> None:
    """Brokers 1, 2 and 3 start one after the other on an empty ZooKeeper."""
    cluster.start_all()


def create_a_topic(cluster: TappedCluster) -> None:
    """CreateTopics of `three` with the replicas [1,2,3], [2,3,1], [3,1,2], and min.insync.replicas=2."""
    topic = NewTopic(TOPIC, 3, replica_assignment=ASSIGNMENT, config={"min.insync.replicas": "2"})
    admin(cluster, lambda client: client.create_topics([topic]))
    cluster.wait_for_isr(TOPIC)


def produce(cluster: TappedCluster) -> None:
    """An idempotent producer with acks=all sends four records to each partition, one by one."""
    send(cluster, range(4))


def send(cluster: TappedCluster, numbers: range, partitions: tuple[int, ...] = (0, 1, 2)) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in numbers:
        for partition in partitions:
            producer.produce(TOPIC, f"record {number}", partition=partition)
        assert producer.flush(60) == 0


def delete_records(cluster: TappedCluster) -> None:
    """DeleteRecords below offset 2 of each partition: the followers learn the new start of the log."""
    below = [TopicPartition(TOPIC, partition, 2) for partition in range(3)]
    admin(cluster, lambda client: client.delete_records(below))


def shrink_and_expand(cluster: TappedCluster) -> None:
    """Broker 3 stands still (SIGSTOP) for less than its session while records come: its leaders' ISR shrinks.

    Then it goes on, and the ISR grows again. Both by AlterPartition.
    """
    cluster.brokers[3].pause()
    send(cluster, range(4, 6), partitions=(0, 1))
    wait_until(lambda: 3 not in (cluster.partition(TOPIC, 0) or {"isr": [3]})["isr"], "a smaller ISR", interval_s=0.05)
    cluster.brokers[3].resume()
    cluster.wait_for_isr(TOPIC)


def kill_a_broker(cluster: TappedCluster) -> None:
    """kill -9 of broker 3, which leads partition 2; records are produced while it is away."""
    cluster.brokers[3].kill9()
    cluster.wait_until_gone(3)
    cluster.wait_for_isr(TOPIC, {1, 2})
    send(cluster, range(20, 22))


def bring_it_back(cluster: TappedCluster) -> None:
    """Broker 3 starts again on its disk and joins the ISR."""
    cluster.start(3)
    cluster.wait_for_isr(TOPIC)


def shut_down(cluster: TappedCluster) -> None:
    """SIGTERM to broker 2: controlled shutdown."""
    cluster.brokers[2].stop()
    cluster.wait_until_gone(2)
    cluster.wait_for_isr(TOPIC, {1, 3})


def start_it_again(cluster: TappedCluster) -> None:
    """Broker 2 starts again after its controlled shutdown."""
    cluster.start(2)
    cluster.wait_for_isr(TOPIC)


def elect_preferred(cluster: TappedCluster) -> None:
    """ElectLeaders for all partitions of the cluster, type preferred."""
    elect(cluster, ElectionType.PREFERRED, None)
    wait_until(
        lambda: [(cluster.partition(TOPIC, number) or {}).get("leader") for number in range(3)] == [1, 2, 3],
        "the preferred leaders",
    )


def diverge(cluster: TappedCluster) -> None:
    """Records with acks=1 reach broker 3, leader of partition 2, while the others stand still; then it dies.

    Its followers go on and one of them becomes leader; records are produced. See the next scene.
    """
    for broker_id in (1, 2):
        cluster.brokers[broker_id].pause()
    producer = Producer({"bootstrap.servers": cluster.brokers[3].bootstrap, "acks": "1"})
    for number in range(3):
        producer.produce(TOPIC, f"lost {number}", partition=2)
    assert producer.flush(4) == 0
    cluster.brokers[3].kill9()
    for broker_id in (1, 2):
        cluster.brokers[broker_id].resume()
    cluster.wait_until_gone(3)
    cluster.wait_for_isr(TOPIC, {1, 2})
    send(cluster, range(30, 32))


def truncate(cluster: TappedCluster) -> None:
    """Broker 3 is back with records that no one else has: its fetch is answered with a diverging epoch."""
    cluster.start(3)
    cluster.wait_for_isr(TOPIC)


def kill_the_controller(cluster: TappedCluster) -> None:
    """kill -9 of the controller, broker 1."""
    assert cluster.controller() == 1
    cluster.brokers[1].kill9()
    cluster.wait_for_controller(but=1)
    cluster.wait_for_isr(TOPIC, {2, 3})


def bring_the_controller_back(cluster: TappedCluster) -> None:
    """Broker 1 starts again; another one is controller now."""
    cluster.start(1)
    cluster.wait_for_isr(TOPIC)


def return_with_an_empty_disk(cluster: TappedCluster) -> None:
    """Broker 1 is killed, loses its disk and starts again: it begins at offset 0, where the leader has nothing left."""
    cluster.brokers[1].kill9()
    cluster.wait_until_gone(1)
    cluster.wait_for_isr(TOPIC, {2, 3})
    cluster.brokers[1].wipe()
    cluster.start(1)
    cluster.wait_for_isr(TOPIC)


def add_a_partition(cluster: TappedCluster) -> None:
    """CreatePartitions: a fourth partition with the replicas [2,1,3]."""
    wanted = NewPartitions(TOPIC, 4, replica_assignment=[[2, 1, 3]])
    admin(cluster, lambda client: client.create_partitions([wanted]))
    wait_until(lambda: cluster.partition(TOPIC, 3), "the partition")
    cluster.wait_for_isr(TOPIC)


def reassign(cluster: TappedCluster) -> None:
    """A topic `moved` on [1,2] goes to [3,2] (AlterPartitionReassignments): a replica is added, then one removed."""
    admin(cluster, lambda client: client.create_topics([NewTopic("moved", 1, replica_assignment=[[1, 2]])]))
    cluster.wait_for_isr("moved")
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]}
    path = cluster.folder / "plan.json"
    path.write_text(json.dumps(plan))
    cluster.tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--reassignment-json-file",
        str(path),
        "--execute",
    )
    wait_until(
        lambda: (
            (cluster.znode("/brokers/topics/moved") or {}).get("partitions") == {"0": [3, 2]}
            and not (cluster.znode("/brokers/topics/moved") or {})["adding_replicas"]
        ),
        "the end of the reassignment",
    )
    cluster.wait_for_isr("moved")


def delete_a_topic(cluster: TappedCluster) -> None:
    """DeleteTopics of `three`, with all brokers there."""
    admin(cluster, lambda client: client.delete_topics([TOPIC]))
    wait_until(lambda: not cluster.partitions(TOPIC), "the end of the topic")


def elect_unclean(cluster: TappedCluster) -> None:
    """A topic `two` on [2,3] loses 3, then 2; 3 comes back and is elected though it is not in the ISR; 2 follows."""
    admin(cluster, lambda client: client.create_topics([NewTopic("two", 1, replica_assignment=[[2, 3]])]))
    cluster.wait_for_isr("two")
    cluster.brokers[3].kill9()
    cluster.wait_until_gone(3)
    cluster.wait_for_isr("two", {2})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("two", "only on 2", partition=0)
    assert producer.flush(60) == 0
    cluster.brokers[2].kill9()
    cluster.wait_until_gone(2)
    wait_until(lambda: (cluster.partition("two", 0) or {}).get("leader") == -1, "no leader")
    cluster.start(3)
    elect(cluster, ElectionType.UNCLEAN, [TopicPartition("two", 0)])
    cluster.wait_for_isr("two", {3})
    cluster.start(2)
    cluster.wait_for_isr("two")


def elect(cluster: TappedCluster, kind: ElectionType, partitions: list[TopicPartition] | None) -> None:
    """ElectLeaders, until it succeeds for all these partitions (for all there are, where None)."""
    running = [broker.bootstrap for broker in cluster.brokers.values() if broker.server.server.running]
    client = AdminClient({"bootstrap.servers": ",".join(running)})

    def elected() -> bool:
        result = client.elect_leaders(kind, partitions).result(60)
        return all(error is None for error in result.values())

    wait_until(elected, "the election", interval_s=0.5)


#: In their order: each begins where the one before ended.
SCENES: dict[str, Callable[[TappedCluster], None]] = {
    "01-start": start_three_brokers,
    "02-create-topic": create_a_topic,
    "03-produce": produce,
    "04-delete-records": delete_records,
    "05-shrink-and-expand": shrink_and_expand,
    "06-kill": kill_a_broker,
    "07-return": bring_it_back,
    "08-controlled-shutdown": shut_down,
    "09-start-again": start_it_again,
    "10-preferred-election": elect_preferred,
    "11-diverge": diverge,
    "12-truncate": truncate,
    "13-controller-killed": kill_the_controller,
    "14-controller-back": bring_the_controller_back,
    "15-empty-disk": return_with_an_empty_disk,
    "16-add-partition": add_a_partition,
    "17-reassign": reassign,
    "18-delete-topic": delete_a_topic,
    "19-unclean-election": elect_unclean,
}
