"""The proxy does what it is asked to, shown with a client that is known to bear it."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import Producer

from interop.clients.topics import create_topic, values_of
from support.ports import LOOPBACK
from support.proxied import ProxiedBroker
from support.proxy import CUTS, Fault, Passing, ScriptedPlan, SeededPlan, Verdict
from support.waiting import wait_until

PRODUCE = 0
COUNT = 60
TIMEOUT_S = 60.0


def send_all(bootstrap: str, topic: str) -> list[bytes]:
    """Values sent in requests of few records, several in flight, once all of them are acknowledged."""
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 5, "linger.ms": 0}
    producer = Producer(settings | {"socket.timeout.ms": 1000, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20})
    values = [str(number).encode() for number in range(COUNT)]
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return values


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(Fault))
def test_an_idempotent_producer_bears_each_fault(proxied_ottla: ProxiedBroker, unique: str, fault: Fault) -> None:
    topic = create_topic(proxied_ottla.direct, unique)
    proxy = proxied_ottla.proxy
    proxy.heal()
    proxy.begin(ScriptedPlan({PRODUCE: [None, None, Verdict(fault, 0.2)]}))

    values = send_all(proxied_ottla.bootstrap, topic)

    assert values_of(proxied_ottla.direct, topic, 0) == values
    assert proxy.faults == {fault: 1}
    if fault in CUTS or fault is Fault.SWALLOW:
        assert proxy.connections >= 3, "a new connection after the one that was cut, beside the one for metadata"


def test_a_plan_does_the_same_to_a_connection_whatever_the_others_do() -> None:
    passings = [Passing(connection, number, PRODUCE, 0) for connection in range(5) for number in range(40)]
    verdicts = dict(zip(passings, map(SeededPlan(7, 0.1, most=1000), passings), strict=True))
    other_way = SeededPlan(7, 0.1, most=1000)
    assert {passing: other_way(passing) for passing in reversed(passings)} == verdicts
    assert 5 <= sum(verdict is not None for verdict in verdicts.values()) <= 40
    assert verdicts != dict(zip(passings, map(SeededPlan(8, 0.1, most=1000), passings), strict=True))


def test_refused_connections_come_again(proxied_ottla: ProxiedBroker) -> None:
    proxy = proxied_ottla.proxy
    proxy.heal()

    def is_refused() -> bool:
        try:
            socket.create_connection((LOOPBACK, proxy.port), 60.0).close()
        except (ConnectionRefusedError, ConnectionResetError):
            # Reset is the connection that was about to be accepted.
            return True
        return False

    proxy.refuse(600)
    wait_until(is_refused, "a refusal")
    proxy.heal()
    wait_until(lambda: not is_refused(), "the end of the refusals")
    proxy.refuse(0.1)
    wait_until(lambda: not is_refused(), "the end of the refusals by their time")
