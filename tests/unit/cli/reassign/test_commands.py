"""`ottla reassign` and `ottla leader-election` at a cluster: what they show, change, and end with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ottla.cli.main import app
from ottla.client.admin import ConfigResource, TopicPartitionReplica
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin, Producer
from ottla.testing import Cluster
from ottla.wire.apis import ApiKey
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("R1"), pytest.mark.slow]

RATE = "leader.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for number in range(20):
                producer.send("orders", b"record", partition=number % 2)
            producer.flush()
        yield cluster


def ottla(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-b", cluster.bootstrap_servers])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def moves_file(tmp_path: Path, cluster: Cluster, *, count: int = 2) -> tuple[str, dict[int, tuple[int, int]]]:
    """A file that moves each partition to the next broker: its path, and from where to where by partition."""
    moves = {index: cluster.replicas("orders", index)[0] for index in range(count)}
    partitions = [
        {"topic": "orders", "partition": index, "replicas": [(broker + 1) % 3]} for index, broker in moves.items()
    ]
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path), {index: (broker, (broker + 1) % 3) for index, broker in moves.items()}


def test_moves_are_shown_begun_and_verified(cluster: Cluster, tmp_path: Path) -> None:
    path, moves = moves_file(tmp_path, cluster)
    shown = ottla(cluster, "reassign", "execute", path)
    assert (shown.exit_code, "nothing was changed" in shown.stderr) == (1, True)
    assert "2 partitions" in shown.stdout
    assert [cluster.replicas("orders", index) for index in moves] == [(old,) for old, _ in moves.values()]
    assert ottla(cluster, "reassign", "verify", path).exit_code == 1
    back = tmp_path / "back.json"
    begun = ottla(cluster, "reassign", "execute", path, "--yes", "--json", "--save-current", str(back))
    assert begun.exit_code == 0, begun.stderr
    assert [(each["now"], each["new"], each["begun"]) for each in rows(begun)] == [
        ([old], [new], True) for old, new in moves.values()
    ]
    assert ottla(cluster, "reassign", "verify", path, "--wait").exit_code == 0
    verified = ottla(cluster, "reassign", "verify", path, "--json")
    assert [(each["replicas"], each["state"]) for each in rows(verified)] == [
        ([new], "done") for _, new in moves.values()
    ]
    assert ottla(cluster, "reassign", "execute", str(back), "--yes").exit_code == 0
    wait_until(lambda: ottla(cluster, "reassign", "verify", str(back)).exit_code == 0, "the way back")


def test_a_throttle_stands_until_nothing_moves(cluster: Cluster, tmp_path: Path) -> None:
    path, moves = moves_file(tmp_path, cluster, count=1)
    old, new = moves[0]
    cluster.faults(old).disconnect(ApiKey.FETCH)  # so that it does not end
    arguments = ("--yes", "--throttle", "1000000", "--replica-alter-log-dirs-throttle", "5")
    begun = ottla(cluster, "reassign", "execute", path, *arguments)
    assert begun.exit_code == 0, begun.stderr
    assert "ottla reassign verify" in begun.stderr
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:

        def settings() -> tuple[str | None, str | None]:
            broker, topic = ConfigResource.broker(new), ConfigResource.topic("orders")
            found = admin.describe_configs([broker, topic])
            own = {name: entry for name, entry in found[broker].items() if entry.source == "DYNAMIC_BROKER_CONFIG"}
            return own[RATE].value if RATE in own else None, found[topic][REPLICAS].value

        def has(rate: str | None, replicas: str) -> None:
            """Any broker answers for topics: one that has heard of the change, in the end."""
            wait_until(lambda: settings() == (rate, replicas), lambda: f"{rate}, {replicas}: {settings()}")

        has("1000000", f"0:{new}")
        again = ottla(cluster, "reassign", "execute", path, "--yes")
        assert (again.exit_code, "Use --additional to override" in again.stderr) == (2, True)
        assert ottla(cluster, "reassign", "execute", path, "--yes", "--additional", "--throttle", "7").exit_code == 0
        has("7", f"0:{new}")
        assert ottla(cluster, "reassign", "verify", path).exit_code == 1
        (listed,) = rows(ottla(cluster, "reassign", "list", "--json"))
        assert (listed["replicas"], listed["adding"], listed["removing"]) == ([new, old], [new], [old])
        assert "orders" in ottla(cluster, "reassign", "list").stdout
        has("7", f"0:{new}")
        assert ottla(cluster, "reassign", "cancel", path).exit_code == 1
        cancelled = ottla(cluster, "reassign", "cancel", path, "--yes", "--json")
        assert (cancelled.exit_code, rows(cancelled)[0]["cancelled"]) == (0, True)
        has(None, "")
    assert ottla(cluster, "reassign", "list").stdout == "no partition moves\n"
    assert "none of these partitions moves" in ottla(cluster, "reassign", "cancel", path).stdout


def test_what_cannot_be_moved(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    for text, message in (
        ('{"partitions": [{"topic": "orders", "partition": 0, "replicas": [7]}]}', "Unknown broker id 7; the brokers"),
        ('{"partitions": [{"topic": "orders", "partition": 9, "replicas": [1]}]}', "do not exist: orders-9"),
        ('{"partitions": [{"topic": "other", "partition": 0, "replicas": [1]}]}', "do not exist: other-0"),
        ('{"partitions": []}', "moves.json: Partition reassignment list cannot be empty"),
    ):
        path.write_text(text)
        refused = ottla(cluster, "reassign", "execute", str(path), "--yes")
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    for number in (1, 2, "back"):
        (tmp_path / f"grow-{number}.json").write_text("{}")
    for name, message in (("none", "No such file or directory\n"), ("grow.json", "grow-1.json, %s/grow-2.json, one")):
        missing = ottla(cluster, "reassign", "verify", str(tmp_path / name), "--wait")
        assert missing.exit_code == 2
        assert message.replace("%s", str(tmp_path)) in missing.stderr


def test_a_move_that_was_not_begun_is_not_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    path, _ = moves_file(tmp_path, cluster)
    assert ottla(cluster, "reassign", "verify", path, "--wait").exit_code == 1


def test_places_are_proposed(cluster: Cluster, tmp_path: Path) -> None:
    output, topics = tmp_path / "proposal.json", tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "orders"}], "version": 1}')
    told = ottla(cluster, "reassign", "generate", "orders", "--brokers", "2", "--output", str(output))
    assert told.exit_code == 0, told.stderr
    assert "Proposed partition reassignment configuration" in told.stdout
    assert [each["replicas"] for each in json.loads(output.read_text())["partitions"]] == [[2], [2]]
    files = ("--topics-to-move-json-file", str(topics), "--broker-list", "0,1,2", "--disable-rack-aware")
    proposed = rows(ottla(cluster, "reassign", "generate", *files, "--json"))
    assert sorted(each["partition"] for each in proposed) == [0, 1]
    for arguments, message in (
        ((), "name topics"),
        (("orders",), "expected ids of brokers"),
        (("orders", "--brokers", "8"), "Unknown broker id 8"),
        (("other", "--brokers", "1"), "topic other does not exist"),
    ):
        refused = ottla(cluster, "reassign", "generate", *arguments)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr


def test_leaders_are_elected(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        first, _ = cluster.replicas("orders")
        cluster.shut_down(first)
        wait_until(lambda: cluster.leader("orders") == 1 - first, "the other one to lead")
        failed = ottla(cluster, "leader-election", "orders-0")
        assert (failed.exit_code, "PREFERRED_LEADER_NOT_AVAILABLE" in failed.stderr) == (1, True)
        kept = ottla(cluster, "leader-election", "orders-0", "--election-type", "unclean")
        assert (kept.exit_code, "nothing was changed" in kept.stderr) == (1, True)
        unclean = ottla(cluster, "leader-election", "orders-0", "--election-type", "unclean", "--yes", "--json")
        assert rows(unclean) == [{"topic": "orders", "partition": 0, "result": "not needed"}]
        cluster.restart(first)
        cluster.wait_until_in_sync()
        path = tmp_path / "partitions.json"
        path.write_text('{"partitions": [{"topic": "orders", "partition": 0}]}')
        elected = ottla(cluster, "leader-election", "--path-to-json-file", str(path))
        assert (elected.exit_code, "elected" in elected.stdout) == (0, True)
        assert cluster.leader("orders") == first
        named = ottla(cluster, "leader-election", "--topic", "orders", "--partition", "0")
        assert "not needed" in named.stdout
        assert "nothing to elect" in ottla(cluster, "leader-election", "--all").stdout
        both = ottla(cluster, "leader-election", "--all", "orders-0")
        assert (both.exit_code, "not both" in both.output) == (2, True)
        unclean = ottla(cluster, "leader-election", "--election-type", "unclean", "--all", "--yes")
        assert "all partitions have a leader" in unclean.stdout
        nowhere = ottla(cluster, "reassign", "plan", "--even", "--topic", "nope*")
        assert (nowhere.exit_code, "no topic is like nope*" in nowhere.output) == (2, True)
        for arguments, message in (
            ((), "name partitions"),
            (("orders",), "orders: expected a topic and the number of a partition"),
            (("--topic", "orders"), "give --topic and --partition together"),
            (("orders-0", "--all"), "name partitions"),
        ):
            refused = ottla(cluster, "leader-election", *arguments)
            assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
        partly = ottla(cluster, "leader-election", "orders-0", "other-5")
        assert (partly.exit_code, "UNKNOWN_TOPIC_OR_PARTITION" in partly.stderr) == (1, True)
        assert TopicPartition("other", 5).topic in partly.stdout


def test_replicas_move_into_log_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ottla.testing.cluster.IN_MEMORY", "/logs/one,/logs/two")
    with Cluster(2) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.create_topic("orders", replication_factor=1)
        (old,) = cluster.replicas("orders")
        new = 1 - old
        replicas = {broker: TopicPartitionReplica("orders", 0, broker) for broker in (old, new)}
        path = tmp_path / "moves.json"

        def write(brokers: list[int], log_dirs: list[str]) -> None:
            one = {"topic": "orders", "partition": 0, "replicas": brokers, "log_dirs": log_dirs}
            path.write_text(json.dumps({"version": 1, "partitions": [one]}))

        there = admin.describe_replica_log_dirs([replicas[old]])[replicas[old]].log_dir
        elsewhere = "/logs/two" if there == "/logs/one" else "/logs/one"
        # The replica that is there moves, and the other one is made where the file says.
        write([new, old], ["/logs/two", elsewhere])
        assert ottla(cluster, "reassign", "execute", str(path), "--yes").exit_code == 0
        wait_until(lambda: ottla(cluster, "reassign", "verify", str(path)).exit_code == 0, "the end of the moves")
        found = admin.describe_replica_log_dirs(replicas.values())
        assert {broker: found[each].log_dir for broker, each in replicas.items()} == {new: "/logs/two", old: elsewhere}
        verified = rows(ottla(cluster, "reassign", "verify", str(path), "--json"))
        assert [each["state"] for each in verified] == ["done"] * 3
        write([new, old], ["/logs/one", "any"])
        waiting = ottla(cluster, "reassign", "verify", str(path))
        assert (waiting.exit_code, "not moved" in waiting.stdout) == (1, True)
        gone = {"topic": "orders", "partition": 7, "replicas": [new], "log_dirs": ["/logs/one"]}
        path.write_text(json.dumps({"version": 1, "partitions": [gone]}))
        verified = ottla(cluster, "reassign", "verify", str(path), "--json")
        assert (verified.exit_code, [each["state"] for each in rows(verified)]) == (1, ["gone", "gone"])
        cancelled = ottla(cluster, "reassign", "cancel", str(path))
        assert (cancelled.exit_code, "none of these partitions moves" in cancelled.stdout) == (0, True)
        for said in (verified.stderr, cancelled.stderr):
            assert f"not in the cluster, so that their moves are never done: orders-7. Take them out of {path}" in said
        write([new, old], ["/nowhere", "any"])
        refused = ottla(cluster, "reassign", "execute", str(path), "--yes")
        assert (refused.exit_code, "LOG_DIR_NOT_FOUND" in refused.stderr) == (1, True), refused.stderr
