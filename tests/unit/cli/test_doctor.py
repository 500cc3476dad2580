"""`ottla doctor` beside brokers with faults, and beside other servers."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Consumer
from ottla.ops.doctor.reaching import SeenAddresses
from ottla.peer import diagnosis
from ottla.testing import Broker, Cluster
from support import odd_servers
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U2")

FIRST = TopicPartition("orders", 0)


def doctor(servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", "-b", servers, "--interval", "0.1", *arguments])


def faults(servers: str, *arguments: str) -> dict[str, dict[str, Any]]:
    done = doctor(servers, "--json", *arguments)
    found = {row["fault"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == (1 if found else 0), done.output
    return found


@pytest.fixture(scope="module")
def servers() -> Iterator[odd_servers.OddServers]:
    made = odd_servers.OddServers()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (odd_servers.web, "web-server"),
        (odd_servers.zookeeper, "zookeeper"),
        (odd_servers.kafka_0_9, "old-broker"),
        (odd_servers.closing, "not-kafka"),
        (odd_servers.hanging, "no-answer"),
    ],
)
def test_what_else_is_behind_the_port(
    servers: odd_servers.OddServers, serve: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expected != "no-answer":
        monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 60)
    timeout = "0.4" if expected == "no-answer" else "15"
    found = faults(f"127.0.0.1:{servers.start(serve)}", "--timeout", timeout)
    assert list(found) == [expected]


def test_tls_behind_the_port(servers: odd_servers.OddServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 60)
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    port = servers.start(odd_servers.hanging, odd_servers.tls_context(tmp_path))
    assert list(faults(f"127.0.0.1:{port}")) == ["tls-wanted"]


def test_nothing_is_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = doctor(address)
        assert done.exit_code == 1
        assert done.stdout.splitlines()[1].startswith(f"connection-refused  {address}  cannot connect to {address} (")
        assert done.stdout.endswith(". Start the broker, or give the host and port of its `listeners`.\n")
        assert done.stderr == "ottla doctor: no broker can be reached, so that topics and groups were not looked at\n"
        with Broker() as broker:
            found = faults(f"{address},nowhere.invalid:9,{broker.bootstrap_servers}")
    assert {name: row["where"] for name, row in found.items()} == {
        "connection-refused": address,
        "unknown-host": "nowhere.invalid:9",
    }


def test_a_healthy_broker_and_addresses_that_it_should_not_advertise() -> None:
    with Broker({"orders": 1}) as broker:
        broker.send("orders", "one")
        done = doctor(broker.bootstrap_servers)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "no faults found\n", "")
        assert doctor(broker.bootstrap_servers, "--json").stdout == ""
        for address, expected in (
            ("nowhere.invalid:9", "advertised-unknown-host"),
            ("127.0.0.1:1", "advertised-unreachable"),
            (broker.bootstrap_servers, "advertised-elsewhere"),
        ):
            with Broker(settings={"advertised.listeners": f"PLAINTEXT://{address}"}) as wrong:
                (found,) = faults(wrong.bootstrap_servers).values()
            assert (found["fault"], found["where"]) == (expected, "broker 1")
            assert address in found["what"]
        with Broker() as other:
            assert list(faults(f"{broker.bootstrap_servers},{other.bootstrap_servers}")) == ["two-clusters"]


def test_topics_and_a_broker_that_dies() -> None:
    settings = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}
    with Cluster(3, settings=settings) as cluster:
        cluster.create_topic("orders", partitions=3)
        wait_until(lambda: faults(cluster.bootstrap_servers) == {}, "no fault")
        cluster.create_topic("thin", replication_factor=1, unclean_leader_election_enable="true")
        cluster.create_topic("strict", replication_factor=2, min_insync_replicas=3)
        cluster.create_topic("unclean", unclean_leader_election_enable="true", max_message_bytes=200_000_000)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g") as consumer:
            consumer.commit({FIRST: 0})
        found: dict[str, dict[str, Any]] = {}
        expected = {
            "single-replica": "thin",
            "min-isr-above-factor": "strict",
            "offsets-topic-thin": "__consumer_offsets",
            "messages-above-request-limit": "unclean",
            "messages-above-fetch-limit": "unclean",
            "unclean-election-enabled": "unclean",
        }

        def seen() -> dict[str, str]:
            found.clear()
            found.update(faults(cluster.bootstrap_servers))
            return {name: row["where"] for name, row in found.items()}

        wait_until(lambda: seen() == expected, lambda: f"{expected}, and not {found}")
        assert found["single-replica"]["cure"].startswith("`ottla reassign plan --replication-factor 3 --topic thin ")
        cluster.kill(2)
        cluster.wait_for_leader("orders", 2, other_than=2)
        wait_until(lambda: expected.keys() | {"absent-broker"} <= seen().keys(), "absent-broker")


def test_a_cluster_that_names_no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(*_: Any) -> SeenAddresses:
        return SeenAddresses()

    monkeypatch.setattr("ottla.ops.doctor.reaching.look_at_addresses", look)
    done = doctor("127.0.0.1:1")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_no_group_can_begin() -> None:
    with Broker({"orders": 1}, settings={"offsets.topic.replication.factor": 3}) as broker:
        assert list(faults(broker.bootstrap_servers)) == ["offsets-topic-missing"]


def test_to_look_for_a_group_makes_no_topic() -> None:
    with Broker({"orders": 1}) as broker:
        done = doctor(broker.bootstrap_servers, "-g", "nobody")
        assert (done.exit_code, "group nobody does not exist" in done.stderr) == (2, True)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert list(admin.list_topics(list_internal=True)) == ["orders"]


def test_groups() -> None:
    with Broker({"orders": {"partitions": 1, "retention.ms": 1_000_000_000}}) as broker:
        servers = broker.bootstrap_servers
        for value in "abc":
            broker.send("orders", value)
        with Consumer(bootstrap_servers=servers, group_id="beyond") as consumer:
            consumer.commit({FIRST: 10})
        with Consumer(bootstrap_servers=servers, group_id="slow") as consumer:
            consumer.commit({FIRST: 1})
        assert list(faults(servers, "-g", "beyond")) == ["offset-beyond-end"]
        assert list(faults(servers, "-g", "slow")) == ["lag-without-members"]
        settings = {"bootstrap.servers": servers, "group.id": "slow", "enable.auto.commit": False}
        settings["allow.auto.create.topics"] = False
        with Consumer(settings) as consumer:
            consumer.subscribe(["orders", "not-there"])
            while not consumer.assignment():
                consumer.poll(100)
            assert list(faults(servers, "-g", "slow")) == ["subscribed-topic-missing", "no-progress"]
            consumer.commit({FIRST: 3})
            with Admin(bootstrap_servers=servers) as admin:
                admin.delete_records({FIRST: 2})
            assert list(faults(servers)) == ["offset-beyond-end", "subscribed-topic-missing"]
        with Consumer(bootstrap_servers=servers, group_id="slow") as consumer:
            consumer.commit({FIRST: 1})
        broker.send("orders", "d", timestamp_ms=broker.now_ms() + 10**9)
        found = faults(servers, "-g", "slow")
        assert list(found) == ["future-timestamps", "lag-without-members", "offset-out-of-range"]
        assert found["offset-out-of-range"]["what"].startswith("records that it had not read were deleted (1): ")
        done = doctor(servers, "-g", "slwo", "--json")
        assert (done.exit_code, json.loads(done.stdout)["fault"]) == (2, "future-timestamps")
        assert done.stderr.startswith("ottla doctor: group slwo does not exist at ")


def test_a_broker_whose_clock_is_ahead() -> None:
    with Broker({"orders": 1}) as broker:
        broker.advance(minutes=90)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
            consumer.commit({FIRST: 0})
        (found,) = faults(broker.bootstrap_servers).values()
        assert (found["fault"], found["where"]) == ("clock-ahead", "broker 1")
        assert "up to 90 minutes ahead of this machine's clock" in found["what"]


def test_a_log_directory_of_this_machine(tmp_path: Path) -> None:
    with Broker({"orders": 1}, data=str(tmp_path / "data")) as broker, Broker() as other:
        broker.send("orders", "one")
        assert faults(broker.bootstrap_servers, "--data", str(tmp_path / "data")) == {}
        found = faults(other.bootstrap_servers, "--data", str(tmp_path / "data"))
        assert list(found) == ["wrong-cluster"]
        for path, message in ((tmp_path, "no log directory"), (tmp_path / "no", "No such file"), ("", "log.dirs")):
            done = doctor(broker.bootstrap_servers, "--data", str(path))
            assert (done.exit_code, message in done.stderr) == (2, True)


@pytest.mark.parametrize("servers", ["h", "h:x", ""])
def test_addresses_that_cannot_be(servers: str) -> None:
    done = doctor(servers)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
