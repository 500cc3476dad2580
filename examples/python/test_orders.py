"""Brokers of the tests' own, with the topics that the marker declares."""

import pytest

import orders


@pytest.mark.ottla(topics={"orders": 3})
def test_orders_are_billed_once(ottla_fresh_broker):
    broker = ottla_fresh_broker
    orders.send(broker.bootstrap_servers, {"anna": "4 apples", "dora": "2 pears"})
    assert sorted(orders.bill(broker.bootstrap_servers, "billing", 2)) == ["2 pears", "4 apples"]

    orders.send(broker.bootstrap_servers, {"anna": "1 plum"})
    assert orders.bill(broker.bootstrap_servers, "billing", 1) == ["1 plum"]
    assert sum(broker.group("billing").lag.values()) == 0


@pytest.mark.ottla(topics={"orders": 1})
def test_an_order_survives_a_change_of_leaders(ottla_fresh_broker):
    broker = ottla_fresh_broker
    rule = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    orders.send(broker.bootstrap_servers, {"anna": "4 apples"})
    assert rule.fired == 2
    assert [record.value for record in broker.records("orders")] == [b"4 apples"]
