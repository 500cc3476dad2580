"""Threads that send at once while the sender takes their batches away: each record is in one batch, once."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ottla.client.producer import delegate
from ottla.client.sync import Producer

THREADS = 4
RECORDS = 1500
PATIENCE_S = 60


@pytest.mark.spec("P3")
@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("linger_ms", [0, 2])
def test_each_record_goes_where_its_future_says(fake, monkeypatch, is_compiled, linger_ms):
    """Without a lock (compiled) and with it; some with a key, some with a callback, most for the sticky partition."""
    monkeypatch.setattr(delegate, "COMPILED", is_compiled and delegate.COMPILED)
    partitions = fake.topic("t", 0, 0, 0)
    sent, called_back = [], []

    def send(producer, thread):
        for number in range(RECORDS):
            value = b"%d-%d" % (thread, number)
            key = b"k%d" % number if number % 5 == 0 else None
            callback = (lambda metadata, error: called_back.append(error)) if number % 7 == 0 else None
            sent.append((producer.send("t", value, key, callback=callback), value))

    with Producer(bootstrap_servers=fake.bootstrap, linger_ms=linger_ms, batch_size=700) as producer:
        threads = [threading.Thread(target=send, args=(producer, number)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert producer.flush(PATIENCE_S * 1000) is None
        found = {(metadata.partition, metadata.offset): value for metadata, value in map(_outcome, sent)}
    logs = {(p.partition, at): record.value for p in partitions for at, record in enumerate(fake.logs[p].records())}
    assert len(sent) == THREADS * RECORDS
    assert found == logs
    assert Counter(called_back) == {None: THREADS * len(range(0, RECORDS, 7))}
    for thread in range(THREADS):
        for partition in partitions:
            values = [logs[place] for place in sorted(logs) if place[0] == partition.partition]
            numbers = [int(value.split(b"-")[1]) for value in values if value.startswith(b"%d-" % thread)]
            assert numbers == sorted(numbers), "what a thread sent to a partition keeps its order"


def _outcome(pair):
    future, value = pair
    return future.result(PATIENCE_S), value
