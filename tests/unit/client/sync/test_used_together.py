"""Blocking clients that several threads use and close, and callbacks that call the client they belong to."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

import ottla.client.sync
from ottla.client.errors import ClientClosedError, IllegalStateError
from ottla.client.sync import Client
from ottla.wire.apis import ApiKey
from support.waiting import wait_until

PATIENCE_S = 60.0


def test_a_call_that_waits_is_ended_by_close(fake, faults):
    admin = ottla.client.sync.Admin(bootstrap_servers=fake.bootstrap)
    admin.list_topics()
    fake.faults[ApiKey.METADATA].append(faults["SILENT"])
    errors = []

    def ask():
        with pytest.raises(ClientClosedError) as caught:
            admin.list_topics()
        errors.append(caught.value)

    before = len(fake.requests_of(ApiKey.METADATA))
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(lambda: len(fake.requests_of(ApiKey.METADATA)) > before, "the question")
    admin.close()
    asking.join(PATIENCE_S)
    assert errors


def test_a_producer_is_closed_by_several_threads(fake):
    fake.topic("t", 0)
    producer = ottla.client.sync.Producer(bootstrap_servers=fake.bootstrap)
    future = producer.send("t", b"v")
    threads = [threading.Thread(target=producer.close, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert future.result(0).offset == 0


@pytest.mark.parametrize("call", ["flush", "close", "partitions_for", "abort"])
def test_a_callback_that_would_wait_for_itself(fake, call):
    fake.topic("t", 0)
    errors = []
    called = threading.Event()

    with ottla.client.sync.Producer(bootstrap_servers=fake.bootstrap) as producer:

        def callback(metadata, error):
            try:
                getattr(producer, call)(*(["t"] if call == "partitions_for" else []))
            except IllegalStateError as refused:
                errors.append(str(refused))
            called.set()

        producer.send("t", b"v", callback=callback)
        assert called.wait(PATIENCE_S)
        assert producer.send("t", b"w").result(PATIENCE_S).offset == 1
    assert "would wait for the thread that it was made in" in errors[0]


def test_a_reader_that_is_dropped_after_close(fake, monkeypatch):
    [partition] = fake.topic("t", 0)
    fake.fill(partition, 100)
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    client = Client(fake.bootstrap)
    reader = client.read_range(partition, 0, 100)
    assert next(reader)
    client.close()
    del reader
    gc.collect()
    assert not unraisable
