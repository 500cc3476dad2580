"""The connections of one consumer to its group coordinator.

Two connections, since a broker handles one request of a connection at a time: JoinGroup and SyncGroup wait on one until
the other members have joined; heartbeats, commits and the rest use the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.client.consumer.membership import Membership
from ottla.client.coordinator import GroupCoordinator
from ottla.client.errors import ClientError, ClientTimeoutError, as_client_error
from ottla.peer.cluster import COORDINATOR, Cluster
from ottla.peer.versions import choose_version
from ottla.wire.apis import ApiKey
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.schema import Message

JOIN = "join"
"""Purpose of the connection for JoinGroup and SyncGroup."""
LEAVES_BY_MEMBERS_SINCE = 3


class CoordinatorLink:
    """Finds the coordinator for the membership, and sends requests to it. `on_change` is called after each event."""

    def __init__(self, cluster: Cluster, membership: Membership, on_change: Callable[[], None]) -> None:
        self._cluster = cluster
        self._membership = membership
        self._on_change = on_change
        self._finder = GroupCoordinator(cluster, membership.settings.group_id)
        self._looked_up = asyncio.Event()
        self._times_found = 0

    def drop(self) -> None:
        """Close the connections to the former coordinator: requests waiting there fail, and are retried."""
        node_id = self._finder.known_node_id
        self._finder.forget()
        if node_id is not None:
            for purpose in (JOIN, COORDINATOR):
                self._cluster.disconnect(node_id, purpose)

    async def find(self) -> None:
        """Look the coordinator up, and pass the result to the membership."""
        self._finder.forget()
        try:
            await self._finder.node()
        except Exception as error:  # whatever it is: the lookup is repeated, and a poll raises fatal errors
            failed = as_client_error("the coordinator cannot be looked up", error)
            self._membership.coordinator_not_found(failed, self._now_ms())
        else:
            self._times_found += 1
            self._membership.coordinator_found(self._now_ms())
        self._looked_up.set()
        self._on_change()

    async def wait_until_found(self, deadline_ms: float) -> int:
        """Wait until the coordinator is known; returns how often it was found so far: see `lost`.

        Raises ClientTimeoutError (retriable) at the deadline, or the fatal error.
        """
        membership = self._membership
        while not membership.lookup.is_known:
            self._looked_up.clear()
            membership.want_coordinator(self._now_ms())
            self._on_change()
            try:
                async with asyncio.timeout(max(0.0, deadline_ms - self._now_ms()) / 1000):
                    await self._looked_up.wait()
            except TimeoutError:
                what = f"the coordinator of group {membership.settings.group_id} is not found"
                message = f"{what}: {membership.lookup.problem or 'no broker answered'}"
                raise ClientTimeoutError(message, retriable=True) from None
            problem = membership.lookup.problem
            if isinstance(problem, ClientError) and not problem.retriable:
                raise problem
        return self._times_found

    async def ask(self, request: Message, timeout_ms: int | None = None) -> Any:
        """Return the coordinator's response. Failures are ClientErrors; the membership is not notified of them."""
        return await (await self.send(request, timeout_ms))

    async def send(self, request: Message, timeout_ms: int | None = None) -> asyncio.Task[Any]:
        """Send the request, after those sent before; its response is the task's result."""
        node = await self._finder.node()
        purpose = JOIN if isinstance(request, JoinGroupRequest | SyncGroupRequest) else COORDINATOR
        connection = await self._cluster.connection(node.node_id, purpose)
        if isinstance(request, LeaveGroupRequest):
            version = choose_version(ApiKey.LEAVE_GROUP, connection.offered)
            if version < LEAVES_BY_MEMBERS_SINCE:
                request = LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
        response = asyncio.get_running_loop().create_task(connection.request(request, timeout_ms=timeout_ms))
        # The caller may be cancelled; then asyncio would log a failure as never retrieved.
        response.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.sleep(0)  # it is written now
        return response

    async def version(self, api_key: ApiKey) -> int:
        """Return the version that the coordinator and this client use for the API."""
        node = await self._finder.node()
        return choose_version(api_key, (await self._cluster.connection(node.node_id, COORDINATOR)).offered)

    def lost(self, why: ClientError | str, times_found: int | None = None) -> None:
        """Note that the broker is not the coordinator any more, or does not respond.

        With `times_found`, only if the coordinator is still the one found then: an earlier one's failure is ignored.
        """
        if times_found is not None and times_found != self._times_found:
            return
        self._membership.coordinator_lost(why, self._now_ms())
        self._on_change()

    def _now_ms(self) -> float:
        return self._cluster.clock.monotonic_ms()
