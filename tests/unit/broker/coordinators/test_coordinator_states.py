"""The coordinator's states as metric values and log events: down, catching up, ready, preparing, rebalancing."""

from __future__ import annotations

import errno
import itertools
import logging
import re
from collections.abc import Callable

import pytest

from ottla.broker.coordinators.group_kind import OFFSETS_TOPIC
from ottla.env.disk import DiskError
from ottla.groups.classic.states import GroupState
from ottla.groups.coordinator import STATE_OF, CoordinatorState
from ottla.groups.events import LeaveGroup, LeavingMember
from ottla.storage.results import UnreadableRange
from ottla.wire.errors import ErrorCode
from unit.broker.coordinators.group_fakes import FakeBroker, FakeLog
from unit.broker.coordinators.test_groups import Answers, Test, commit, join, run, stable_group, sync, until

pytestmark = pytest.mark.spec("G10")

DOWN, CATCHING_UP, READY, PREPARING, REBALANCING = CoordinatorState
EVENT = re.compile(r"coordinator of (?:group|partition) (\S+?): (.+) -> (.+)")


def run_and_listen(test: Test, told: pytest.LogCaptureFixture, log: FakeLog | None = None) -> None:
    """Run a test with everything that is logged; what was logged before is forgotten."""
    told.clear()
    with told.at_level(logging.DEBUG, "ottla.groups"):
        run(test, log)


def events(told: pytest.LogCaptureFixture, of: str) -> list[str]:
    """The states of a group's or a partition's coordinator, as logged: the first with what was before."""
    found = [match.groups() for message in told.messages if (match := EVENT.fullmatch(message)) and match[1] == of]
    for (_, _, now), (_, before, _) in itertools.pairwise(found):
        assert now == before, "each begins where the last has ended"
    return [found[0][1], *(now for _, _, now in found)] if found else []


def test_names_and_values():
    assert {state.label: state.value for state in CoordinatorState} == {
        "down": 0,
        "catching up": 1,
        "ready": 2,
        "preparing": 3,
        "rebalancing": 4,
    }
    assert set(STATE_OF) == set(GroupState)


def test_a_rebalance_goes_through_its_states(caplog: pytest.LogCaptureFixture):
    async def test(broker: FakeBroker) -> None:
        state = broker.groups.coordinator_state
        assert state("g") is DOWN
        broker.begin(1)
        assert state("g") is READY
        (first,) = join(broker)
        assert state("g") is REBALANCING
        sync(broker, first)
        assert state("g") is READY
        commit(broker, 1, "simple")
        second = join(broker, new_id="2")
        assert state("g") is PREPARING
        assert broker.groups.coordinator_states() == {DOWN: 0, CATCHING_UP: 0, READY: 1, PREPARING: 1, REBALANCING: 0}
        (again,) = join(broker, first.member_id)
        assert second
        assert state("g") is REBALANCING
        assert broker.groups.coordinator_states() == {DOWN: 0, CATCHING_UP: 0, READY: 1, PREPARING: 0, REBALANCING: 1}
        sync(broker, again)
        members = [LeavingMember(one.member_id) for one in (again, second[0])]
        broker.groups.submit(LeaveGroup(Answers(), "g", members))
        assert state("g") is READY
        await broker.groups.stop()
        assert state("g") is DOWN
        assert broker.groups.coordinator_states()[DOWN] == 1

    run_and_listen(test, caplog)
    once = ["preparing", "rebalancing", "ready"]
    assert events(caplog, "g") == ["ready", *once, *once, "preparing", "ready"]
    assert events(caplog, "simple") == []
    assert events(caplog, f"{OFFSETS_TOPIC}-0") == ["down", "ready"]


def test_catching_up(caplog: pytest.LogCaptureFixture):
    log = FakeLog()

    async def before(broker: FakeBroker) -> None:
        stable_group(broker.begin(2))

    async def after(broker: FakeBroker) -> None:
        state = broker.groups.coordinator_state
        broker.control.put(OFFSETS_TOPIC, 2)
        assert broker.groups.coordinator_states()[DOWN] == 0, "it is not known yet how many there are"
        broker.groups.start()
        assert state("g") is CATCHING_UP
        assert broker.groups.coordinator_states()[CATCHING_UP] == 1
        await until(lambda: not broker.groups.loading, "the load")
        assert broker.groups.coordinator_states() == {DOWN: 0, CATCHING_UP: 0, READY: 1, PREPARING: 0, REBALANCING: 0}
        broker.control.put(OFFSETS_TOPIC, 2, leader=9)
        assert state("g") is DOWN
        assert broker.groups.coordinator_states() == {DOWN: 2, CATCHING_UP: 0, READY: 0, PREPARING: 0, REBALANCING: 0}

    run(before, log)
    run_and_listen(after, caplog, log)
    (partition,) = {partition for _, partition in log.batches}
    assert events(caplog, f"{OFFSETS_TOPIC}-{partition}") == ["down", "catching up", "ready", "down"]
    loud = [
        one.getMessage() for one in caplog.records if one.levelno >= logging.INFO and "-> ready" in one.getMessage()
    ]
    assert len(loud) == 1, "a partition with nothing in it has nothing to catch up with"


def test_a_disk_that_does_not_give_the_records_keeps_it_catching_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ottla.broker.coordinators.runtime.LOAD_RETRY_S", 0.0)
    log = FakeLog()

    async def before(broker: FakeBroker) -> None:
        stable_group(broker.begin(1))

    read_batches, failures = log.read_batches, [DiskError("read", "/x", errno.EIO)]

    def fail_once(topic: str, partition: int, unreadable: Callable[[UnreadableRange], None]) -> object:
        if failures:
            raise failures.pop()
        return read_batches(topic, partition, unreadable)

    async def after(broker: FakeBroker) -> None:
        monkeypatch.setattr(log, "read_batches", fail_once)
        broker.begin(1)
        await until(lambda: not broker.groups.loading, "the second try")
        assert broker.groups.coordinator_state("g") is READY

    run(before, log)
    run_and_listen(after, caplog, log)
    assert events(caplog, f"{OFFSETS_TOPIC}-0") == ["down", "catching up", "ready"]
    assert "cannot be read, it is tried again" in caplog.text


def test_an_assignment_that_is_not_written_goes_back_to_preparing(caplog: pytest.LogCaptureFixture):
    async def test(broker: FakeBroker) -> None:
        broker.begin(1)
        (joined,) = join(broker)
        broker.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        sync(broker, joined)
        assert broker.groups.coordinator_state("g") is PREPARING

    run_and_listen(test, caplog)
    assert events(caplog, "g") == ["ready", "preparing", "rebalancing", "preparing"]
