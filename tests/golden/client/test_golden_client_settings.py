"""Settings of clients are those of Apache Kafka 3.9.1's own classes.

`kafka_3_9_client_settings.json` is what `ClientSettings.java settings` prints, `kafka_3_9_client_messages.json` holds
cases with what `ClientSettings.java messages` makes of them; where Java is there, both are made again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.client.configs import parse_admin_config, parse_consumer_config, parse_producer_config
from ottla.client.configs.settings import OTHER_DEFAULTS, OWN_SETTINGS, SETTINGS_OF
from ottla.client.errors import InvalidConfigError
from support.java import java_tool

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "ClientSettings.java"
SETTINGS: dict[str, dict[str, dict[str, Any]]] = json.loads((FOLDER / "kafka_3_9_client_settings.json").read_text())
#: Kind of client, names and values in turn, and what Kafka said ("OK" where it took them).
MESSAGES: list[list[str]] = json.loads((FOLDER / "kafka_3_9_client_messages.json").read_text())
PARSERS: dict[str, Any] = {
    "producer": parse_producer_config,
    "consumer": parse_consumer_config,
    "admin": parse_admin_config,
}
#: What does not work there either, but is found out later; and what is not there yet here.
REFUSED_HERE = {
    "admin default.api.timeout.ms 0",
    "admin default.api.timeout.ms 1",
    "producer delivery.timeout.ms 0",
    "consumer fetch.max.wait.ms 60000",
    "consumer fetch.min.bytes 10 fetch.max.bytes 5",
    "consumer group.id ",
    "consumer group.protocol CONSUMER",
    "consumer heartbeat.interval.ms -2",
    "consumer heartbeat.interval.ms 0",
    "producer reconnect.backoff.ms 5000 reconnect.backoff.max.ms 1000",
    "producer retry.backoff.ms 5000 retry.backoff.max.ms 1000",
    "consumer session.timeout.ms -2",
}
IN_OTHER_WORDS = re.compile(r"case insensitive|Must set|Cannot set|cannot be set|Group instance id")
#: Valid values that our declarations word in another way: Java lists these unordered, in capitals.
SAME_VALUES = {
    "(case insensitive) [REBOOTSTRAP, NONE]": "[none, rebootstrap]",
    "(case insensitive) [CONSUMER, CLASSIC]": "[classic, consumer]",
    "(case insensitive) [SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT]": "[PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL]",
    "[1,...,9] or -1": "1 to 9 or -1",
    "non-null string": "",
}


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_names_types_and_defaults_are_kafkas(kind: str) -> None:
    ours, theirs = SETTINGS_OF[kind], SETTINGS[kind]
    assert set(ours) - OWN_SETTINGS == set(theirs)
    for name, setting in theirs.items():
        default = setting["default"]
        if name == "partition.assignment.strategy":
            default = default.replace("class ", "")
        assert ours[name].type == setting["type"], name
        assert ours[name].default == OTHER_DEFAULTS.get(name, default), name


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_valid_values_are_kafkas(kind: str) -> None:
    for name, setting in SETTINGS[kind].items():
        if not name.startswith(("sasl.", "ssl.")):  # refused whatever they are
            valid = SAME_VALUES.get(setting["valid"], setting["valid"])
            assert SETTINGS_OF[kind][name].valid == valid, name


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: " ".join(case[:-1]))
def test_values_are_judged_as_kafka_judges_them(case: list[str]) -> None:
    """What Java takes is taken, but for what we have reasons to refuse; what it refuses is, in its words and more."""
    kind, *pairs, said = case
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    try:
        PARSERS[kind]({"bootstrap.servers": "a:1", **given}, {})
        told = "OK"
    except InvalidConfigError as error:
        told = "; ".join(error.problems)
    if " ".join(case[:-1]) in REFUSED_HERE:
        assert (said, told != "OK") == ("OK", True)
    elif said == "OK" or not IN_OTHER_WORDS.search(said):
        assert told.startswith(said)
    else:
        assert told != "OK"


@pytest.mark.needs_kafka
def test_the_judgements_are_those_of_kafkas_jars() -> None:
    cases = json.dumps([[case[0], "bootstrap.servers", "a:1", *case[1:-1]] for case in MESSAGES])
    assert json.loads(java_tool(str(PROGRAM), "messages", stdin=cases).stdout) == [case[-1] for case in MESSAGES]


@pytest.mark.needs_kafka
def test_the_settings_are_those_of_kafkas_jars() -> None:
    assert json.loads(java_tool(str(PROGRAM), "settings").stdout) == SETTINGS
