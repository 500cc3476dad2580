"""ACLs are kept, announced and decided as Apache Kafka 3.9.1's own AclAuthorizer does.

`acls.json` has what it wrote to a ZooKeeper and what it decided when `Acls.java` ran the lines of `acl_cases`;
`OTTLA_RECORD=1` records it again.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from golden.zk.acl_cases import LIFE, REQUESTS, SEEDS, SUPER_USERS, lines, random_set
from ottla.broker.control.acl_store import AclStore
from ottla.cluster.acls import AclPattern, AclRules
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.layout import AclChangeZnode, AclZnode
from ottla.zk.store import TreeStore
from ottla.zk.tree import Tree
from support.java import java_tool
from support.ottla_zookeeper import OttlaZooKeeper
from support.zk_trees import dumped, open_tree

HERE = Path(__file__).parent
RECORDED = HERE / "acls.json"
GOLDEN: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {"tree": {}, "decided": ""}
TREE: dict[str, str | None] = GOLDEN["tree"]

pytestmark = pytest.mark.spec("S3")


async def our_life() -> Tree:
    store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
    acls = AclStore(LocalClient(store), AclRules())
    await acls.start()
    for word, (pattern, entry) in LIFE:
        if word == "add":
            assert await acls.add(pattern, [entry]) is None
        else:
            assert await acls.change(pattern, lambda present, gone=entry: present - {gone}) is None
    await acls.stop()
    return store.tree


def test_the_same_changes_leave_the_same_tree() -> None:
    tree = asyncio.run(our_life())
    ours = {path: None if node.data is None else node.data.decode() for path, node in tree.nodes.items()}
    assert {path: text for path, text in ours.items() if path.startswith("/kafka-acl")} == TREE


def test_what_apache_kafka_wrote_is_read() -> None:
    expected: dict[AclPattern, set[Any]] = {}
    for word, (pattern, entry) in LIFE:
        getattr(expected.setdefault(pattern, set()), "add" if word == "add" else "discard")(entry)
    for pattern, entries in expected.items():
        path = AclZnode.path(pattern)
        text = TREE.get(path)
        assert AclZnode.decode(path, None if text is None else text.encode()) == entries
    announced = {
        AclChangeZnode.decode(path, text.encode()) for path, text in TREE.items() if "changes/" in path and text
    }
    assert announced == set(expected)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ours_decides_as_apache_kafkas_authorizer(seed: int) -> None:
    allows_without, acls, requests = random_set(seed)
    rules = AclRules(SUPER_USERS, allows_without_acls=allows_without)
    for pattern, _ in acls:
        rules.replace(pattern, [entry for each, entry in acls if each == pattern])
    decided = GOLDEN["decided"][2 * REQUESTS * seed : 2 * REQUESTS * (seed + 1)]
    ours = "".join(
        str(int(each)) for request in requests for each in (rules.allows(*request), rules.allows_on_any(*request[:4]))
    )
    assert len(ours) == 2 * REQUESTS
    assert ours == decided


@pytest.mark.needs_kafka
@pytest.mark.long
def test_the_record_is_what_apache_kafka_does(tmp_path: Path) -> None:
    zookeeper = OttlaZooKeeper(tmp_path).start()
    try:
        decided = java_tool(str(HERE / "Acls.java"), zookeeper.connect, stdin="\n".join(lines())).stdout.strip()
        zk = open_tree(f"{zookeeper.connect}/life")
        try:
            tree = {path: text for path, (text, _) in dumped(zk).items() if path != "/"}
        finally:
            zk.stop()
            zk.close()
    finally:
        zookeeper.stop()
    found = {"tree": tree, "decided": decided}
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(RECORDED.read_text())
