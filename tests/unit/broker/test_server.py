"""The broker in this process: starting, refusing to start, stopping, starting again."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.replicas.partition import Partition
from ottla.broker.server import Broker
from ottla.cluster.adoption import UNLIMITED_RETENTION
from ottla.cluster.controller_events import TopicCreated
from ottla.cluster.image import TopicImage
from ottla.cluster.topics import TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.env.disk import RealDisk
from ottla.records.record import Record, encode_batch
from ottla.storage.index import OffsetIndex
from ottla.storage.log import CLIENT, PartitionLog
from ottla.storage.results import AppendInfo
from ottla.storage.segment import Segment
from ottla.storage.topic_settings import TOPIC_SETTINGS_FILE, TopicSettings, read_topic_settings
from ottla.testing.disk_faulty import FaultyDisk
from ottla.wire.errors import ErrorCode
from support.storage_logs import batch

Scenario = Callable[[], Awaitable[None]]


def config(folder: Path, **settings: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    parsed = parse_broker_config(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder), "offsets.topic.num.partitions": "2", **named}
    )
    assert isinstance(parsed, BrokerConfig), parsed
    return parsed


def run(scenario: Scenario) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_port_0_is_resolved_before_it_is_announced(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        try:
            [endpoint] = broker.listening
            assert endpoint.port > 0
            announced = broker.image.brokers[broker.id].endpoint("PLAINTEXT")
            assert announced is not None
            assert (announced.host, announced.port) == ("127.0.0.1", endpoint.port)
        finally:
            await broker.stop()

    run(scenario)


def test_every_interface_is_never_announced(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path, listeners="PLAINTEXT://0.0.0.0:0"))
        assert await broker.start() is None
        try:
            announced = broker.image.brokers[broker.id].endpoint("PLAINTEXT")
            assert announced is not None
            assert announced.host not in ("", "0.0.0.0")
        finally:
            await broker.stop()

    run(scenario)


def test_each_listener_announces_its_own_endpoint(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(
            config(
                tmp_path,
                listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
                advertised_listeners="INSIDE://127.0.0.1:0,OUTSIDE://kafka.example:19092",
                listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
                inter_broker_listener_name="INSIDE",
            )
        )
        assert await broker.start() is None
        try:
            image = broker.image.brokers[broker.id]
            inside, outside = image.endpoint("INSIDE"), image.endpoint("OUTSIDE")
            assert inside is not None
            assert outside is not None
            assert inside.port == broker.listening[0].port
            assert (outside.host, outside.port) == ("kafka.example", 19092)
        finally:
            await broker.stop()

    run(scenario)


def test_a_port_in_use_is_refused_and_touches_no_data(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            refusal = await Broker(config(tmp_path / "data", listeners=f"PLAINTEXT://127.0.0.1:{port}")).start()
        assert refusal is not None
        assert f"127.0.0.1:{port}" in refusal.message
        assert "in use" in refusal.message
        assert not (tmp_path / "data").exists()

    run(scenario)


@pytest.mark.spec("L3")
def test_a_directory_in_use_is_refused_and_free_again_after_the_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = Broker(config(tmp_path))
        assert await first.start() is None
        refusal = await Broker(config(tmp_path)).start()
        assert refusal is not None
        assert str(tmp_path) in refusal.message
        await first.stop()
        third = Broker(config(tmp_path))
        assert await third.start() is None
        await third.stop()

    run(scenario)


@pytest.mark.spec("L9", "Z3")
def test_a_restart_keeps_cluster_id_broker_id_and_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = Broker(config(tmp_path))
        assert await first.start() is None
        assert await first.control.admin.ensure_topic("orders") is None
        known = (first.id, first.image.cluster_id, first.image.topics["orders"].topic_id)
        await first.stop()
        second = Broker(config(tmp_path))
        assert await second.start() is None
        assert (second.id, second.image.cluster_id, second.image.topics["orders"].topic_id) == known
        assert second.partitions.get("orders", 0) is not None
        await second.stop()

    run(scenario)


def test_without_meta_properties_the_broker_stays_who_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def once(broker_id: str) -> None:
        broker = Broker(config(tmp_path, broker_id=broker_id))
        assert await broker.start() is None
        assert await broker.control.admin.ensure_topic("orders") is None
        assert broker.id == 1001
        assert broker.image.topics["orders"].partitions[0].leader == 1001
        await broker.stop()

    run(lambda: once("-1"))
    (tmp_path / "meta.properties").unlink()
    run(lambda: once("-1"))
    assert "continuing as broker 1001, which holds all topics" in caplog.text


def test_a_damaged_meta_properties_refuses_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        refusal = await Broker(config(tmp_path)).start()
        assert refusal is not None
        assert "meta.properties: there is no version in it" in refusal.message

    (tmp_path / "meta.properties").write_bytes(b"")
    run(scenario)


def test_another_broker_id_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = Broker(config(tmp_path, broker_id="1"))
        assert await first.start() is None
        await first.stop()
        refusal = await Broker(config(tmp_path, broker_id="2")).start()
        assert refusal is not None
        assert "Configured broker.id 2 doesn't match stored broker.id 1 in meta.properties" in refusal.message
        again = Broker(config(tmp_path, broker_id="1"))
        assert await again.start() is None, "the refusal let go of folder and port"
        await again.stop()

    run(scenario)


def test_directories_in_another_order_are_refused_where_the_topics_settings_would_be_lost(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    swapped = config(tmp_path, log_dirs=f"{second},{first}")

    async def as_written() -> None:
        broker = Broker(config(tmp_path, log_dirs=f"{first},{second}"))
        assert await broker.start() is None
        kept = TopicSpec("orders", 2, 1, configs={"retention.ms": "-1"})
        assert isinstance(await broker.control.admin.create_topic(kept), TopicCreated)
        await broker.stop()

    async def refused() -> None:
        refusal = await Broker(swapped).start()
        assert refusal is not None
        assert f"lies in {first}, and is looked for in {second}" in refusal.message

    async def as_the_message_says() -> None:
        broker = Broker(swapped)
        assert await broker.start() is None
        assert broker.image.topics["orders"].configs == {"retention.ms": "-1"}
        await broker.stop()

    run(as_written)
    run(refused)
    for file in first.glob("ottla-tree.*"):
        assert not (second / file.name).exists()
        file.rename(second / file.name)
    run(as_the_message_says)


async def old_records(broker: Broker, topic: str) -> PartitionLog:
    """Write records that are a month old, in several segments, by several keys."""
    log = broker.logs.get(topic, 0)
    assert log is not None
    a_month_ago = broker.clock.now_ms() - 30 * 24 * 3_600_000
    for _ in range(3):
        records = [Record(0, a_month_ago, b"key", b"value", ())]
        appended = log.append(memoryview(bytearray(encode_batch(records))), leader_epoch=0, now_ms=a_month_ago)
        assert isinstance(appended, AppendInfo)
        log.roll(a_month_ago)
    return log


@pytest.mark.parametrize("beside", [True, False])
def test_lost_coordination_metadata_costs_no_records(tmp_path: Path, beside: bool) -> None:
    """Retention would delete what is older than 7 days, with the broker's defaults."""
    kept = {"kept": {"retention.ms": "-1"}, "compacted": {"cleanup.policy": "compact"}, "defaults": {}}

    async def writing() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        for name, configs in kept.items():
            assert isinstance(
                await broker.control.admin.create_topic(TopicSpec(name, 1, 1, configs=configs)), TopicCreated
            )
            await old_records(broker, name)
        await broker.stop()

    async def adopting() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        try:
            list(broker.logs.upkeep.apply_retention(broker.clock.now_ms()))
            starts = {log.topic: log.log_start_offset for log in broker.logs.logs()}
            # Whose settings are known to be the defaults, loses what is due; nothing else does.
            assert starts == {"kept": 0, "compacted": 0, "defaults": 3 if beside else 0}
            for name, configs in kept.items():
                assert broker.image.topics[name].configs == (configs if beside else UNLIMITED_RETENTION)
            log = broker.logs.get("compacted", 0)
            assert log is not None
            assert log.config.compact is beside
        finally:
            await broker.stop()

    run(writing)
    for file in tmp_path.glob("ottla-tree.*"):
        file.unlink()
    for file in tmp_path.glob(f"*/{TOPIC_SETTINGS_FILE}"):
        if not beside:
            file.unlink()
    run(adopting)
    # Again, from the coordination metadata that was made anew.
    run(adopting)


def test_settings_beside_the_records_follow_those_of_the_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 2)), TopicCreated)
        refused = await broker.control.topic_configs.change("t", lambda _: {"retention.ms": "5"}, validate_only=False)
        assert refused is None
        topic_id = broker.image.topics["t"].topic_id
        await broker.stop()
        kept = read_topic_settings(RealDisk(), str(tmp_path / "t-0"))
        assert kept == TopicSettings(topic_id, {"retention.ms": "5"})
        assert not (tmp_path / "t-1" / TOPIC_SETTINGS_FILE).exists(), "once for each topic"

    run(scenario)


def test_stray_directories_are_kept_and_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        for name in ("stray", "t"):
            assert isinstance(await broker.control.admin.create_topic(TopicSpec(name, 1)), TopicCreated)
        await old_records(broker, "stray")
        await broker.stop()
        (tmp_path / "stray-0").rename(tmp_path / "other-0")
        (tmp_path / "other-0" / "partition.metadata").unlink()
        before = {path.name: path.read_bytes() for path in (tmp_path / "other-0").iterdir()}
        for _ in range(2):
            broker = Broker(config(tmp_path))
            assert await broker.start() is None
            list(broker.logs.upkeep.apply_retention(broker.clock.now_ms()))
            assert "other" not in broker.image.topics
            assert broker.partitions.get("other", 0) is None
            assert "other-0 is stray, and kept but not served" in caplog.text
            await broker.stop()
            assert {path.name: path.read_bytes() for path in (tmp_path / "other-0").iterdir()} == before

    run(scenario)


def test_the_log_of_a_kraft_quorum_is_no_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "__cluster_metadata-0").mkdir()
        (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"not ours")
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert broker.image.topics == {}
        assert list(broker.logs.logs()) == []
        await broker.stop()
        assert [path.name for path in (tmp_path / "__cluster_metadata-0").iterdir()] == ["00000000000000000000.log"]

    run(scenario)


@pytest.mark.parametrize("again", ["{0}", "{0}/", "{0}/../data"])
def test_one_directory_named_twice_is_called_that(tmp_path: Path, again: str) -> None:
    async def scenario() -> None:
        folder = tmp_path / "data"
        refusal = await Broker(config(tmp_path, log_dirs=f"{folder},{again.format(folder)}")).start()
        assert refusal is not None
        assert refusal.message.endswith("of log.dirs are one directory. Name it once")

    run(scenario)


def test_a_disk_that_takes_nothing_refuses_the_start_in_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk(RealDisk())
        disk.fail("write", "*", errno.ENOSPC)
        refusal = await Broker(config(tmp_path), disk=disk).start()
        assert refusal is not None
        assert "No space left" in refusal.message

    run(scenario)


def test_deleting_a_topic_takes_its_partitions_out_of_service(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        try:
            assert await broker.control.admin.ensure_topic("gone") is None
            partition = broker.partitions.get("gone", 0)
            assert partition is not None
            assert await broker.control.admin.delete_topic("gone") is None
            assert broker.partitions.get("gone", 0) is None
            assert broker.partitions.get_by_id(partition.topic_id, 0) is None
            assert broker.logs.get("gone", 0) is None
        finally:
            await broker.stop()

    run(scenario)


def test_stopping_reports_how_much_is_forced_to_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert await broker.control.admin.ensure_topic("t") is None
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        batch = bytearray(encode_batch([Record(0, broker.clock.now_ms(), None, b"value", ())]))
        assert isinstance(broker.partitions.append(partition, memoryview(batch), CLIENT), AppendInfo)
        told: list[int] = []
        await broker.stop(told.append)
        assert told == [len(batch)]

    run(scenario)


def test_partitions_that_could_not_all_be_added_are_not_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk(RealDisk())
        broker = Broker(config(tmp_path), disk=disk)
        assert await broker.start() is None
        try:
            assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 1)), TopicCreated)
            disk.fail("open", "*/t-2", errno.ENOSPC)
            refusal = await broker.control.admin.create_partitions("t", 4)
            assert refusal is not None
            assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.partitions.indexes("t") == [0]
            assert [log.partition for log in broker.logs.logs() if log.topic == "t"] == [0]
            disk.heal()
            assert await broker.control.admin.create_partitions("t", 4) is None
            assert broker.partitions.indexes("t") == [0, 1, 2, 3]
        finally:
            await broker.stop()

    run(scenario)


def test_connections_are_closed_by_their_idle_time_and_new_ones_are_not_old(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path, connections_max_idle_ms="60000"))
        assert await broker.start() is None
        try:
            [endpoint] = broker.listening
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            while not len(broker.connections):  # noqa: ASYNC110 - the acceptor signals nothing
                await asyncio.sleep(0)
            now_ms = broker.clock.monotonic_ms()
            broker.upkeep.tend_connections(now_ms)
            broker.upkeep.tend_connections(now_ms + 59_000)
            assert len(broker.connections) == 1, "a connection that has not asked anything yet is young"
            [connection] = broker.connections.snapshot()
            writer.write(bytes((0, 0, 1)))
            while not connection.bytes_in:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
            broker.upkeep.tend_connections(now_ms + 61_000)
            assert len(broker.connections) == 1, "something has come"
            broker.upkeep.tend_connections(now_ms + 122_000)
            assert len(broker.connections) == 0
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        finally:
            await broker.stop()

    run(scenario)


def appended(broker: Broker, topic: str) -> int:
    """The offset that a batch got."""
    partition = broker.partitions.get(topic, 0)
    assert partition is not None
    info = partition.log.append(batch(), leader_epoch=0, now_ms=broker.clock.now_ms())
    assert isinstance(info, AppendInfo)
    return info.first_offset


def test_the_directory_of_another_topic_of_that_name_is_not_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        named = tmp_path / "t-0" / "partition.metadata"
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        for name in ("t", "u"):
            assert isinstance(await broker.control.admin.create_topic(TopicSpec(name, 1)), TopicCreated)
            assert appended(broker, name) == 0
        await broker.stop()
        own = named.read_text()
        named.write_text((tmp_path / "u-0" / "partition.metadata").read_text())
        before = {path.name: path.read_bytes() for path in named.parent.iterdir()}
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        try:
            assert broker.image.topics["t"].partitions[0].leader == -1
            assert broker.partitions.missing("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR
            assert appended(broker, "u") == 3
            assert broker.logs.get("t", 0) is None
        finally:
            await broker.stop()
        assert {path.name: path.read_bytes() for path in named.parent.iterdir()} == before
        named.write_text(own)
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert appended(broker, "t") == 3
        await broker.stop()

    run(scenario)


def test_a_directory_that_names_no_topic_id_gets_that_of_its_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        named = tmp_path / "t-0" / "partition.metadata"
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 1)), TopicCreated)
        assert appended(broker, "t") == 0
        await broker.stop()
        own = named.read_bytes()
        for write in (named.unlink, lambda: named.write_bytes(b"version: 0\ntopic_id: " + b"x" * 99)):
            write()
            broker = Broker(config(tmp_path))
            assert await broker.start() is None
            assert appended(broker, "t") > 0
            await broker.stop()
            assert named.read_bytes() == own

    run(scenario)


def test_the_directory_is_free_when_the_tree_in_it_is_closed(tmp_path: Path) -> None:
    """Not sooner: the next broker would read what this one still writes."""

    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        coordination = broker._coordination
        assert coordination is not None
        assert coordination.store is not None
        closed: list[bool] = []
        close_logs = broker.logs.close

        def close() -> int:
            closed.append(coordination.store._closed)
            return close_logs()

        broker.logs.close = close  # type: ignore[method-assign]
        await broker.stop()
        assert closed == [True]

    run(scenario)


@pytest.mark.spec("L8")
def test_a_partition_whose_directory_cannot_be_opened_is_offline_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        assert isinstance(await broker.control.admin.create_topic(TopicSpec("t", 3)), TopicCreated)
        await broker.stop()
        (tmp_path / "t-1" / f"{99:020}.log").mkdir()
        again = Broker(config(tmp_path))
        assert await again.start() is None
        try:
            assert [again.partitions.get("t", index) is not None for index in range(3)] == [True, False, True]
            assert again.partitions.missing("t", 1) is ErrorCode.KAFKA_STORAGE_ERROR
            assert [state.leader for state in again.image.topics["t"].partitions] == [again.id, -1, again.id]
            assert (tmp_path / "t-1" / f"{99:020}.log").is_dir(), "nothing of it is touched"
        finally:
            await again.stop()

    run(scenario)
    assert "t-1 is offline" in caplog.text


def objects_of_a_partition() -> Counter[str]:
    """The objects that a hosted partition is made of, dead ones in cycles included."""
    kinds = (TopicImage, Partition, PartitionLog, Segment, OffsetIndex)
    return Counter(type(found).__name__ for found in gc.get_objects() if isinstance(found, kinds))


def test_a_deleted_topic_leaves_nothing_to_the_collector(tmp_path: Path) -> None:
    """What a long collection has passed over is never collected, so nothing of a topic may be in a cycle."""

    async def scenario() -> None:
        broker = Broker(config(tmp_path))
        assert await broker.start() is None
        try:
            for name in ("kept", "deleted"):
                made = await broker.control.admin.create_topic(TopicSpec(name, 1, 1, {}, {}))
                assert isinstance(made, TopicCreated)
            del made
            gc.collect()
            gc.disable()
            before = objects_of_a_partition()
            assert await broker.control.admin.delete_topic("deleted") is None
            await asyncio.sleep(0)
            assert len(before) == 5
            assert before - objects_of_a_partition() == dict.fromkeys(before, 1)
        finally:
            gc.enable()
            await broker.stop()

    run(scenario)
