"""Quotas of clients side by side with Apache Kafka in ZooKeeper mode: answers, and the throttle of a producer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from interop.both_brokers import BrokerPair, differences, scrubbed
from interop.test_raw_data import batch, producing
from interop.wire_json import Json

pytestmark = [pytest.mark.needs_kafka, pytest.mark.spec("S4")]

EXACT, DEFAULT, ANY = range(3)
Entity = dict[str, str | None]


def entry(entity: Entity, **quotas: float | None) -> Json:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else float(value), "remove": value is None}
            for key, value in quotas.items()
        ],
    }


CHANGES: dict[str, Json] = {
    "a user": entry({"user": "Åsa + Co"}, producer_byte_rate=1000, request_percentage=0.0005),
    "a client": entry({"client-id": "c/1*~"}, consumer_byte_rate=1e15, controller_mutation_rate=1e9),
    "both": entry({"user": "u", "client-id": None}, producer_byte_rate=7, request_percentage=1 / 3),
    "defaults": entry({"user": None, "client-id": None}, producer_byte_rate=8.0000000001),
    "an address": entry({"ip": "127.0.0.9"}, connection_creation_rate=10),
    "removed, and not there": entry({"user": "u"}, producer_byte_rate=None, nonsense=None),
    "no entity": entry({}, producer_byte_rate=1),
    "an unknown type": entry({"group": "g"}, producer_byte_rate=1),
    "an empty name": entry({"user": ""}, producer_byte_rate=1),
    "an address with a user": entry({"ip": "127.0.0.9", "user": "u"}, producer_byte_rate=1),
    "no address": entry({"ip": "no.address.invalid"}, connection_creation_rate=1),
    "an unknown key": entry({"user": "u"}, nonsense=1),
    "a key of addresses": entry({"user": "u"}, connection_creation_rate=1),
    "a key of users": entry({"ip": "127.0.0.9"}, producer_byte_rate=1),
    "no whole number": entry({"user": "u"}, producer_byte_rate=1.5),
    "too large": entry({"user": "v"}, producer_byte_rate=1e19),
    "negative": entry({"user": "v"}, producer_byte_rate=-1, request_percentage=-2),
    "a negative rate of connections": entry({"ip": "127.0.0.8"}, connection_creation_rate=-1),
}
FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], bool]] = {
    "all": ([], False),
    "none": ([], True),
    "users": ([("user", ANY, None)], False),
    "users alone": ([("user", ANY, None)], True),
    "a user": ([("user", EXACT, "Åsa + Co")], True),
    "clients of the default": ([("user", DEFAULT, None), ("client-id", ANY, None)], True),
    "both": ([("user", EXACT, "u"), ("client-id", DEFAULT, None)], False),
    "addresses": ([("ip", ANY, None)], False),
    "an address": ([("ip", EXACT, "127.0.0.9")], True),
    "twice": ([("client-id", ANY, None), ("client-id", ANY, None)], False),
    "users twice": ([("user", ANY, None), ("user", DEFAULT, None)], False),
    "addresses of users": ([("ip", ANY, None), ("user", ANY, None)], False),
    "no type": ([("", ANY, None)], False),
    "another type": ([("group", ANY, None)], False),
    "an unknown match": ([("user", 7, None)], False),
}


def in_order(answer: Json) -> Json:
    """Apache Kafka's answers are in the order of its hash tables."""
    entries = answer["entries"]
    for each in entries or ():
        each["entity"].sort(key=lambda part: part["entity_type"])
        each.get("values", []).sort(key=lambda value: value["key"])
    return {**answer, "entries": sorted(entries, key=str) if entries is not None else None}


@pytest.fixture
def quotas(pair: BrokerPair) -> Iterator[BrokerPair]:
    """Both brokers, which serve other tests afterwards."""
    yield pair
    of = [{**each, "ops": [{**op, "remove": True} for op in each["ops"]]} for each in CHANGES.values()]
    pair.ask_each("AlterClientQuotas", 1, entries=of, validate_only=False)


@pytest.mark.parametrize("version", [0, 1])
def test_answers_are_alike(quotas: BrokerPair, version: int) -> None:
    found = []
    for what, change in CHANGES.items():
        for validate_only in (True, False):
            answers = quotas.ask_each("AlterClientQuotas", version, entries=[change], validate_only=validate_only)
            found.append((what, answers))
    for what, (components, strict) in FILTERS.items():
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        found.append((what, quotas.ask_each("DescribeClientQuotas", version, components=asked, strict=strict)))
    unlike = {
        what: differing
        for what, answers in found
        if (differing := list(differences(scrubbed(in_order(answers.ours)), scrubbed(in_order(answers.theirs)))))
    }
    assert unlike == {}


def test_a_producer_is_throttled_alike(pair: BrokerPair, unique: str) -> None:
    """What is above the limit over 10 s waits for as long as the limit takes for it."""
    pair.create_topic(unique)
    of_all = {"user": "ANONYMOUS"}
    change = partial(pair.check_alike, "AlterClientQuotas", 1, validate_only=False)
    change(entries=[entry(of_all, producer_byte_rate=100_000)])
    try:
        sent = pair.ask_each("Produce", 9, **producing(unique, batch([bytes(1_040_000)])))
    finally:
        change(entries=[entry(of_all, producer_byte_rate=None)])
    for answer in (sent.ours, sent.theirs):
        assert 400 <= answer["throttle_time_ms"] <= 410
