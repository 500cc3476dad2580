"""Every message in every version, judged by the classes that Apache Kafka generates from its definitions.

`messages.txt` holds bytes that those classes made of `Counted` messages, so that this is checked without Java, too.
When declarations have changed, record it again: `OTTLA_RECORD=1 ./run test tests/golden/wire`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from golden.wire.kafka_json import Counted, Random, filled, from_json, to_json
from ottla.wire import codec
from ottla.wire.schema import Message
from property.wire.messages import ALL, IDS
from support.java import java_tool

HERE = Path(__file__).parent
RECORDED = HERE / "messages.txt"
ROUNDS = 4


def asked_of_java(messages: list[tuple[Any, int]]) -> list[list[str]]:
    """What Java makes of each message: the bytes of its JSON, and the bytes and the JSON of its bytes."""
    lines = [
        f"{message.SCHEMA.name}\t{version}\t{codec.encode(message, version).hex()}\t"
        f"{json.dumps(to_json(message, version))}"
        for message, version in messages
    ]
    done = java_tool(str(HERE / "WireMessages.java"), stdin="\n".join(lines) + "\n")
    answers = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(messages)
    return answers


@cache
def recorded() -> dict[str, bytes]:
    lines = RECORDED.read_text().splitlines()
    return {name: bytes.fromhex(data) for name, _, data in (line.partition(" ") for line in lines)}


@pytest.mark.parametrize(("cls", "version"), ALL, ids=IDS)
def test_equal_to_the_recorded_bytes(cls: type[Message], version: int) -> None:
    data = recorded()[f"{cls.__name__}-v{version}"]
    message = filled(cls, version, Counted())
    assert codec.encode(message, version) == data
    assert codec.decode(cls, data, version) == message


@pytest.mark.needs_kafka
def test_recorded_bytes_are_those_of_java() -> None:
    messages = [(filled(cls, version, Counted()), version) for cls, version in ALL]
    lines = [f"{name} {answer[0]}\n" for name, answer in zip(IDS, asked_of_java(messages), strict=True)]
    if os.environ.get("OTTLA_RECORD"):
        RECORDED.write_text("".join(lines))
    assert RECORDED.read_text() == "".join(lines)


@pytest.mark.needs_kafka
@pytest.mark.slow
def test_java_reads_ours_and_writes_the_same() -> None:
    messages = [
        (filled(cls, version, Random(f"{cls.__name__} {version} {number}")), version)
        for number in range(ROUNDS)
        for cls, version in ALL
    ]
    for (message, version), answer in zip(messages, asked_of_java(messages), strict=True):
        assert answer[0] != "error", (message, version, answer[1])
        of_json, of_bytes, tree = answer
        assert of_json == of_bytes == codec.encode(message, version).hex(), (message, version)
        assert from_json(type(message), json.loads(tree), version) == message, version


@pytest.mark.needs_kafka
def test_java_keeps_unknown_tagged_fields_as_we_do() -> None:
    messages = []
    for cls, version in ALL:
        if version >= cls.SCHEMA.flexible_since:
            message = filled(cls, version, Counted())
            message.unknown_tagged_fields = {7: b"seven", 1000: b""}
            messages.append((message, version))
    for (message, version), answer in zip(messages, asked_of_java(messages), strict=True):
        assert answer[1] == codec.encode(message, version).hex()
