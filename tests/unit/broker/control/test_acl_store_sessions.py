"""ACLs are followed whatever happens to the session while they are read, and a rush of changes is read together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.control.acl_store import AclStore
from ottla.cluster.acls import AclEntry, AclPattern, AclRules, Operation, Permission, ResourceType
from ottla.env.clock import VirtualClock
from ottla.testing.disk_memory import MemoryDisk
from ottla.zk.client import ConnectionLossError, ForwardingZk, LocalClient, SessionEvent, SessionListener, Watcher
from ottla.zk.layout import AclChangeZnode, AclZnode
from ottla.zk.store import TreeStore
from support.dispatching import wait_until

ROOT = "/kafka-acl-changes"
READ = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)

pytestmark = pytest.mark.spec("S3")


def topic(name: str) -> AclPattern:
    return AclPattern(ResourceType.TOPIC, name)


class Interrupted(ForwardingZk):
    """A session to which something happens when announcements are listed."""

    def __init__(self, zk: LocalClient) -> None:
        super().__init__(zk)
        self.happens: Callable[[], None] = lambda: None
        self.listings = 0
        self.listeners: list[SessionListener] = []

    def on_session(self, listener: SessionListener) -> None:
        self.listeners.append(listener)

    def tell(self, event: SessionEvent) -> None:
        for listener in self.listeners:
            listener(event)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        if path == ROOT and watch is not None:
            self.listings += 1
            happens, self.happens = self.happens, lambda: None
            happens()
        return await super().children(path, watch)


def played(scenario: Callable[[Interrupted, AclStore, LocalClient], Awaitable[None]]) -> None:
    async def run() -> None:
        store = TreeStore.open(MemoryDisk(), "/t", VirtualClock(1))
        local = LocalClient(store)
        zk = Interrupted(local)
        acls = AclStore(zk, AclRules())
        await acls.start()
        try:
            async with asyncio.timeout(30):
                await scenario(zk, acls, local)
        finally:
            await acls.stop()

    asyncio.run(run())


async def announce(zk: LocalClient, pattern: AclPattern) -> None:
    await zk.create(f"{ROOT}/{AclChangeZnode.PREFIX}", AclChangeZnode.encode(pattern), sequential=True)


def test_a_session_that_expires_while_all_is_read_has_all_read_again() -> None:
    async def scenario(zk: Interrupted, acls: AclStore, local: LocalClient) -> None:
        zk.tell(SessionEvent.EXPIRED)
        zk.happens = lambda: zk.tell(SessionEvent.EXPIRED)
        zk.tell(SessionEvent.CONNECTED)
        await wait_until(lambda: zk.listings == 2)
        # Its announcement was removed before anyone saw it.
        await local.create(AclZnode.path(topic("t")), AclZnode.encode([READ]))
        await wait_until(lambda: topic("t") in acls.rules.patterns)

    played(scenario)


def test_a_connection_that_returns_while_a_read_fails_is_not_missed() -> None:
    async def scenario(zk: Interrupted, acls: AclStore, local: LocalClient) -> None:
        def lose() -> None:
            zk.tell(SessionEvent.CONNECTED)
            raise ConnectionLossError("lost")

        zk.happens = lose
        await local.create(AclZnode.path(topic("t")), AclZnode.encode([READ]))
        await announce(local, topic("t"))
        await wait_until(lambda: topic("t") in acls.rules.patterns)

    played(scenario)


def test_a_rush_of_changes_is_read_together() -> None:
    async def scenario(zk: Interrupted, acls: AclStore, local: LocalClient) -> None:
        for number in range(100):
            await local.create(AclZnode.path(topic(f"t{number}")), AclZnode.encode([READ]))
            await announce(local, topic(f"t{number}"))
            for _ in range(20):
                await asyncio.sleep(0)
        await wait_until(lambda: len(acls.rules.patterns) == 100)
        assert zk.listings < 50

    played(scenario)
