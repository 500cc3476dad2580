"""The simple consumer against ottla and Apache Kafka, with an event loop and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client.errors import OffsetOutOfRange
from ottla.client.model import EARLIEST, LATEST
from ottla.client.sync import Producer

pytestmark = [pytest.mark.slow, pytest.mark.spec("C9")]

T0 = 1_700_000_000_000
COUNT = 500
EXAMPLE = Path(__file__).parents[3] / "examples" / "simple_consumer.py"


@pytest.fixture
def topic(broker, unique):
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=1000) as producer:
        for at in range(COUNT):
            producer.send(unique, b"%d" % at, partition=0, timestamp=T0 + at, headers=[("n", b"%d" % (at % 3))])
    return unique


def test_a_partition_is_read_from_its_first_offset_to_its_last(broker, facade, topic):
    with facade.simple_consumer({"bootstrap.servers": f"127.0.0.1:1,{broker.bootstrap}"}) as consumer:
        found = consumer.find_leader(topic, 0)
        assert f"{found.leader.host}:{found.leader.port}" == broker.bootstrap
        assert found.leader in found.replicas
        assert found.leader in found.in_sync
        offset = consumer.earliest_or_latest_offset(topic, 0, EARLIEST)
        end = consumer.earliest_or_latest_offset(topic, 0, LATEST)
        assert (offset, end) == (0, COUNT)
        assert consumer.earliest_or_latest_offset(topic, 0, T0 + 123) == 123
        assert consumer.earliest_or_latest_offset(topic, 0, T0 + COUNT) == -1
        read = []
        while offset < end:
            fetched = consumer.fetch(topic, 0, offset, max_bytes=3000)
            assert fetched.high_watermark == COUNT
            read += fetched.records
            offset = fetched.next_offset
        assert [(each.offset, each.value, each.timestamp) for each in read] == [
            (at, b"%d" % at, T0 + at) for at in range(COUNT)
        ]
        assert read[4].headers == (("n", b"1"),)
        again = consumer.fetch(topic, 0, 200, max_bytes=1)
        assert again.records[0].offset == 200
        with pytest.raises(OffsetOutOfRange, match=f"it has offsets 0 to {COUNT}"):
            consumer.fetch(topic, 0, COUNT + 1)


def test_the_example(broker, topic):
    output = subprocess.run(
        [sys.executable, EXAMPLE, broker.bootstrap, topic, "0"], capture_output=True, text=True, timeout=30, check=True
    ).stdout.splitlines()
    assert output[0].startswith(f"{topic}-0 is led by broker ")
    assert output[1:] == [f"{at} None {b'%d' % at!r}" for at in range(COUNT)]
    refused = subprocess.run(
        [sys.executable, EXAMPLE, "127.0.0.1:1", topic, "0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("cannot connect to 127.0.0.1:1")
