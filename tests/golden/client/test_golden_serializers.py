"""Serializers write the bytes of Apache Kafka 3.9.1's, and deserializers read them.

`kafka_3_9_serialized.json` is what `Serialized.java` prints; where Java is there it is made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.client.serialization import (
    ListDeserializer,
    ListSerializer,
    make_deserializer,
    make_serializer,
)
from support.java import java_tool

FOLDER = Path(__file__).parent
#: Serializer, encoding (of lists: the elements' serializer), value as text, bytes in hex.
CASES: list[tuple[str, str, str, str | None]] = json.loads((FOLDER / "kafka_3_9_serialized.json").read_text())
JAVA = "org.apache.kafka.common.serialization."
VALUES: dict[str, Callable[[str], Any]] = {
    "StringSerializer": str,
    "ShortSerializer": int,
    "IntegerSerializer": int,
    "LongSerializer": int,
    "FloatSerializer": float,
    "DoubleSerializer": float,
    "BooleanSerializer": lambda text: text == "true",
    "UUIDSerializer": UUID,
    "ByteArraySerializer": str.encode,
    "BytesSerializer": str.encode,
    "ByteBufferSerializer": lambda text: memoryview(text.encode()),
    "VoidSerializer": str,
}


def made(name: str, encoding: str) -> tuple[Any, Any]:
    """The serializer and deserializer of that name of Java's."""
    reading = name.replace("Serializer", "Deserializer")
    settings = {"serializer.encoding": encoding or None, "deserializer.encoding": encoding or None}
    return (
        make_serializer(JAVA + name, settings, is_key=False),
        make_deserializer(JAVA + reading, settings, is_key=False),
    )


@pytest.mark.spec("P2")
@pytest.mark.parametrize(("name", "encoding", "text", "data"), [case for case in CASES if case[0] != "ListSerializer"])
def test_bytes_are_javas(name: str, encoding: str, text: str, data: str | None) -> None:
    writing, reading = made(name, encoding)
    value = None if data is None else VALUES[name](text)
    encoded = None if data is None else bytes.fromhex(data)
    assert writing.serialize("t", (), value) == encoded
    again = reading.deserialize("t", (), encoded)
    if name == "FloatSerializer" and value is not None:
        assert again == pytest.approx(value, rel=1e-6)
    elif text == "nan":
        assert again != again
    else:
        assert again == value


@pytest.mark.parametrize(("inner", "text", "data"), [case[1:] for case in CASES if case[0] == "ListSerializer"])
def test_lists_are_javas(inner: str, text: str, data: str) -> None:
    writing, reading = made(inner, "")
    values = [None if part == "null" else VALUES[inner](part) for part in text.split(",")] if text else []
    assert ListSerializer(writing).serialize("t", (), values) == bytes.fromhex(data)
    assert ListDeserializer(reading).deserialize("t", (), bytes.fromhex(data)) == values


@pytest.mark.needs_kafka
def test_the_bytes_are_those_of_kafkas_jars() -> None:
    assert json.loads(java_tool(str(FOLDER / "Serialized.java")).stdout) == CASES
