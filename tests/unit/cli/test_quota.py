"""`ottla quota`: quotas set, shown and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from support.command_line import ottla_at

pytestmark = [pytest.mark.spec("S4"), pytest.mark.spec("U2")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def test_set_shown_and_deleted(broker: Broker) -> None:
    assert ottla_at(broker, "quota", "list").output == "no quotas\n"
    done = ottla_at(broker, "quota", "set", "--user", "amy", "producer_byte_rate=1e6", "request_percentage=12.5")
    assert [line.split() for line in done.output.splitlines()] == [
        ["OF", "QUOTA", "VALUE"],
        ["user", "amy", "producer_byte_rate", "1000000"],
        ["user", "amy", "request_percentage", "12.5"],
    ]
    for whose in (["--user-defaults", "--client", "c"], ["--client-defaults"]):
        assert ottla_at(broker, "quota", "set", *whose, "consumer_byte_rate=5").exit_code == 0
    assert ottla_at(broker, "quota", "set", "--ip", "::1", "connection_creation_rate=5").exit_code == 0
    rows = [json.loads(line) for line in ottla_at(broker, "quota", "list", "--json").output.splitlines()]
    assert rows == [
        {"client": "<default>", "quotas": {"consumer_byte_rate": 5.0}},
        {"ip": "::1", "quotas": {"connection_creation_rate": 5.0}},
        {"user": "<default>", "client": "c", "quotas": {"consumer_byte_rate": 5.0}},
        {"user": "amy", "quotas": {"producer_byte_rate": 1000000.0, "request_percentage": 12.5}},
    ]
    assert ottla_at(broker, "quota", "list", "--client", "c").output.count("\n") == 2
    unsaid = ottla_at(broker, "quota", "delete", "--user", "amy", "request_percentage")
    assert (unsaid.exit_code, "yes" in unsaid.output) == (1, True)
    assert ottla_at(broker, "quota", "delete", "--user", "amy", "request_percentage", "--yes").exit_code == 0
    gone = ottla_at(broker, "quota", "delete", "--user", "amy", "--yes").output
    assert gone.endswith("deleted: producer_byte_rate of user amy\n")
    again = ottla_at(broker, "quota", "delete", "--user", "amy", "--yes")
    assert (again.exit_code, "user amy has no quotas" in again.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["producer_byte_rate=1"], "say whose quotas: --user"),
        (["--user", "a", "--user-defaults", "producer_byte_rate=1"], "name either one user"),
        (["--user", "", "producer_byte_rate=1"], "name either one user"),
        (["--user", "a", "--ip", "::1", "producer_byte_rate=1"], "an address has quotas of its own"),
        (["--user", "a", "producer_byte_rate"], "expected key=number"),
        (["--user", "a", "producer_byte_rate=nan"], "expected key=number"),
        (["--user", "a", "nonsense=1"], "the quotas of user a are not changed: Invalid configuration key nonsense"),
        (["--ip", "example.org", "connection_creation_rate=1"], "example.org is not a valid IP"),
    ],
)
def test_mistakes_are_one_sentence(broker: Broker, arguments: list[str], told: str) -> None:
    refused = ottla_at(broker, "quota", "set", *arguments)
    assert (refused.exit_code, told in refused.output) == (2, True)
    assert refused.output.count("\n") == 1
