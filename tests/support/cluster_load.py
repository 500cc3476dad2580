"""A consumer group beside the load on a cluster, and the judges of what the brokers have in the end."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from support.acknowledged_load import AcknowledgedLoad
from support.group_members import GroupMember, double_owners, forgotten_commits, skipped
from support.java import java_command
from support.processes import run_tool
from support.replica_files import wait_until_equal
from support.tapped_cluster import TappedCluster
from support.waiting import wait_until

GROUP = "readers"
OFFSETS = "__consumer_offsets"
#: One member on each; a JVM, librdkafka, and ottla's own client.
CLIENTS = ("java", "librdkafka", "ottla")
SESSION_MS = 15_000
SETTLE_S = 120.0
VERIFY_S = 60.0
METADATA_S = 60.0
_LAG = re.compile(r"max lag is (\d+) for partition (\S+)")


@contextmanager
def members(cluster: TappedCluster, folder: Path, topic: str) -> Iterator[Sequence[GroupMember]]:
    """A group on several makes of clients, which commits after each round; killed in the end, if it has not left."""
    with ExitStack() as stack:
        found = []
        for client in CLIENTS:
            member = GroupMember(
                client,
                client,
                folder,
                bootstrap=cluster.bootstrap,
                group=GROUP,
                topic=topic,
                assignors=["range"],
                session_ms=SESSION_MS,
            )
            stack.callback(member.kill9)
            found.append(member)
        yield found


def wait_until_read(load: AcknowledgedLoad, members: Sequence[GroupMember]) -> None:
    """Until these members have consumed all that is acknowledged now."""
    wanted = {partition: len(found) for partition, found in load.acknowledged.items()}

    def ends() -> dict[int, int]:
        found = dict.fromkeys(wanted, 0)
        for member in members:
            for partition, _, last in member.consumed():
                found[partition] = max(found[partition], last + 1)
        return found

    def story() -> str:
        stories = "\n".join(member.story() for member in members)
        return f"{wanted} records of each partition consumed, not {ends()}\n{stories}"

    wait_until(lambda: all(end >= wanted[partition] for partition, end in ends().items()), story, SETTLE_S, 0.2)


def check_group(load: AcknowledgedLoad, *generations: Sequence[GroupMember]) -> None:
    """Nothing is skipped, each new owner began where was committed, and no two had a partition at one time."""
    everybody = [member for generation in generations for member in generation]
    assert not skipped(everybody, {partition: len(found) for partition, found in load.acknowledged.items()})
    assert not forgotten_commits(everybody)
    for generation in generations:
        assert not double_owners(generation)


def coordinator(cluster: TappedCluster) -> int:
    """The id of the broker that coordinates the group."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found: int = admin.describe_consumer_groups([GROUP])[GROUP].result(SETTLE_S).coordinator.id
    return found


def wait_until_agreed(cluster: TappedCluster) -> None:
    """Until the metadata of each broker has all brokers at their addresses, and the controller."""
    wanted = {(broker_id, broker.bootstrap) for broker_id, broker in cluster.brokers.items()}
    for broker in cluster.brokers.values():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def agrees(admin: AdminClient = admin) -> bool:
            found = admin.list_topics(timeout=METADATA_S)
            seen = {(one.id, f"{one.host}:{one.port}") for one in found.brokers.values()}
            return (seen, found.controller_id) == (wanted, cluster.controller())

        wait_until(agrees, f"all brokers in the metadata of {broker.maker} {broker.broker_id}")


def check_replicas(cluster: TappedCluster, *topics: str) -> None:
    """All replicas are equal batch for batch; Apache Kafka's own tool and `ottla log verify` find nothing wrong."""
    for topic in topics:
        partitions = cluster.partitions(topic)
        assert partitions, f"no topic {topic}"
        for partition, replicas in partitions.items():
            wait_until_equal([cluster.brokers[replica].log_dir for replica in replicas], topic, partition)
    verify_over_the_wire(cluster, *topics)
    for broker in cluster.brokers.values():
        run_tool([sys.executable, "-m", "ottla", "log", "verify", str(broker.log_dir)])


def verify_over_the_wire(cluster: TappedCluster, *topics: str) -> None:
    """Let Apache Kafka's `ReplicaVerificationTool` fetch from all replicas until it finds no lag: it never ends."""
    wanted = "|".join(topics)
    command = java_command(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *("--broker-list", cluster.bootstrap, "--topics-include", wanted, "--report-interval-ms", "1000"),
    )
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:

            def told() -> str:
                out.seek(0)
                return out.read()

            def reports() -> list[str]:
                return [lag for lag, partition in _LAG.findall(told()) if partition != "null"]

            wait_until(lambda: reports()[-1:] == ["0"], told, VERIFY_S, 0.2)
            assert "checksum" not in told(), told()
        finally:
            process.kill()
            process.wait()
