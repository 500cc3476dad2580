"""The waits of a test broker for tests that run in an event loop of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.testing.interventions import wanted_requests
from ottla.testing.waiting import WAIT_TIMEOUT_S

if TYPE_CHECKING:
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.faults.declared import FaultRule
    from ottla.testing.faults.requests import SeenRequest
    from ottla.testing.groups import SeenGroup
    from ottla.testing.reading import Found
    from ottla.wire.apis import ApiKey


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
