"""The first topic, record and fetch of a broker that has just started."""

from __future__ import annotations

import time

from frames import CALL_TIMEOUT_S, Caller, CallFailed, fetch_frame, produce_frame, record_batch

from ottla.wire.apis import ApiKey

FETCH_BYTES = 1024 * 1024
RECORD_BYTES = 100


def first_round_trip(port: int, topic: str = "first") -> float:
    """Seconds to connect, create a topic, produce a record to it and fetch it."""
    batch, _ = record_batch(RECORD_BYTES, 1)
    produce = produce_frame(topic, {0: batch})
    began_s = time.perf_counter()
    with Caller(port) as caller:
        topic_id = caller.create_topic(topic, 1, {})
        _until_it_leads(caller, ApiKey.PRODUCE, produce)
        if caller.probe(ApiKey.FETCH, fetch_frame(topic_id, 0, 0, FETCH_BYTES)) < len(batch):
            raise CallFailed("the record was not fetched")
        return time.perf_counter() - began_s


def _until_it_leads(caller: Caller, key: ApiKey, frame: bytes) -> None:
    """Ask again while the new partition has no leader yet."""
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        try:
            caller.probe(key, frame)
        except CallFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)
        else:
            return
