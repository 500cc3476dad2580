"""Clients that send more than their quotas allow: how much each of them gets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from contestants import Started
from frames import CLIENT_ID, Caller, fetch_frame, produce_frame, record_batch
from loads import KIB, delete_topic, make_topic

from ottla.client.admin import ClientQuotaEntity
from ottla.client.sync import Admin
from ottla.wire.apis import ApiKey

#: Bytes a second of a producer, and of a consumer.
QUOTA = 1_000_000
KEYS = {ApiKey.PRODUCE: "producer_byte_rate", ApiKey.FETCH: "consumer_byte_rate"}
#: `quota.window.num` samples of `quota.window.size.seconds`, by their defaults.
WINDOW_S = 11.0
#: The number of the last window of a run. The first one does not count.
LAST_WINDOW = 4
#: Longest time from one burst to the next, with which a window begins.
BURST_PERIOD_S = WINDOW_S + 1
#: Brokers obey a new quota within this time.
OBEYED_S = 2.0


def off_by(brokers: Sequence[Started]) -> dict[tuple[str, ApiKey], float]:
    """How far a producer and a consumer of each broker are off their quotas, in percent; all run at the same time."""
    batch, _ = record_batch(KIB, 64 * KIB)
    loads: dict[tuple[str, ApiKey], tuple[Started, bytes]] = {}
    topics = []
    for broker in brokers:
        with Caller(broker.port) as caller:
            topic, topic_id = make_topic(caller, 1)
            produce = produce_frame(topic, {0: batch})
            caller.probe(ApiKey.PRODUCE, produce)
        topics.append(topic)
        loads[broker.name, ApiKey.PRODUCE] = broker, produce
        loads[broker.name, ApiKey.FETCH] = broker, fetch_frame(topic_id, 0, 0, len(batch))
        _set_quotas(broker, QUOTA)
    time.sleep(OBEYED_S)
    with ThreadPoolExecutor(len(loads)) as pool:
        rates = pool.map(lambda load: _rate(load[0], load[1], len(batch)), loads.values())
        off = {client: abs(rate / QUOTA - 1) * 100 for client, rate in zip(loads, rates, strict=True)}
    for broker, topic in zip(brokers, topics, strict=True):
        _set_quotas(broker, None)
        with Caller(broker.port) as caller:
            delete_topic(caller, broker, topic)
    return off


def _set_quotas(broker: Started, quota: float | None) -> None:
    with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        admin.alter_client_quotas({ClientQuotaEntity(client_id=CLIENT_ID): dict.fromkeys(KEYS.values(), quota)})


def _rate(broker: Started, frame: bytes, batch_bytes: int) -> float:
    """Bytes of records a second, one request after the other.

    Both brokers let a whole window's bytes come in a burst, and almost nothing until the next one. Whether 45 s have
    four bursts or five is chance. So the rate is taken from the moment when the client is furthest behind its quota,
    in the second window, to the same moment in the last one.
    """
    #: By answered request: when, and how many bytes until then.
    passed: list[tuple[float, int]] = []
    got = 0
    with Caller(broker.port) as caller:
        begun = time.monotonic()
        while (now_s := time.monotonic() - begun) < LAST_WINDOW * WINDOW_S + BURST_PERIOD_S:
            passed.append((now_s, got))
            # A fetch that has to wait gets no records.
            if max(len(frame), len(caller.exchange(frame))) > batch_bytes:
                got += batch_bytes

    def furthest_behind(window: int) -> tuple[float, int]:
        least_s, most_s = window * WINDOW_S, window * WINDOW_S + BURST_PERIOD_S
        return min((each for each in passed if least_s <= each[0] < most_s), key=lambda each: each[1] - QUOTA * each[0])

    (from_s, before), (until_s, after) = furthest_behind(1), furthest_behind(LAST_WINDOW)
    return (after - before) / (until_s - from_s)
