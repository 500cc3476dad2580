"""How far groups are behind: only what is known, and what costs little to know."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.broker.metrics import group_lag
from ottla.broker.metrics.group_lag import written_ms
from ottla.broker.server import Broker
from ottla.cluster.topics import TopicSpec
from ottla.groups.events import OffsetCommit
from ottla.groups.records import StoredOffset
from ottla.records.batch import ATTRIBUTES_AT, DELETE_HORIZON_FLAG, LOG_APPEND_TIME_FLAG
from ottla.records.record import Record, encode_batch
from ottla.storage.log import CLIENT
from unit.broker.metrics.test_endpoint import Values, run, scrape

pytestmark = pytest.mark.spec("U3")

SUM, SECONDS = ("kafka_consumergroup_lag_sum", ("g", "t")), ("ottla_consumergroup_lag_seconds", ("g", "t"))


async def prepare(broker: Broker, *counts: int, age_ms: int = 100_000) -> None:
    """A topic with so many records in each partition, those of partition 1 twice as old, and a group at their start."""
    await broker.control.admin.create_topic(TopicSpec("t", len(counts)))
    for index, count in enumerate(counts):
        partition = broker.partitions.get("t", index)
        assert partition is not None
        written = broker.clock.now_ms() - (1 + index) * age_ms
        for _ in range(count):
            batch = bytearray(encode_batch([Record(0, written, b"k", b"v")]))
            broker.partitions.append(partition, memoryview(batch), CLIENT)
    assert await broker.groups.router.ensure_topic() == 0
    commit(broker, *(0 for _ in counts))


def commit(broker: Broker, *offsets: int) -> None:
    now_ms = broker.groups.now_ms()
    values = [("t", index, StoredOffset(offset, -1, "", now_ms)) for index, offset in enumerate(offsets)]
    broker.groups.submit(OffsetCommit(lambda _: None, "g", -1, "", None, values))


def lags(values: Values) -> dict[int, float]:
    return {int(labels[1]): value for (name, labels), value in values.items() if name == "kafka_consumergroup_lag"}


def test_no_sum_hides_a_partition_whose_lag_is_not_known(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await prepare(broker, 2, 3)
        values = await scrape(broker)
        assert lags(values) == {0: 2, 1: 3}
        assert values[SUM] == 5
        topic = broker.image.topics["t"]
        log = broker.partitions.get("t", 1)
        assert log is not None
        state = topic.partitions[1]._replace(leader=9, leader_epoch=1, isr=(9, broker.id), replicas=(9, broker.id))
        broker.partitions.make_fetchers = None
        broker.partitions.make_follower(topic, 1, state, log.log.config)
        assert lags(await scrape(broker)) == {0: 2, 1: 3}  # its ISR has this broker, as far as it knows
        states = (topic.partitions[0], state._replace(isr=(9,)))
        broker.image.topics["t"] = topic._replace(partitions=states)  # type: ignore[index]
        values = await scrape(broker)
        assert lags(values) == {0: 2}
        assert SUM not in values
        assert SECONDS not in values
        assert values["kafka_consumergroup_current_offset_sum", ("g", "t")] == 0

    run(scenario, tmp_path)


def test_ages_are_read_of_the_largest_lags_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        await prepare(broker, 3, 2, 0)
        monkeypatch.setattr(group_lag, "MOST_AGES", 1)
        assert 100 <= (await scrape(broker))[SECONDS] < 200  # of partition 0, which has more lag
        assert (await scrape(broker))[SECONDS] >= 10  # and of partition 1, whose turn it is
        monkeypatch.setattr(group_lag, "MOST_AGES", 0)
        assert (await scrape(broker))[SECONDS] >= 200
        commit(broker, 1, 1, 0)
        assert SECONDS not in await scrape(broker)  # partition 2 has no lag: 0 would be wrong
        commit(broker, 3, 2, 0)
        assert (await scrape(broker))[SECONDS] == 0

    run(scenario, tmp_path)


def test_what_is_cold_is_known_at_the_next_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        await prepare(broker, 3, 3)
        with monkeypatch.context() as patched:
            patched.setattr("ottla.env.disk.RealFile.is_warm", lambda *_: False)
            patched.setattr(group_lag, "MOST_COLD", 1)
            brought: list[object] = []
            patched.setattr(group_lag, "bring", lambda _disk, cold: brought.append(cold))
            values = await scrape(broker)
            assert SECONDS not in values
            assert values[SUM] == 6
            while not brought:
                await broker.executor.submit(lambda: None)
            assert len(brought) == 1
        assert (await scrape(broker))[SECONDS] >= 200
        monkeypatch.setattr("ottla.env.disk.RealFile.is_warm", lambda *_: False)
        assert (await scrape(broker))[SECONDS] >= 200
        commit(broker, 1, 1)
        assert (await scrape(broker))[SECONDS] >= 200

    run(scenario, tmp_path)


def test_when_a_batch_was_written() -> None:
    header = bytearray(encode_batch([Record(0, 1_000, b"k", b"v"), Record(1, 3_000, b"k", b"v")]))
    assert written_ms(bytes(header)) == 1_000
    for flag in (LOG_APPEND_TIME_FLAG, DELETE_HORIZON_FLAG):
        struct.pack_into(">h", header, ATTRIBUTES_AT, flag)
        assert written_ms(bytes(header)) == 3_000
    assert written_ms(bytes(header[:40])) == -1
    assert written_ms(bytes(16) + b"\x01" + bytes(60)) == -1
