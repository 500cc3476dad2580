"""Every fault rule of the test broker, as four client libraries see it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from interop.testing.client_libraries import GROUP, LIBRARIES, Library
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U1")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"t": 1}) as broker:
        yield broker


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def test_an_error_that_can_be_retried_is(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        rule = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=2)
        assert [sender.send("t", b"one"), sender.send("t", b"two")] == [0, 1]
        assert (rule.seen, rule.fired) == (3, 1)
    assert values(broker) == [b"one", b"two"]


def test_an_error_that_cannot_be_retried_is_raised(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        with (
            broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="t"),
            pytest.raises(Exception, match=r"(?i)authoriz") as raised,
        ):
            sender.send("t", b"refused")
        assert sender.error_code(raised.value) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert values(broker) == []


def test_a_request_that_was_not_handled_is_sent_again(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        sender.send("t", b"one")
        rule = broker.faults.disconnect("Produce", times=1)
        assert sender.send("t", b"two") == 1
        assert (rule.seen, rule.fired) == (2, 1)
    assert values(broker) == [b"one", b"two"]


@pytest.mark.parametrize("after_bytes", [0, 10])
def test_a_lost_answer_leads_to_no_duplicate(broker: Broker, library: Library, after_bytes: int) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        sender.send("t", b"one")
        rule = broker.faults.cut("Produce", after_bytes, times=1)
        assert sender.send("t", b"two") == 1
        assert (rule.seen, rule.fired) == (2, 1)
        assert sender.send("t", b"three") == 2
    assert values(broker) == [b"one", b"two", b"three"]


def test_a_request_without_answer_is_sent_again_after_its_timeout(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers, request_timeout_ms=1000) as sender:
        sender.send("t", b"one")
        rule = broker.faults.drop("Produce", times=1)
        assert sender.send("t", b"two") == 1
        assert rule.fired == 1
    assert values(broker) == [b"one", b"two"]


def test_throttle_time_is_seen(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        rule = broker.faults.throttle("Produce", ms=300, times=1)
        begin = time.monotonic()
        sender.send("t", b"one")
        assert sender.throttled_ms() in (None, 300)
        sender.send("t", b"two")
        assert time.monotonic() - begin >= 0.25
        assert rule.fired == 1
    assert values(broker) == [b"one", b"two"]


def test_a_delayed_fetch_brings_its_records_later(broker: Broker, library: Library) -> None:
    broker.send("t", b"one")
    with broker.faults.delay("Fetch", ms=300) as rule, library.reader(broker.bootstrap_servers, "t") as reader:
        begin = time.monotonic()
        assert reader.read(1) == [b"one"]
        assert time.monotonic() - begin >= 0.25
        assert rule.fired >= 1


def test_fetches_that_fail_or_break_off_are_sent_again(broker: Broker, library: Library) -> None:
    broker.send("t", b"one")
    failing = broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="t", times=2)
    with library.reader(broker.bootstrap_servers, "t") as reader:
        assert reader.read(1) == [b"one"]
        assert failing.fired == 2
        # The fetch that waits for records is older than this rule; the next one meets it.
        cutting = broker.faults.cut("Fetch", after_bytes=30, times=1)
        broker.send("t", b"two")
        assert reader.read(1) == [b"two"]
        broker.send("t", b"three")
        assert reader.read(1) == [b"three"]
        reader.poll_until(lambda: cutting.fired, "a fetch to break off")


def test_metadata_with_an_error_is_asked_for_again(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        rule = broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="t", times=1)
        assert sender.send("t", b"one") == 0
        assert rule.fired == 1
        assert rule.seen >= 2


def test_metadata_may_be_lost(broker: Broker, library: Library) -> None:
    with library.sender(broker.bootstrap_servers) as sender:
        sender.send("t", b"one")
        rule = broker.faults.disconnect("Metadata", times=1)
        broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=1)  # the client asks for metadata
        # Some send a second time before they have asked.
        wait_until(lambda: sender.send("t", b"more") and rule.fired, "a request for metadata")
        assert sender.send("t", b"last") >= 2
    assert values(broker)[-1] == b"last"


def test_a_rebalance_is_told_to_the_listener(broker: Broker, library: Library) -> None:
    broker.send("t", b"one")
    with library.reader(broker.bootstrap_servers, "t") as reader:
        assert reader.read(1) == [b"one"]
        before = broker.wait_for_group(GROUP, members=1)
        assigned = reader.assigned
        broker.rebalance(GROUP, "a test")
        reader.poll_until(lambda: reader.assigned > assigned, "the listener")
        after = broker.wait_for_group(GROUP, members=1)
        assert after.generation_id > before.generation_id
        assert reader.member_id() == after.members[0].member_id == before.members[0].member_id


def test_an_expired_member_gets_a_new_id(broker: Broker, library: Library) -> None:
    broker.send("t", b"one")
    with library.reader(broker.bootstrap_servers, "t") as reader:
        assert reader.read(1) == [b"one"]
        assigned = reader.assigned
        expired = broker.expire_member(GROUP, reader.member_id())
        reader.poll_until(lambda: reader.assigned > assigned, "the listener")
        (member,) = broker.wait_for_group(GROUP, members=1).members
        assert reader.member_id() == member.member_id != expired
        broker.send("t", b"two")
        assert b"two" in reader.read(1)
