"""Pages that no walk types: their Python runs with what a reader has around it, their settings and files are read."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.request import urlopen

import opentelemetry.metrics
import polars
import pyarrow
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

import ottla.client
from ottla.cli.main import app
from ottla.client import ConsumerRebalanceListener
from ottla.client.configs.settings import CONSUMER, SETTINGS_OF
from ottla.client.errors import RecordDeserializationError
from ottla.client.sync import Client, Consumer, Producer
from ottla.config.broker import ConfigRefusal, parse_broker_config
from ottla.config.properties import parse_properties
from ottla.testing import Broker
from ottla.zk.server.zoo_cfg import zoo_config
from support.ottla_server import OttlaServer
from support.ports import free_port
from support.waiting import wait_until
from support.walkthrough import code_blocks

DOCS = Path(__file__).resolve().parents[3] / "docs"
TOPIC = "clicks"
#: Records that a page's endless loop prints before the reader stops it.
RECORDS = 3
ADDRESSES = re.compile(r"(localhost|127\.0\.0\.1):9092")
TIMEOUT_MS = 60_000

Around = dict[str, Any]

pytestmark = [pytest.mark.spec("U5"), pytest.mark.slow]


class Enough(BaseException):
    """The reader has seen enough of an endless loop."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 1, "clicks-dead": 1}, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


def fill(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_many([(b"k", b"1")] * RECORDS, TOPIC).result(60)


async def run(page: str, servers: str, around: Callable[[int], Around], present: Around | None = None) -> list[str]:
    """Run the blocks; `around` gives the names that the one of this number needs. Returns what they printed.

    `present` keeps all names.
    """
    printed: list[str] = []
    present = {} if present is None else present

    def show(*values: object) -> None:
        printed.append(" ".join(map(str, values)))
        if len(printed) % RECORDS == 0:
            raise Enough

    blocks = [each for each in code_blocks(DOCS / page) if each.language == "python"]
    assert blocks
    for number, block in enumerate(blocks):
        source = f"{page}, line {block.line}"
        text = ADDRESSES.sub(servers, block.text).replace("9404", str(free_port()))
        present |= around(number)
        if text.startswith(">>>"):
            parsed = doctest.DocTestParser().get_doctest(text, present, source, page, block.line)
            assert doctest.DocTestRunner().run(parsed).failed == 0
            continue
        present["print"] = show
        code = compile(text, source, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        try:
            done = eval(code, present)
            if inspect.iscoroutine(done):
                await done
        except Enough:
            pass
    return printed


def played(page: str, servers: str, around: Callable[[int], Around]) -> list[str]:
    return asyncio.run(asyncio.wait_for(run(page, servers, around), TIMEOUT_MS / 1000))


def tracked(made: list[Any], kind: type) -> Callable[..., Any]:
    """The class, for a block that makes a client and leaves it open."""

    def make(*arguments: Any, **named: Any) -> Any:
        made.append(kind(*arguments, **named))
        return made[-1]

    return make


def test_the_producer(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    table = pyarrow.table({"id": [b"1"], "value": [b"4"]})
    made: list[Producer] = []
    totals: list[bytes] = []

    def total_with(value: bytes) -> bytes:
        totals.append(value)
        return value

    class Reader(ottla.client.Consumer):
        async def poll(self, timeout_ms: int) -> Any:
            if len(totals) == len(broker.records(TOPIC)):
                raise Enough
            return await super().poll(timeout_ms)

    with Producer(bootstrap_servers=servers) as producer:
        around: list[Around] = [
            {},
            {"values": [b"1", b"2"]},
            {"producer": producer, "clicks": [(b"k", b"3")], "table": table},
            {"hash_of": hash, "Producer": tracked(made, Producer)},
            {"Producer": Producer},
            {
                "Producer": ottla.client.Producer,
                "Consumer": Reader,
                "servers": {"bootstrap.servers": servers},
                "total_with": total_with,
            },
        ]
        assert played("client-producer.md", servers, around.__getitem__) == ["0 0"]
    made[0].close()
    assert sorted(record.value or b"" for record in broker.records(TOPIC)) == [b"1", b"2", b"3", b"4", b"v"]
    assert [record.value for name in ("debits", "credits") for record in broker.records(name)] == [b"5", b"5"]
    assert [record.value for record in broker.records("totals")] == totals
    assert len(totals) == 5


def test_the_consumer(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:

        def around(number: int) -> Around:
            if number < 2:
                fill(servers)
                return {}
            if number == 2:
                consumer.subscribe([TOPIC])
                return {"consumer": consumer, "polars": polars}
            wait_until(
                lambda: consumer.poll(50) is not None and consumer.current_lag(*consumer.assignment()) == 0, "end"
            )
            consumer.pause(consumer.assignment())
            consumer.poll(0)
            return {}

        printed = played("client-consumer.md", servers, around)
    assert printed == [f"0 {offset} b'1'" for offset in range(2 * RECORDS)]


def test_code_of_ones_own(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = broker.bootstrap_servers

    class Avro:
        def serialize(self, topic: str, headers: object, data: object) -> bytes:
            return repr(data).encode()

    module = ModuleType("package.module")
    vars(module)["Avro"] = Avro
    monkeypatch.setitem(sys.modules, "package", ModuleType("package"))
    monkeypatch.setitem(sys.modules, "package.module", module)
    settings: Around = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest"}
    with (
        Consumer(**settings, value_deserializer="IntegerDeserializer") as consumer,
        Producer(bootstrap_servers=servers) as dead_letters,
    ):
        consumer.subscribe([TOPIC])

        def has_its_partition() -> bool:
            with suppress(RecordDeserializationError):  # comes again at the next poll
                consumer.poll(10)
            return bool(consumer.assignment())

        def around(number: int) -> Around:
            names = {"RecordDeserializationError": RecordDeserializationError}
            if number == 1:
                wait_until(has_its_partition, "its partition")
            return names | {"consumer": consumer, "dead_letters": dead_letters}

        played("client-code.md", servers, around)
    assert [record.value for record in broker.records("clicks-dead")] == [b"{'page': '/'}"]


def test_groups(broker: Broker) -> None:
    done: list[object] = []

    async def store(partitions: object) -> None:
        done.append(partitions)

    async def member() -> None:
        servers = broker.bootstrap_servers
        async with ottla.client.Consumer(bootstrap_servers=servers, group_id="g") as consumer:
            names = {"ConsumerRebalanceListener": ConsumerRebalanceListener, "store_what_is_done": store}
            await run("client-groups.md", servers, lambda _: names | {"consumer": consumer})
            while not consumer.assignment():
                await consumer.poll(50)

    asyncio.run(asyncio.wait_for(member(), TIMEOUT_MS / 1000))
    assert done


def test_short_pages(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    made: list[Any] = []
    present: Around = {}
    fill(servers)
    asyncio.run(run("client-simple.md", servers, lambda _: {}, present))
    assert present["offset"] == RECORDS
    played("client-settings.md", servers, lambda _: {"Producer": tracked(made, Producer)})
    made[0].close()
    assert played("cluster.md", servers, lambda _: {}) == played("pipelines-tables.md", servers, lambda _: {}) == []


def test_figures(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    registry, present = CollectorRegistry(), Around()
    with Producer(bootstrap_servers=servers) as producer, Consumer(bootstrap_servers=servers) as consumer:
        names = {"producer": producer, "consumer": consumer, "opentelemetry": opentelemetry}
        names["prometheus_client"] = SimpleNamespace(REGISTRY=registry)
        try:
            asyncio.run(run("client-metrics.md", servers, lambda _: names, present))
            with urlopen(f"http://127.0.0.1:{present['server'].port}/metrics") as response:
                assert b"kafka_producer_producer_metrics_record_send_total" in response.read()
            assert list(registry.collect())
        finally:
            present["server"].close()


def test_an_assignor(monkeypatch: pytest.MonkeyPatch) -> None:
    present: Around = {}
    first, second = (each.text for each in code_blocks(DOCS / "assignors.md") if each.language == "python")
    module = ModuleType("my_assignors")
    exec(first, vars(module))
    monkeypatch.setitem(sys.modules, "my_assignors", module)
    printed: list[str] = []
    exec(second, present | {"print": lambda value: printed.append(str(value))})
    assert f"# {printed[0]}" in second


def test_the_consumer_of_the_zookeeper_generation(tmp_path: Path) -> None:
    server = OttlaServer(tmp_path, arguments=["--zookeeper-port", "0"])
    try:
        server.start()
        [zookeeper] = re.findall(r"ZooKeeper clients on ([^\s,]+)", server.server.stdout)
        [block] = [each for each in code_blocks(DOCS / "client-highlevel.md") if each.language == "python"]
        with Client(server.bootstrap) as client:
            client.create_topic(TOPIC, 1)
        printed: list[str] = []

        def wait() -> None:
            wait_until(lambda: fill(server.bootstrap) or printed, "records", interval_s=0.2)

        text = block.text.replace("127.0.0.1:2181", zookeeper).replace("\n...\n", "\nwait()\n")
        exec(text, {"print": lambda *values: printed.append(" ".join(map(str, values))), "wait": wait})
        assert re.fullmatch(r"0 \d+ 1", printed[0])
    finally:
        server.stop()


def test_settings_of_security() -> None:
    """Each block of settings is one that a broker or `ottla zookeeper` takes, or has only settings of clients."""
    blocks = [
        parse_properties(each.text) for each in code_blocks(DOCS / "security.md") if each.language == "properties"
    ]
    served = [each for each in blocks if "secureClientPort" in each]
    clients = [each for each in blocks if each.keys() <= SETTINGS_OF[CONSUMER].keys()]
    assert (len(blocks), len(clients), len(served)) == (13, 3, 1)
    for each in blocks:
        if each in served:
            of_files = ("secureClientPort", "ottla.zookeeper.server.jaas.config")
            assert zoo_config({name: text for name, text in each.items() if name not in of_files}).ignored == []
        elif each not in clients:
            found = parse_broker_config(each)
            assert not isinstance(found, ConfigRefusal)
            assert not found.unknown


def test_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = [each for each in code_blocks(DOCS / "pipelines-mirror.md") if each.language == "toml"]
    Path("mirror.toml").write_text(re.sub(r"(west|east)\.example", "127.0.0.1", block.text))
    checked = CliRunner().invoke(app, ["pipeline", "check", "mirror.toml", "--json"])
    rows = [json.loads(line) for line in checked.stdout.splitlines()]
    assert {row["what"] for row in rows if not row["ok"]} <= {"source west", "target east"}, checked.stdout
    assert "file" in {row["what"] for row in rows if row["ok"]}
