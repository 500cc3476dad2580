"""The waits of a test, as coroutines of the broker's own loop, and `AsyncWaits` for tests in a loop of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.groups.classic.states import GroupState
from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import nearest
from ottla.testing.groups import SeenGroup, see_group
from ottla.testing.interventions import wanted_requests
from ottla.testing.reading import Found, count_records, read_records
from ottla.testing.waiting import WAIT_TIMEOUT_S, until

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.faults.declared import FaultRule
    from ottla.testing.faults.requests import SeenRequest
    from ottla.wire.apis import ApiKey


async def records(broker: Broker, topic: str, count: int, timeout_s: float) -> list[Found]:
    """All records of the topic once there are at least `count`."""

    def look() -> list[Found] | None:
        return read_records(broker, topic) if count_records(broker, topic) >= count else None

    def what() -> str:
        return f"{count} records in {topic}: {count_records(broker, topic)} are there"

    return await until(look, what, timeout_s)


async def group(broker: Broker, group_id: str, members: int | None, state: str, timeout_s: float) -> SeenGroup:
    """The group once in this state, with `members` members (None: any number). `TestBrokerError`: unknown state."""
    states = {each.value.lower(): each.value for each in GroupState}
    if state not in states.values():
        raise TestBrokerError(f"a group has no state {state}; {nearest(state.lower(), states)}")

    def look() -> SeenGroup | None:
        seen = see_group(broker, group_id)
        if seen is None or seen.state != state:
            return None
        return seen if members is None or len(seen.members) == members else None

    def what() -> str:
        wanted = f"the group {group_id} in state {state}" + ("" if members is None else f" with {members} members")
        seen = see_group(broker, group_id)
        if seen is None:
            return f"{wanted}: there is no such group"
        return f"{wanted}: it is {seen.state} with {len(seen.members)} members"

    return await until(look, what, timeout_s)


async def commit(broker: Broker, group_id: str, topic: str, partition: int, offset: int, timeout_s: float) -> int:
    """The group's committed offset of the partition once it is at least `offset`."""

    def committed() -> int | None:
        seen = see_group(broker, group_id)
        return None if seen is None else seen.committed.get((topic, partition))

    def look() -> int | None:
        found = committed()
        return found if found is not None and found >= offset else None

    def what() -> str:
        return f"group {group_id} to commit {offset} for {topic}-{partition}: it has committed {committed()}"

    return await until(look, what, timeout_s)


class AsyncWaits:
    """As the methods of the same names of `EmbeddedBroker`; the caller's loop runs meanwhile."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    async def wait_for_records(self, topic: str, count: int, timeout_s: float = WAIT_TIMEOUT_S) -> list[Found]:
        """See `EmbeddedBroker.wait_for_records`."""
        found: list[Found] = await asyncio.wrap_future(self._broker.submit_wait("records", topic, count, timeout_s))
        return found

    async def wait_for_group(
        self, group_id: str, members: int | None = None, state: str = "Stable", timeout_s: float = WAIT_TIMEOUT_S
    ) -> SeenGroup:
        """See `EmbeddedBroker.wait_for_group`."""
        waiting = self._broker.submit_wait("group", group_id, members, state, timeout_s)
        seen: SeenGroup = await asyncio.wrap_future(waiting)
        return seen

    async def wait_for_commit(
        self, group_id: str, topic: str, offset: int, partition: int = 0, timeout_s: float = WAIT_TIMEOUT_S
    ) -> int:
        """See `EmbeddedBroker.wait_for_commit`."""
        waiting = self._broker.submit_wait("commit", group_id, topic, partition, offset, timeout_s)
        committed: int = await asyncio.wrap_future(waiting)
        return committed

    async def wait_until_fired(self, rule: FaultRule, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """See `ottla.testing.FaultRule.wait_until_fired`."""
        await asyncio.wrap_future(rule.submit_wait(count, timeout_s))

    async def wait_for_requests(
        self,
        api: str | ApiKey,
        count: int = 1,
        timeout_s: float = WAIT_TIMEOUT_S,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> list[SeenRequest]:
        """See `EmbeddedBroker.wait_for_requests`."""
        wanted = wanted_requests(api, topic, group, client_id)
        return await asyncio.wrap_future(self._broker.submit_requests_wait(wanted, count, timeout_s))
