"""A broker is killed with SIGKILL at each named point of moves between its log directories, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client.admin.model import NewTopic, TopicPartitionReplica
from ottla.client.errors import ClientError
from ottla.client.sync import Admin
from support import killed_mover
from support.acknowledged_load import AcknowledgedLoad
from support.controller import wait_until_all_are_known
from support.ottla_server import OttlaServer
from support.ottla_zookeeper import OttlaZooKeeper
from support.ports import free_port
from support.replica_files import wait_until_equal
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "L9")]

AFTER_COPYING = ("flushed", "marked", "prepared", "renamed", "synced", "retired", "stored")
#: Where it is killed, and at which time of getting there.
POINTS = [
    "copied:1",
    "copied:5",
    "flushed:1",
    "marked:1",
    "prepared:1",
    "renamed:1",
    "synced:1",
    "retired:1",
    "stored:1",
]
SETTINGS = {"log.segment.bytes": "10000", "offsets.topic.num.partitions": "1"}


class KillableServer(OttlaServer):
    """A broker with two log directories that kills itself at a point of a move."""

    @property
    def log_dirs(self) -> list[Path]:
        return [Path(each) for each in str(self.data).split(",")]

    @property
    def _point(self) -> Path:
        return self.folder / "kill-at"

    def kill_at(self, point: str) -> None:
        """Have it kill itself there, in its present life."""
        self._point.write_text(point)

    def restart(self) -> OttlaServer:
        self._point.unlink(missing_ok=True)
        return super().restart()

    def command(self) -> list[str]:
        self.env[killed_mover.KILL_AT] = str(self._point)
        command = super().command()
        at = command.index("-m")
        return [*command[:at], str(Path(killed_mover.__file__)), *command[at + 2 :]]

    def home(self, name: str) -> Path:
        """The log directory where the partition is served."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            topic, _, index = name.rpartition("-")
            broker = next(node.node_id for node in admin.describe_cluster().nodes if node.port == self.port)
            replica = TopicPartitionReplica(topic, int(index), broker)
            found = admin.describe_replica_log_dirs([replica])[replica]
            return Path(found.log_dir or "") if found.future_log_dir is None else Path()

    def move(self, name: str, to: Path) -> None:
        """Ask for a move; the broker may be killed before it answers."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            topic, _, index = name.rpartition("-")
            broker = next(node.node_id for node in admin.describe_cluster().nodes if node.port == self.port)
            try:
                admin.alter_replica_log_dirs(
                    {TopicPartitionReplica(topic, int(index), broker): str(to)}, timeout_ms=5000
                )
            except ClientError:
                assert not self.server.running

    def other(self, name: str) -> Path:
        """The log directory where the partition is not."""
        home = self.home(name)
        return next(each for each in self.log_dirs if each != home)

    def is_settled(self, name: str, home: Path) -> bool:
        return self.home(name) == home


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KillableServer]:
    data = Path(f"{tmp_path}/one,{tmp_path}/two")
    server = KillableServer(tmp_path, data=data, port=free_port(), overrides=SETTINGS)
    yield server
    if server.server.running:
        server.kill9()


def test_killed_at_each_point(server: KillableServer) -> None:
    server.start()
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 1)])
    with AcknowledgedLoad(server.bootstrap, "t", 1) as load:
        load.wait_for_more(300)
        for point in POINTS:
            there = server.other("t-0")
            server.kill_at(point)
            server.move("t-0", there)
            wait_until(lambda: not server.server.running, f"the end at {point}")
            server.restart()
            wait_until(lambda there=there: server.is_settled("t-0", there), f"the end of the move after {point}")  # type: ignore[misc]
            load.wait_for_more(20)
    load.check()
    there = server.home("t-0")
    names = [path.name for each in server.log_dirs for path in each.glob("t-0*") if not path.name.endswith("-delete")]
    assert names == ["t-0"]
    assert (there / "t-0").is_dir()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_in_a_cluster(tmp_path: Path, seed: int) -> None:
    """Three brokers move their replicas to and fro, and one of them is killed, now and then."""
    chosen = random.Random(seed)
    with ExitStack() as stack:
        zookeeper = OttlaZooKeeper(tmp_path / "zookeeper").start()
        stack.callback(zookeeper.stop)
        servers = []
        for broker in (1, 2, 3):
            folder = tmp_path / str(broker)
            folder.mkdir()
            server = KillableServer(
                folder,
                data=Path(f"{folder}/one,{folder}/two"),
                port=free_port(),
                overrides=SETTINGS
                | {"zookeeper.session.timeout.ms": "6000", "offsets.topic.replication.factor": "3"}
                | {"replica.lag.time.max.ms": "4000"},
                arguments=["--id", str(broker), "--zookeeper", zookeeper.connect],
            )
            servers.append(server.start())
            stack.callback(server.kill9)
        wait_until_all_are_known([server.bootstrap for server in servers])
        bootstrap = ",".join(server.bootstrap for server in servers)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2, 3)])
        with AcknowledgedLoad(bootstrap, "t", 2) as load:
            load.wait_for_more(200)
            for _ in range(12):
                server = chosen.choice(servers)
                name = f"t-{chosen.randrange(2)}"
                server.move(name, server.other(name))
                if chosen.random() < 0.6:
                    load.wait_for_more(chosen.randrange(1, 60))
                    server.kill9()
                    server.restart()
                load.wait_for_more(50)
        load.check()
        for name in ("t-0", "t-1"):
            wait_until(lambda name=name: all(server.home(name).name for server in servers), "the end of all moves")  # type: ignore[misc]
            wait_until_equal([server.home(name) for server in servers], "t", int(name[-1]))
