"""Which quota counts for a client, and what may be set. `interop/test_raw_quotas.py` compares with Apache Kafka."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.cluster.quotas import DEFAULT, QuotaEntity, candidates, changed, entity_of, is_found
from ottla.cluster.refusal import TopicRefusal

pytestmark = pytest.mark.spec("S4")


def test_kafkas_order_of_precedence_and_who_shares_a_quota() -> None:
    assert list(candidates("u", "c")) == [
        (QuotaEntity("u", "c"), ("u", "c")),
        (QuotaEntity("u", DEFAULT), ("u", "c")),
        (QuotaEntity("u"), ("u", "")),
        (QuotaEntity(DEFAULT, "c"), ("u", "c")),
        (QuotaEntity(DEFAULT, DEFAULT), ("u", "c")),
        (QuotaEntity(DEFAULT), ("u", "")),
        (QuotaEntity(client_id="c"), ("", "c")),
        (QuotaEntity(client_id=DEFAULT), ("", "c")),
    ]
    assert [entity for entity, _ in candidates("u", "")] == [QuotaEntity("u"), QuotaEntity(DEFAULT)]


def test_values_are_written_as_java_does() -> None:
    user = QuotaEntity("u")
    ops = [("producer_byte_rate", 1e9), ("request_percentage", 0.0005), ("controller_mutation_rate", None)]
    assert changed(user, {"SCRAM-SHA-256": "x", "controller_mutation_rate": "1.0"}, ops) == {
        "SCRAM-SHA-256": "x",
        "producer_byte_rate": "1000000000",
        "request_percentage": "5.0E-4",
    }
    for value in (1.5, float("nan"), float("inf"), 2.0**64):
        assert isinstance(changed(user, {}, [("consumer_byte_rate", value)]), TopicRefusal)


def test_addresses() -> None:
    assert entity_of([("ip", "::1")]) == QuotaEntity(ip="::1")
    assert isinstance(entity_of([("ip", "example.org")]), TopicRefusal)
    assert isinstance(changed(QuotaEntity(ip="::1"), {}, [("connection_creation_rate", -1)]), TopicRefusal)


def test_filters_find_less_the_more_they_say() -> None:
    everyone = [entity for entity, _ in candidates("u", "c")] + [QuotaEntity(ip=DEFAULT)]
    filters = [({}, False), ({"user": ""}, False), ({"user": "u"}, False), ({"user": "u"}, True)]
    found = [{each for each in everyone if is_found(each, wanted, strict=strict)} for wanted, strict in filters]
    assert [len(each) for each in found] == [9, 6, 3, 1]
    assert all(less < more for more, less in pairwise(found))
