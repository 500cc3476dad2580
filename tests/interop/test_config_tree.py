"""What changes of settings leave in the tree, beside what Apache Kafka leaves in ZooKeeper."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from interop.both_brokers import BrokerPair, Each
from interop.test_raw_settings import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, changed, node_of, replaced
from interop.wire_json import Json
from ottla.env.clock import SystemClock
from ottla.env.disk import RealDisk
from ottla.zk.store import LOG_NAME, SNAPSHOT_NAME, TreeStore
from support.apache import ApacheZooKeeper
from support.java import java_tool
from support.ottla_server import OttlaServer
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("L4", "Z1"), pytest.mark.slow]

ZOOKEEPER_CLI = "org.apache.zookeeper.ZooKeeperMain"
CHANGES = "/config/changes"


class OurZnodes:
    """Reads the files of a running broker's tree: they are in the page cache before it answers."""

    def __init__(self, server: OttlaServer, scratch: Path) -> None:
        self._server = server
        self._scratch = scratch

    def nodes(self) -> dict[str, str | None]:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        for name in (LOG_NAME, SNAPSHOT_NAME):
            if (self._server.log_dir / name).exists():
                shutil.copy(self._server.log_dir / name, self._scratch / name)
        store = TreeStore.open(RealDisk(), str(self._scratch), SystemClock())
        try:
            return {path: node.data.decode() if node.data else None for path, node in store.tree.nodes.items()}
        finally:
            store.close()


class TheirZnodes:
    """Asks ZooKeeper with its own command line."""

    def __init__(self, zookeeper: ApacheZooKeeper) -> None:
        self._zookeeper = zookeeper

    def run(self, commands: list[str]) -> list[str]:
        told = java_tool(
            ZOOKEEPER_CLI, "-server", self._zookeeper.connect, stdin="\n".join([*commands, "quit", ""]), check=False
        )
        return told.stdout.splitlines()

    def changes(self) -> list[str]:
        """The names of all nodes that tell of a change."""
        return [line for line in self.run([f"ls -R {CHANGES}"]) if line.startswith(f"{CHANGES}/")]

    def data(self, paths: list[str]) -> dict[str, str | None]:
        """The data of these nodes, which must be there."""
        # What is no JSON is the shell's own talk; a node that is not there is told of on the other stream.
        data = [line for line in self.run([f"get {path}" for path in paths]) if line.startswith("{")]
        assert len(data) == len(paths), (paths, data)
        return dict(zip(paths, data, strict=True))


def change_both(pair: BrokerPair, api: str, *resources: Json) -> None:
    version = 1 if api == "IncrementalAlterConfigs" else 2
    answer = pair.check_alike(api, version, ignore={"resource_name"}, resources=list(resources), validate_only=False)
    assert [one["error_code"] for one in answer["responses"]] == [0] * len(resources)


def parsed(nodes: dict[str, str | None], paths: list[str]) -> list[Json]:
    """The settings at these nodes; Apache Kafka writes them in the order of a hash table."""
    return [json.loads(nodes[path] or "null") for path in paths]


def test_changes_leave_what_apache_kafka_leaves(
    pair: BrokerPair, unique: str, ottla_only: OttlaServer, apache_zookeeper: ApacheZooKeeper, tmp_path: Path
) -> None:
    broker = Each(node_of(pair.ours), node_of(pair.theirs))
    assert broker.ours == broker.theirs
    ours, theirs = OurZnodes(ottla_only, tmp_path / "tree"), TheirZnodes(apache_zookeeper)
    pair.create_topic(unique, retention_ms="1000", segment_bytes="100000")
    paths = [f"/config/topics/{unique}", f"/config/brokers/{broker.ours}", "/config/brokers/<default>"]
    for name in (broker.ours, ""):
        # Both have the nodes from here on, and nothing in them.
        change_both(pair, "IncrementalAlterConfigs", changed(BROKER, name, ("log.retention.ms", SET, "7000000")))
        change_both(pair, "AlterConfigs", replaced(BROKER, name, {}))
    our_changes, their_changes = set(ours.nodes()), set(theirs.changes())
    one, everyone = changed(BROKER, broker.ours), changed(BROKER, "")
    topic = ("retention.ms", SET, "5"), ("segment.bytes", DELETE, None), ("cleanup.policy", APPEND, "compact")
    try:
        change_both(pair, "IncrementalAlterConfigs", changed(TOPIC, unique, *topic))
        one["configs"] = everyone["configs"] = as_configs(
            ("log.retention.ms", SET, "8000000"), ("log.cleanup.policy", SET, "compact,delete"), ("a.b", SET, 'x "ü"')
        )
        change_both(pair, "IncrementalAlterConfigs", one, everyone)
        assert parsed(ours.nodes(), paths) == parsed(theirs.data(paths), paths)
        one["configs"] = as_configs(("log.cleanup.policy", SUBTRACT, "delete"), ("a.b", DELETE, None))
        change_both(pair, "IncrementalAlterConfigs", one)
        change_both(pair, "AlterConfigs", replaced(TOPIC, unique, {"flush.ms": " 12 "}))
        entities = [f"topics/{unique}", *(f"brokers/{name}" for name in (broker.ours, "<default>", broker.ours))]
        expected = [f'{{"version":2,"entity_path":"{entity}"}}' for entity in (*entities, entities[0])]
        left = ours.nodes()
        right = theirs.data(paths + [path for path in theirs.changes() if path not in their_changes])
        assert parsed(left, paths) == parsed(right, paths)
        assert [
            left[path] for path in sorted(left) if path.startswith(f"{CHANGES}/") and path not in our_changes
        ] == expected
        assert [right[path] for path in sorted(right) if path.startswith(f"{CHANGES}/")] == expected
    finally:
        change_both(pair, "AlterConfigs", replaced(BROKER, broker.ours, {}), replaced(BROKER, "", {}))
    wait_until(lambda: is_cleared(pair, broker), "both brokers to be as before")


def as_configs(*changes: tuple[str, int, str | None]) -> Any:
    return changed(BROKER, "", *changes)["configs"]


def is_cleared(pair: BrokerPair, broker: Each) -> bool:
    """Whether Apache Kafka has heard that nothing is set any more."""
    asked = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": ["log.retention.ms"]}
    both = pair.ask_each("DescribeConfigs", 4, resources=[asked], include_synonyms=False)
    return all(one["results"][0]["configs"][0]["config_source"] > 3 for one in (both.ours, both.theirs))
