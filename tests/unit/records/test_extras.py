"""Packages of extras that are not installed: each way to need one says which extra brings it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

import ottla.client
import ottla.client.sync
from ottla.records.arrow import ArrowRows
from ottla.records.extras import MissingExtraError, missing_extra, require_extra, require_installed
from ottla.spark import register, session
from ottla.zkconsumer import create_connector

ARROW = r"needs pyarrow: pip install 'ottla\[arrow\]'"
SPARK = r"^ottla\.spark needs pyspark: pip install 'ottla\[spark\]'$"


ZOOKEEPER = r"a connection to ZooKeeper needs kazoo: pip install 'ottla\[zookeeper\]'"


@pytest.fixture
def lacks(monkeypatch):
    return lambda package: monkeypatch.setitem(sys.modules, package, None)


def test_what_is_there_is_imported():
    require_extra("this", "arrow", "pyarrow")
    assert sys.modules["pyarrow"] is not None


def test_a_package_that_is_there_and_lacks_another_one(tmp_path, monkeypatch):
    (tmp_path / "halfway_installed.py").write_text("import no_such_package_of_its_own")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_of_its_own") as caught:
        require_extra("this", "arrow", "halfway_installed")
    assert not isinstance(caught.value, MissingExtraError)


def test_what_is_there_is_found_and_not_imported(tmp_path, monkeypatch, lacks):
    (tmp_path / "never_imported.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    require_installed("this", "arrow", "never_imported")
    with pytest.raises(MissingExtraError, match=r"^this needs no-such-package: pip install 'ottla\[arrow\]'$"):
        require_installed("this", "arrow", "never_imported", "no_such_package")
    lacks("pyarrow")
    with pytest.raises(MissingExtraError, match=ARROW):
        require_installed("this", "arrow", "pyarrow")


def test_arrow_with_an_event_loop(lacks):
    lacks("pyarrow")

    async def check():
        consumer = ottla.client.Consumer(bootstrap_servers="localhost:1")
        with pytest.raises(MissingExtraError, match=ARROW):
            await consumer.poll_arrow(0)
        with pytest.raises(MissingExtraError, match=ARROW):
            await anext(consumer.arrow_batches())
        await consumer.close()
        producer = ottla.client.Producer(bootstrap_servers="localhost:1")
        with pytest.raises(MissingExtraError, match="^send_arrow " + ARROW):
            await producer.send_arrow({}, "t")
        await producer.abort()

    asyncio.run(check())


def test_arrow_without_an_event_loop(lacks):
    lacks("pyarrow")
    with ottla.client.sync.Consumer(bootstrap_servers="localhost:1") as consumer:
        with pytest.raises(MissingExtraError, match=ARROW):
            consumer.poll_arrow(0)
        with pytest.raises(MissingExtraError, match=ARROW):
            next(consumer.arrow_batches())
    with (
        ottla.client.sync.Producer(bootstrap_servers="localhost:1") as producer,
        pytest.raises(MissingExtraError, match=ARROW),
    ):
        producer.send_arrow({}, "t")
    with (
        ottla.client.sync.Client("localhost:1") as client,
        pytest.raises(MissingExtraError, match=ARROW),
    ):
        next(client.read_range_arrow(ottla.client.TopicPartition("t", 0), 0, 1))


@pytest.mark.parametrize("entry", [session, lambda: register(None)], ids=["session", "register"])
def test_spark(lacks, entry):
    lacks("pyspark")
    with pytest.raises(MissingExtraError, match=SPARK):
        entry()


def test_arrow_without_a_client(lacks):
    lacks("pyarrow")
    with pytest.raises(MissingExtraError, match="^reading Arrow " + ARROW):
        ArrowRows("t", 0, 0, 1, rows_per_batch=1)


def test_packages_are_named_as_pip_knows_them():
    assert missing_extra("this", "metrics", "prometheus_client") == (
        "this needs prometheus-client: pip install 'ottla[metrics]'"
    )


def test_the_high_level_consumer(lacks, monkeypatch):
    lacks("kazoo")
    monkeypatch.delitem(sys.modules, "ottla.zk.kazoo_client", raising=False)
    with pytest.raises(MissingExtraError, match=f"^{ZOOKEEPER}$"):
        create_connector({"zookeeper.connect": "127.0.0.1:1", "group.id": "g"})


def test_a_broker_over_a_zookeeper(tmp_path):
    """In a process of its own: it is refused before anything is tried."""
    code = "import sys; sys.modules['kazoo'] = None; from ottla.cli.entry import main; main()"
    arguments = ["serve", "--port", "0", "--data", str(tmp_path), "--zookeeper", "127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search(f"zookeeper.connect: {ZOOKEEPER}$", done.stderr.rstrip()), done.stderr


@pytest.mark.parametrize("module", ["source", "sink", "source.data_source", "source.partitions"])
def test_modules_of_spark(module):
    """In a process of its own: the modules are imported once."""
    code = f"import sys; sys.modules['pyspark'] = None; import ottla.spark.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(SPARK.removeprefix("^"), done.stderr.rstrip()), done.stderr
