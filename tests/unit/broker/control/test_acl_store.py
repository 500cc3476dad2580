"""ACLs of several brokers over one tree of znodes: changes at the same time, followed, and read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.control.acl_store import AclStore
from ottla.cluster.acls import AclEntry, AclPattern, AclRules, Operation, PatternType, Permission, ResourceType
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import LocalClient
from ottla.zk.layout import AclChangeZnode, AclZnode
from ottla.zk.store import TreeStore
from support.waiting import until

LITERAL = AclPattern(ResourceType.TOPIC, "t")
PREFIXED = AclPattern(ResourceType.GROUP, "g", PatternType.PREFIXED)
CHANGES = AclChangeZnode.ROOTS[PatternType.LITERAL]

pytestmark = pytest.mark.spec("S3")


def entry(name: str) -> AclEntry:
    return AclEntry(f"User:{name}", "*", Operation.READ, Permission.ALLOW)


class Two:
    """Two brokers' sessions over one tree."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1)
        self.tree = TreeStore.open(MemoryDisk(), "/t", self.clock)
        self.sessions = [LocalClient(self.tree, number) for number in (1, 2)]
        self.stores = [AclStore(zk, AclRules()) for zk in self.sessions]


def played(scenario: Callable[[Two], Awaitable[None]]) -> None:
    async def run() -> None:
        two = Two()
        for store in two.stores:
            await store.start()
        try:
            await scenario(two)
        finally:
            for store in two.stores:
                await store.stop()

    asyncio.run(run())


def test_a_change_takes_effect_at_the_other_broker() -> None:
    async def scenario(two: Two) -> None:
        first, second = two.stores
        for pattern in (LITERAL, PREFIXED):
            assert await first.add(pattern, [entry("a")]) is None
            assert first.rules.entries(pattern) == {entry("a")}, "at once"
            await until(lambda pattern=pattern: second.rules.entries(pattern) == {entry("a")}, "the change")
        assert await second.change(PREFIXED, lambda present: present - {entry("a")}) is None
        await until(lambda: not first.rules.entries(PREFIXED), "the removal")
        assert AclZnode.path(PREFIXED) not in two.tree.tree.nodes

    played(scenario)


def test_changes_at_the_same_time_are_all_made() -> None:
    async def scenario(two: Two) -> None:
        wanted = {entry(f"u{number}") for number in range(8)}
        changes = [two.stores[at % 2].add(LITERAL, [each]) for at, each in enumerate(wanted)]
        assert set(await asyncio.gather(*changes)) == {None}
        for store in two.stores:
            await until(lambda store=store: store.rules.entries(LITERAL) == wanted, "all changes")

    played(scenario)


def test_all_is_read_in_a_new_session() -> None:
    """Announcements that were made meanwhile may be gone by then."""

    async def scenario(two: Two) -> None:
        first, second = two.stores
        two.sessions[1]._watches.drop_if(lambda watch: True)  # the session does not hear of it
        assert await first.add(LITERAL, [entry("a")]) is None
        for name in await two.sessions[0].children(CHANGES):
            await two.sessions[0].delete(f"{CHANGES}/{name}")
        assert second.rules.entries(LITERAL) == frozenset()
        two.sessions[1].expire(3)
        await until(lambda: second.rules.entries(LITERAL) == {entry("a")}, "the change")
        assert await first.add(PREFIXED, [entry("a")]) is None
        await until(lambda: second.rules.entries(PREFIXED) == {entry("a")}, "the next change")

    played(scenario)


def test_announcements_begin_again_where_their_node_was_removed() -> None:
    async def scenario(two: Two) -> None:
        first, second = two.stores
        assert await first.add(LITERAL, [entry("a")]) is None
        zk = two.sessions[0]
        for name in await zk.children(CHANGES):
            await zk.delete(f"{CHANGES}/{name}")
        await zk.delete(CHANGES)
        await until(lambda: CHANGES in two.tree.tree.nodes, "the node")
        assert await first.add(LITERAL, [entry("b")]) is None
        await until(lambda: second.rules.entries(LITERAL) == {entry("a"), entry("b")}, "the change")

    played(scenario)


def test_old_announcements_are_removed_with_the_next_one() -> None:
    async def scenario(two: Two) -> None:
        first, _ = two.stores
        for name in ("a", "b"):
            assert await first.add(LITERAL, [entry(name)]) is None
        two.clock.advance(AclChangeZnode.EXPIRATION_MS + 1)
        for name in ("c", "d"):
            assert await first.add(LITERAL, [entry(name)]) is None
        names = await two.sessions[0].children(CHANGES)
        assert names == ["acl_changes_0000000002", "acl_changes_0000000003"]

    played(scenario)
