"""The broker for tests: its life, what it shows of records and groups, and its time."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.client.sync import Consumer, Producer
from ottla.records.compression import Compression
from ottla.records.message_set import encode_messages
from ottla.records.record import Record
from ottla.testing import Broker, SeedRecord, TestBrokerError, WaitedInVainError
from support.waiting import wait_until

pytestmark = pytest.mark.spec("U1")


def test_clients_use_it_by_its_address() -> None:
    with Broker({"orders": 3}) as broker:
        assert broker.topics() == {"orders": 3}
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", value=b"one", partition=2).result()
        assert [(each.partition, each.offset, each.value) for each in broker.records("orders")] == [(2, 0, b"one")]
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            assert next(iter(consumer)).value == b"one"
            consumer.commit()
            assert broker.wait_for_commit("readers", "orders", 1, partition=2) == 1
            group = broker.wait_for_group("readers", members=1)
            assert [member.partitions for member in group.members] == [
                frozenset({("orders", 0), ("orders", 1), ("orders", 2)})
            ]
            assert group.lag["orders", 2] == 0


def test_seeds_are_records_like_any_others() -> None:
    with Broker() as broker:
        broker.create_topic("t", 2, cleanup_policy="compact")
        assert broker.send("t", "value", key="key", headers={"h": "1"}, partition=1, timestamp_ms=5) == (1, 0)
        places = broker.send_all("t", [SeedRecord(str(number), key=f"k{number}", partition=0) for number in range(3)])
        assert places == [(0, 0), (0, 1), (0, 2)]
        last = broker.records("t", 1)[0]
        assert (last.key, last.value, last.headers, last.timestamp) == (b"key", b"value", (("h", b"1"),), 5)
        assert broker.end_offsets("t") == {0: 3, 1: 1}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_messages_of_old_formats_are_read(magic: int, codec: Compression, tmp_path: Path) -> None:
    with Broker({"t": 1}, data=tmp_path):
        pass
    records = [Record(at, 1_000 + at, b"k", None if at else b"v") for at in range(3)]
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(encode_messages(records, magic, compression=codec))
    with Broker(data=tmp_path) as broker:
        broker.send("t", "new")
        found = broker.records("t")
        first = 1_000 if magic else -1
        assert [(each.offset, each.key, each.value) for each in found] == [
            (0, b"k", b"v"),
            (1, b"k", None),
            (2, b"k", None),
            (3, None, b"new"),
        ]
        assert (found[0].timestamp, found[0].serialized_value_size, found[1].serialized_value_size) == (first, 1, -1)


def test_a_topic_that_a_seed_creates_has_the_default_number_of_partitions() -> None:
    with Broker(settings={"num.partitions": 3}) as broker:
        broker.send("t", "x")
        assert broker.topics() == {"t": 3}


def test_many_seeds_take_several_batches() -> None:
    with Broker() as broker:
        broker.send_all("t", [bytes(100_000)] * 30)
        assert [each.offset for each in broker.records("t")] == list(range(30))


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda broker: broker.send("t", b"x" * 2_000_000), "t-0 does not take the records: MESSAGE_TOO_LARGE"),
        (lambda broker: broker.send("t", "x", partition=4), "t has partitions 0 to 0, and no partition 4"),
        (lambda broker: broker.records("nope"), "there is no topic nope; there are: t"),
        (lambda broker: broker.create_topic("t"), "the topic t cannot be created: Topic 't' already exists."),
        (lambda broker: broker.create_topic("u", cleanup_polizy="compact"), "the topic u cannot be created: "),
        (lambda broker: broker.delete_topic("nope"), "the topic nope cannot be deleted: "),
        (lambda broker: broker.advance(minutes=-1), "time can only be moved forward, not by -60000 ms"),
        (lambda broker: broker.advance(days="1"), "days='1': it must be a number"),
        (lambda broker: broker.advance(minutes=float("nan")), "minutes=nan: it must be a number"),
        (lambda broker: broker.wait_for_records("t", 1, None), "timeout_s=None: it must be a number"),
        (lambda broker: broker.start(), "this test broker is running already"),
        (lambda broker: broker.advance(days=1e9), "time ends with the year 9999; it cannot be moved by "),
        (lambda broker: broker.advance(days=float("inf")), "time ends with the year 9999; it cannot be moved by inf"),
        (lambda broker: broker.end_offsets("nope"), "there is no topic nope; there are: t"),
        (lambda broker: broker.send("t", 5), "a value is bytes, text or None, and not 5: serialize it first"),
        (lambda broker: broker.send("t", "x", key=5), "a key is bytes, text or None, and not 5: serialize it first"),
        (lambda broker: broker.send("t", "x", headers={"h": 5}), "a header's value is bytes, text or None, and not 5"),
        (lambda broker: broker.send("t", "x", headers=["h"]), "headers are names and values, as in "),
        (lambda broker: broker.send("t", "x", timestamp_ms=1.5), "timestamp_ms=1.5: it must be a whole number"),
        (lambda broker: broker.send_all("t", "abc"), "'abc' is one value: send() takes it, and send_all"),
        (
            lambda broker: broker.send("__consumer_offsets", "x"),
            "__consumer_offsets is an internal topic, which only the broker writes",
        ),
        (
            lambda broker: broker.wait_for_group("g", state="stable"),
            "a group has no state stable; did you mean Stable?",
        ),
        (lambda broker: broker.create_topics({"u": "3"}), "the topic u: '3' is not a number of partitions"),
        (lambda broker: broker.create_topics({"u": {"partitions": None}}), "the topic u: None is not a number of part"),
    ],
)
def test_misuse_is_named(use: object, expected: str) -> None:
    assert callable(use)
    with Broker({"t": 1}) as broker, pytest.raises(TestBrokerError, match="^" + re.escape(expected)):
        use(broker)


def test_seeds_of_which_one_has_no_partition_are_all_left_out() -> None:
    with Broker({"t": 1}) as broker:
        with pytest.raises(TestBrokerError, match="t has partitions 0 to 0, and no partition 1"):
            broker.send_all("t", [SeedRecord("a", partition=0), SeedRecord("b", partition=1)])
        assert broker.records("t") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"topics": ["orders"]}, "topics=['orders']: give numbers of partitions by name, as in {\"orders\": 3}"),
        ({"settings": "a=b"}, "settings='a=b': give values by Kafka's names, as in {\"num.partitions\": 3}"),
        ({"data": ""}, "data='': it must be the path of a directory, as text; leave it out for memory"),
        ({"data": b"here"}, "data=b'here': it must be the path of a directory, as text; leave it out for memory"),
        ({"data": "a,b"}, "data='a,b': Kafka's log.dirs cannot name a directory with a comma, or with spaces at its"),
        ({"settings": {"log.dirs": "here"}}, "log.dirs cannot be among the settings: give the directory as data=…"),
        (
            {"settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}, "port": 9092},
            "listeners among the settings says where to listen: leave host=, port=, tls= and sasl= out",
        ),
    ],
)
def test_what_it_cannot_be_made_of_is_named(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(TestBrokerError, match="^" + re.escape(expected)):
        Broker(**given)


@pytest.mark.parametrize(("host", "expected"), [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_a_broker_on_all_addresses_names_one_to_connect_to(host: str, expected: str) -> None:
    with Broker(host=host) as broker:
        assert broker.bootstrap_servers == f"{expected}:{broker.port}"


def test_a_wrong_setting_is_refused_at_the_start() -> None:
    with pytest.raises(TestBrokerError, match=r"did you mean num\.partitions"):
        Broker(settings={"num.partitons": 3}).start()


def test_a_port_in_use_is_refused_at_the_start() -> None:
    with Broker() as broker, pytest.raises(TestBrokerError, match="the port is in use"):
        Broker(port=broker.port).start()


def test_before_the_start_and_after_the_stop() -> None:
    broker = Broker()
    with pytest.raises(TestBrokerError, match="the test broker is not running: use it inside `with Broker"):
        broker.topics()
    with broker:
        pass
    broker.stop()
    with pytest.raises(TestBrokerError, match="not running"):
        _ = broker.bootstrap_servers


def test_a_wait_says_what_is_there_instead() -> None:
    with Broker({"t": 1}) as broker:
        broker.send("t", "x")
        with pytest.raises(WaitedInVainError, match=r"waited 0\.05 s in vain for 2 records in t: 1 are there"):
            broker.wait_for_records("t", 2, timeout_s=0.05)
        with pytest.raises(WaitedInVainError, match="the group g in state Stable with 2 members: there is no such"):
            broker.wait_for_group("g", members=2, timeout_s=0.05)
        with pytest.raises(WaitedInVainError, match="group g to commit 3 for t-0: it has committed None"):
            broker.wait_for_commit("g", "t", 3, timeout_s=0.05)


def test_in_an_event_loop() -> None:
    async def scenario() -> None:
        async with Broker() as broker:
            waiting = asyncio.ensure_future(broker.aio.wait_for_records("t", 1))
            await asyncio.sleep(0)
            broker.send("t", "x")
            assert [each.value for each in await waiting] == [b"x"]

    asyncio.run(scenario())


def test_data_on_disk_stay_for_the_next_broker(tmp_path: Path) -> None:
    with Broker({"t": 2}, data=tmp_path / "data") as broker:
        broker.send("t", "kept", partition=1)
    with Broker({"t": 2}, data=tmp_path / "data") as broker:
        assert [each.value for each in broker.records("t")] == [b"kept"]


def test_time_that_passes_ends_sessions_retention_and_offsets() -> None:
    with Broker({"t": 1}, settings={"log.retention.hours": 24}) as broker:
        broker.send("t", "old")
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(["t"])
            next(iter(consumer))
            consumer.commit()
            before_ms = broker.now_ms()
            broker.advance(minutes=10)
            assert broker.now_ms() - before_ms >= 600_000
            group = broker.group("g")
            assert group is not None
            assert (group.state, group.committed) == ("Empty", {("t", 0): 1})
        broker.advance(days=8)
        assert broker.records("t") == []
        assert broker.end_offsets("t") == {0: 1}
        assert broker.groups() == []


def test_nothing_is_left_after_the_stop() -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        with Broker({"t": 1}) as broker:
            broker.send("t", "x")
    assert set(threading.enumerate()) == before


def test_a_broker_that_is_dropped_while_it_runs_warns_and_ends() -> None:
    before = set(threading.enumerate())
    dropped = [Broker().start()]
    with pytest.warns(ResourceWarning, match="a test broker was dropped while it ran: stop it, or use `with`"):
        dropped.clear()
    wait_until(lambda: set(threading.enumerate()) == before, "its thread to end")


def test_many_seeds_leave_turns_to_clients() -> None:
    with Broker({"t": 1}) as broker:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = broker._running.submit(count())
        broker.send_all("t", ["x"] * 50_000)
        counting.cancel()
        assert turns > 10
