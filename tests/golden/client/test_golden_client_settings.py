"""Settings of clients are those of Apache Kafka 3.9.1's own classes.

`kafka_3_9_client_settings.json` is what `ClientSettings.java settings` prints; where Java is there it is made anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.client.configs.settings import OTHER_DEFAULTS, SETTINGS_OF
from support.java import java_tool

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "ClientSettings.java"
SETTINGS: dict[str, dict[str, dict[str, Any]]] = json.loads((FOLDER / "kafka_3_9_client_settings.json").read_text())
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
    assert set(ours) == set(theirs)
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


@pytest.mark.needs_kafka
def test_the_settings_are_those_of_kafkas_jars() -> None:
    assert json.loads(java_tool(str(PROGRAM), "settings").stdout) == SETTINGS
