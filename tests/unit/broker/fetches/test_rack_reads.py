"""Reads from followers (KIP-392): whom a leader names, and how soon a follower shows what is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from ottla.broker.replicas.leader import READ_FOR_MS
from ottla.broker.server import Broker
from ottla.cluster.image import BrokerImage, ImageDelta
from ottla.config.listeners import Endpoint
from ottla.config.refusals import LEADER_ONLY, RACK_AWARE
from ottla.wire.errors import ErrorCode
from support.waiting import until
from unit.broker.handlers.test_roles import Asked, ask_fetch, ask_produce, fetched, follow, lead, produced, with_broker
from unit.broker.replicas.test_replication import ONE, TWO, Pair

pytestmark = pytest.mark.spec("R2")

TOLD: Mapping[str, str] = MappingProxyType({"replica.selector.class": RACK_AWARE, "broker.rack": "a"})
FOLLOWERS = (21, 22, 23)


def introduce(broker: Broker, racks: Mapping[int, str | None], listener: str = "PLAINTEXT") -> None:
    """Have the image know these brokers beside the one under test."""
    endpoint = Endpoint(listener, "PLAINTEXT", "other.example", 9095)
    others = {broker_id: BrokerImage(broker_id, (endpoint,), rack) for broker_id, rack in racks.items()}
    broker.image.apply(ImageDelta(brokers={broker.id: broker.image.brokers[broker.id], **others}))


async def led(broker: Broker, ends: Mapping[int, int], isr: Iterable[int] = FOLLOWERS) -> None:
    """Lead with three followers, which have fetched up to these offsets; there are three records."""
    partition = lead(broker, 1, FOLLOWERS, tuple(isr))
    for _ in range(3):
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
    for replica_id, end in ends.items():
        partition.fetched(replica_id, end, 0, broker.clock.monotonic_ms())


async def told(asked: Asked) -> tuple[int, int]:
    """The replica that the answer names (-1: none), and the bytes of its records."""
    (one,) = (await asked.answered()).responses[0].partitions
    assert one.error_code == 0
    return one.preferred_read_replica, len(bytes(one.records or b""))


def test_the_most_caught_up_follower_in_the_rack_is_named(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker, {21: "b", 22: "b", 23: "c"})
        await led(broker, {21: 2, 22: 3, 23: 3})
        assert await told(ask_fetch(broker, rack="b")) == (22, 0), "and no records"
        assert (await told(ask_fetch(broker, rack="c")))[0] == 23
        for elsewhere in ("a", "", "d"):
            replica, size = await told(ask_fetch(broker, rack=elsewhere))
            assert (replica, size > 0) == (-1, True), f"the leader reads for rack {elsewhere!r}"
        assert broker.rack_reads.referred == 2

    with_broker(tmp_path, scenario, TOLD)


def test_of_two_that_have_as_much_the_one_caught_up_last_is_named_then_the_highest_id(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        partition = lead(broker, 1, FOLLOWERS, FOLLOWERS)
        later_ms = broker.clock.monotonic_ms() + 1_000
        for replica_id, after_ms in ((21, 0), (22, 1), (23, 1)):
            partition.fetched(replica_id, 0, 0, later_ms + after_ms)
        assert (await told(ask_fetch(broker, rack="b")))[0] == 23
        partition.fetched(21, 0, 0, later_ms + 2)
        assert (await told(ask_fetch(broker, rack="b")))[0] == 21

    with_broker(tmp_path, scenario, {**TOLD, "broker.rack": "other"})


@pytest.mark.parametrize("lacks", ["life", "sync", "the offset", "its beginning", "the listener", "a fetch"])
def test_a_follower_that_cannot_serve_is_not_named(tmp_path: Path, lacks: str) -> None:
    async def scenario(broker: Broker) -> None:
        racks = {21: "b", 22: "c", 23: "c"}
        if lacks == "life":
            del racks[21]
        introduce(broker, racks, "OTHER" if lacks == "the listener" else "PLAINTEXT")
        end = 1 if lacks == "the offset" else 3
        ends = {22: 3, 23: 3} if lacks == "a fetch" else {21: end, 22: 3, 23: 3}
        await led(broker, ends, (22, 23) if lacks == "sync" else FOLLOWERS)
        if lacks == "its beginning":
            partition = broker.partitions.get("t", 0)
            assert partition is not None
            partition.fetched(21, 3, 3, broker.clock.monotonic_ms())
        offset = 2 if lacks == "the offset" else 0
        asked = ask_fetch(broker, offset, rack="b", max_wait_ms=0)
        assert (await told(asked))[0] == -1

    with_broker(tmp_path, scenario, TOLD)


@pytest.mark.parametrize("selector", [None, LEADER_ONLY])
def test_nobody_is_named_without_the_selector(tmp_path: Path, selector: str | None) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        await led(broker, dict.fromkeys(FOLLOWERS, 3))
        assert (await told(ask_fetch(broker, rack="b")))[0] == -1

    with_broker(tmp_path, scenario, {} if selector is None else {"replica.selector.class": selector})


def test_followers_and_older_clients_are_told_of_no_other_replica(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        await led(broker, dict.fromkeys(FOLLOWERS, 3))
        assert (await told(ask_fetch(broker, version=10)))[0] == -1
        follow(broker, 2)
        asked = ask_fetch(broker, rack="b", max_wait_ms=0)
        assert (await told(asked))[0] == -1, "a follower answers itself"

    with_broker(tmp_path, scenario, TOLD)


def test_an_incremental_answer_names_the_replica_though_nothing_else_has_changed(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        await led(broker, dict.fromkeys(FOLLOWERS, 3))
        first = await ask_fetch(broker, rack="b", session=(0, 0)).answered()
        assert first.session_id != 0
        for epoch in (1, 2):
            assert (await told(ask_fetch(broker, rack="b", session=(first.session_id, epoch))))[0] == 23

    with_broker(tmp_path, scenario, TOLD)


def test_a_fetch_that_waits_is_told_as_soon_as_a_follower_has_come(tmp_path: Path) -> None:
    """As Apache Kafka: the replica is chosen again when the wait is over."""

    async def scenario(broker: Broker) -> None:
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        await led(broker, dict.fromkeys(FOLLOWERS, 3), isr=(22, 23))
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        introduce(broker, {21: "b", 22: "c", 23: "c"})
        waiting = ask_fetch(broker, 3, rack="b")
        assert waiting.answer is None
        introduce(broker, dict.fromkeys(FOLLOWERS, "b"))
        assert await produced(ask_produce(broker, 1)) is ErrorCode.NONE
        for replica_id in FOLLOWERS:
            partition.fetched(replica_id, 4, 0, broker.clock.monotonic_ms())
        assert (await told(waiting))[0] in (22, 23)

    with_broker(tmp_path, scenario, TOLD)


def test_a_follower_counts_as_read_for_a_while() -> None:
    from ottla.broker.replicas.leader import Leader
    from ottla.cluster.image import PartitionImage

    leader = Leader(PartitionImage(1, 1, (1, 2, 3), (1, 2, 3)), 0, 0, 0.0)
    assert (leader.has_read_replicas, leader.read_replicas(0.0)) == (False, [])
    leader.is_read_at(3, 10.0)
    assert leader.read_replicas(READ_FOR_MS) == [3]
    assert leader.read_replicas(READ_FOR_MS + 10.0) == []


@pytest.mark.slow
def test_what_is_committed_is_shown_at_once_by_a_follower_that_consumers_read(tmp_path: Path) -> None:
    """In Apache Kafka a follower hears of the last record's high watermark when its fetch has waited long enough."""
    waits = {"replica_fetch_wait_max_ms": "30000", "replica_selector_class": RACK_AWARE}

    async def scenario() -> None:
        pair = Pair(tmp_path)
        try:
            await pair.start(ONE, broker_rack="a", **waits)
            await pair.start(TWO, broker_rack="b", **waits)
            leader, follower = pair.brokers[ONE], pair.brokers[TWO]
            leader.partitions.replication.epoch_of = lambda _: -1
            pair.give_roles(ONE, 5)
            pair.append(ONE)
            await until(lambda: pair.log(ONE).high_watermark > 0, "the follower to have the record")
            assert await told(ask_fetch(leader, rack="b")) == (TWO, 0)
            for _ in range(5):
                asked = ask_fetch(follower, pair.log(TWO).log_end_offset)
                pair.append(ONE)
                assert await asyncio.wait_for(fetched(asked), 20) is ErrorCode.NONE
                assert pair.log(TWO).high_watermark == pair.log(ONE).log_end_offset
            assert follower.rack_reads.bytes_read > 0
            fetches = sum(leader.dispatcher.requests[1].by_version)
            assert fetches < 60, "it does not ask without end"
        finally:
            for broker_id in list(pair.brokers):
                await pair.stop(broker_id)

    asyncio.run(scenario())
