"""Rebalances and expired members of the test broker's groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.client.sync import Consumer
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.testing import Broker, TestBrokerError
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U1")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"t": 2}) as broker:
        yield broker


@contextmanager
def member(broker: Broker, **settings: Any) -> Iterator[Consumer[Any, Any]]:
    """A consumer of the group g."""
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", heartbeat_interval_ms=50, **settings
    ) as consumer:
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: len(consumer.assignment()) > 0)
        yield consumer


def poll_until(consumer: Consumer[Any, Any], condition: Callable[[], object]) -> None:
    def polled() -> object:
        consumer.poll(timeout_ms=10)
        return condition()

    wait_until(polled, "the consumer to go on")


def generation(broker: Broker) -> int:
    group = broker.group("g")
    assert group is not None
    return group.generation_id


def evidence(broker: Broker) -> list[dict[str, Any]]:
    if EVIDENCE_TOPIC not in broker.topics():
        return []
    return [json.loads(record.value or b"{}") for record in broker.records(EVIDENCE_TOPIC)]


def test_members_rejoin_and_the_reason_is_recorded(broker: Broker) -> None:
    with member(broker) as consumer:
        before = broker.wait_for_group("g", members=1)
        broker.rebalance("g", "a deployment")
        poll_until(consumer, lambda: generation(broker) > before.generation_id)
        assert broker.wait_for_group("g", members=1).members == before.members
        wait_until(lambda: len(evidence(broker)) >= 2, "the evidence")
        (cause,) = evidence(broker)[-1]["causes"]
        assert (cause["cause"], cause["detail"]) == ("rebalance_requested", "a deployment")


@pytest.mark.parametrize("by", ["member id", "client id", "instance id"])
def test_an_expired_member_joins_anew(broker: Broker, by: str) -> None:
    settings = {"client_id": "c"} | ({"group_instance_id": "i"} if by == "instance id" else {})
    with member(broker, **settings) as consumer:
        (before,) = broker.wait_for_group("g", members=1).members
        name = {"member id": before.member_id, "client id": "c", "instance id": "i"}[by]
        assert broker.expire_member("g", name) == before.member_id
        poll_until(consumer, lambda: broker.group("g").members not in ((), (before,)))  # type: ignore[union-attr]
        poll_until(consumer, lambda: len(consumer.assignment()) == 2)
        (after,) = broker.wait_for_group("g", members=1).members
        assert after.member_id != before.member_id
        wait_until(lambda: len(evidence(broker)) >= 2, "the evidence")
        assert evidence(broker)[1]["causes"][0]["cause"] == "session_expired"


def test_misuse_is_named(broker: Broker) -> None:
    with pytest.raises(TestBrokerError, match=r"^there is no group g; there are: none$"):
        broker.rebalance("g")
    with member(broker, client_id="c") as first:
        with pytest.raises(TestBrokerError, match=r"^there is no group h; there are: g$"):
            broker.expire_member("h", "c")
        said = r"^the group g has no member x; its members: c-[-0-9a-f]+ \(client id c\)$"
        with pytest.raises(TestBrokerError, match=said):
            broker.expire_member("g", "x")
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", client_id="c") as second:
            second.subscribe(["t"])

            def both() -> bool:
                second.poll(timeout_ms=10)
                return len(second.assignment()) == 1 == len(first.assignment())

            poll_until(first, both)
            with pytest.raises(TestBrokerError, match=r"^2 members of the group g have the client id c: name one by"):
                broker.expire_member("g", "c")
    broker.wait_for_group("g", members=0, state="Empty")
    with pytest.raises(TestBrokerError, match=r"^the group g has no members that could rejoin$"):
        broker.rebalance("g")
    with pytest.raises(TestBrokerError, match=r"^the group g has no member c; its members: none$"):
        broker.expire_member("g", "c")
