"""When a broker is ready that is not the controller: what has to come, and what may never come."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.control.membership import ClusterMembership
from ottla.broker.metrics.health import not_ready
from ottla.zk.layout import TopicZnode
from support.controlled_broker import ControlledBroker, run_controlled

pytestmark = pytest.mark.spec("U3")

T0, T1 = ("t", 0), ("t", 1)
UNHEARD = "the controller has not sent this broker its partitions yet"


async def reasons(test: ControlledBroker) -> list[str]:
    return await test.broker.slices.through(not_ready(test.broker))


def without_role(count: int) -> list[str]:
    return [f"{count} partitions of this broker have no role yet"]


def test_it_waits_for_the_metadata_and_for_the_roles_in_them(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        assert await reasons(test) == [UNHEARD]
        assert await test.update_metadata({}) == 0
        assert await reasons(test) == []  # a cluster without topics has no LeaderAndIsr
        states = {T0: (1, 3, [1, 2]), T1: (2, 3, [2, 1])}
        assert await test.update_metadata(states) == 0
        assert await reasons(test) == without_role(2)
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert await reasons(test) == []
        await test.zk.create(TopicZnode.path("t"), make_parents=True)
        await test.restart()
        assert await reasons(test) == [UNHEARD]
        assert await test.update_metadata({}) == 0
        assert await reasons(test) == [UNHEARD]  # the metadata lack a topic that has a znode
        assert await test.update_metadata(states) == 0
        assert await reasons(test) == without_role(2)

    run_controlled(tmp_path, scenario)


def test_metadata_may_come_before_the_broker_knows_its_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(test: ControlledBroker) -> None:
        epoch = test.broker_epoch
        assert await test.update_metadata({}, broker_epoch=epoch + 1) == 0
        for later, expected in ((1, []), (2, [UNHEARD])):
            monkeypatch.setattr(ClusterMembership, "broker_epoch", epoch + later)
            assert await reasons(test) == expected

    run_controlled(tmp_path, scenario)


def test_it_does_not_wait_for_a_leader_that_waits_for_it_perhaps(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        states = {T0: (-1, 3, [1, 2]), T1: (9, 3, [1, 9])}
        assert await test.update_metadata(states) == 0
        assert await reasons(test) == without_role(2)  # LeaderAndIsr may make it the leader
        assert await test.lead_or_follow(states, is_new=True) == {T0: 0, T1: 0}
        assert await reasons(test) == []

    run_controlled(tmp_path, scenario)


def test_it_does_not_wait_for_roles_that_it_refuses(tmp_path: Path) -> None:
    async def scenario(test: ControlledBroker) -> None:
        broker = test.broker
        lost, unreadable = {T0: (1, 3, [1])}, {T1: (1, 3, [1])}
        broker.logs.unreadable.add(T1)
        assert await test.update_metadata(lost | unreadable) == 0
        assert await reasons(test) == without_role(1)
        assert (await test.lead_or_follow(lost | unreadable)).keys() == {T0, T1}
        assert broker.partitions.get(*T0) is None
        assert await reasons(test) == []
        # One that it may have is expected again.
        assert await test.lead_or_follow({T0: (2, 4, [2, 1])}) == {T0: 0}
        assert await test.update_metadata({T0: (2, 4, [2, 1])}) == 0
        assert await reasons(test) == []
        assert broker.partitions.stop(*T0)
        assert await reasons(test) == without_role(1)

    run_controlled(tmp_path, scenario)
