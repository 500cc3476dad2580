"""The producer and the reader continue over a broker that is killed and comes back."""

from __future__ import annotations

import threading

import pytest

from ottla.client.model import LATEST, TopicPartition
from ottla.client.sync import Client, Producer
from support.waiting import wait_until

COUNT = 40_000


@pytest.mark.spec("P5")
def test_killed_and_restarted_while_sending(ottla_server):
    partition = TopicPartition("t", 0)
    sent = [0]

    def send() -> None:
        with Producer(bootstrap_servers=ottla_server.bootstrap, batch_size=2000) as producer:
            for at in range(COUNT):
                producer.send("t", b"%d" % at, partition=0)
                sent[0] = at
                if at % 100 == 0:
                    producer.flush()

    with Client(ottla_server.bootstrap) as client:
        client.create_topic("t", 1)
        sender = threading.Thread(target=send)
        sender.start()
        for part in (1, 2, 3):
            wait_until(lambda part=part: sent[0] > COUNT * part // 4, f"part {part} to be sent")
            ottla_server.kill9()
            ottla_server.restart()
        sender.join(50)
        assert not sender.is_alive()
        assert client.offsets_at([partition], LATEST) == {partition: COUNT}
        values = [record.value for records in client.read_range(partition, 0, COUNT) for record in records]
    assert values == [b"%d" % at for at in range(COUNT)]


@pytest.mark.spec("D1")
def test_killed_and_restarted_while_reading(ottla_server):
    partition = TopicPartition("t", 0)
    with Client(ottla_server.bootstrap) as client:
        client.create_topic("t", 1)
        with Producer(bootstrap_servers=ottla_server.bootstrap, batch_size=2000) as producer:
            for at in range(COUNT):
                producer.send("t", b"%d" % at, partition=0)
        offsets = []
        for records in client.read_range(partition, 0, COUNT, fetch_max_bytes=5000):
            if offsets and offsets[-1] < COUNT // 2 <= records[-1].offset:
                ottla_server.kill9()
                ottla_server.restart()
            offsets += [record.offset for record in records]
    assert offsets == list(range(COUNT))
