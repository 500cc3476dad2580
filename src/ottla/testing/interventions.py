"""Interventions of a test on a running test broker: faults, rebalances, expired members; and its requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ottla.testing.errors import TestBrokerError
from ottla.testing.waiting import WAIT_TIMEOUT_S

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ottla.broker.server import Broker
    from ottla.testing.faults.declared import Faults
    from ottla.testing.faults.requests import SeenRequest
    from ottla.testing.faults.rules import Conditions
    from ottla.testing.loop_host import LoopHost
    from ottla.wire.apis import ApiKey


class Interventions(ABC):
    """A part of `ottla.testing.Broker`: fault rules, requests seen, and what happens to groups."""

    _faults: Faults | None = None

    @property
    @abstractmethod
    def _running(self) -> LoopHost:
        """The thread that the broker runs in."""

    @property
    @abstractmethod
    def server(self) -> Broker:
        """The broker."""

    # Faults and requests

    @property
    def faults(self) -> Faults:
        """Makes requests fail: `broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=3)`."""
        if self._faults is None:
            raise TestBrokerError("the test broker is not running: declare faults inside `with Broker() as broker:`")
        return self._faults

    def requests(
        self, api: str | ApiKey, *, topic: str | None = None, group: str | None = None, client_id: str | None = None
    ) -> list[SeenRequest]:
        """The latest requests of an API, at most 1,000, oldest first."""
        return self._running.call(self.faults.requests, wanted_requests(api, topic, group, client_id))

    def count_requests(self, api: str | ApiKey) -> int:
        """How many requests of an API the broker has received."""
        return self.faults.count(api)

    def wait_for_requests(
        self,
        api: str | ApiKey,
        count: int = 1,
        timeout_s: float = WAIT_TIMEOUT_S,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> list[SeenRequest]:
        """The latest requests of an API once at least `count` have come since the start. Raises `WaitedInVainError`."""
        return self.submit_requests_wait(wanted_requests(api, topic, group, client_id), count, timeout_s).result()

    def submit_requests_wait(self, wanted: Conditions, count: int, timeout_s: float) -> Future[list[SeenRequest]]:
        """Begin to wait for requests; the future has them."""
        return self._running.submit(self.faults.wait_for_requests(wanted, count, timeout_s))

    # Groups

    def rebalance(self, group_id: str, reason: str | None = None) -> None:
        """Ask all members of a group to rejoin; they learn of it from their next heartbeats.

        `ottla group why` shows the cause, with this reason. Raises `TestBrokerError` where the group does not
        exist or has no members.
        """
        from ottla.testing.groups import rebalance

        self._running.call(rebalance, self.server, group_id, reason)

    def expire_member(self, group_id: str, member: str) -> str:
        """End a member's session now; it is named by its member id, group instance id or client id.

        Returns its member id. The member learns of it from its next heartbeat. Raises `TestBrokerError` where the
        member does not exist, or several have this client id.
        """
        from ottla.testing.groups import expire_member

        return self._running.call(expire_member, self.server, group_id, member)


def wanted_requests(api: str | ApiKey, topic: str | None, group: str | None, client_id: str | None) -> Conditions:
    """The conditions that a request must meet. Raises `TestBrokerError`."""
    from ottla.testing.faults.named import api_named
    from ottla.testing.faults.rules import Matching, conditions

    matching = Matching()
    if topic is not None:
        matching["topic"] = topic
    if group is not None:
        matching["group"] = group
    if client_id is not None:
        matching["client_id"] = client_id
    return conditions(api_named(api), matching)
