"""Serializers: how they are named, made and configured, and what is told when that fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.errors import InvalidConfigError, SerializationError
from ottla.client.serialization import (
    BooleanDeserializer,
    BytesSerializer,
    Deserializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    ListDeserializer,
    ListSerializer,
    LongSerializer,
    Serializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
    UUIDSerializer,
    VoidDeserializer,
    deserialize_function,
    make_deserializer,
    make_serializer,
)

HERE = __name__


class Recording:
    """A serializer of the user's own."""

    def __init__(self) -> None:
        self.configured: tuple[Mapping[str, Any], bool] | None = None

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        self.configured = (config, is_key)

    def serialize(self, topic: str, headers: object, data: Any) -> bytes:
        return f"{topic}:{data}".encode()


class Demanding(Recording):
    def __init__(self, argument: int) -> None:
        super().__init__()


class Unwilling(Recording):
    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        raise KeyError("my.url")


def double(value: Any) -> bytes:
    return bytes(value) * 2


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[HERE])


def serializer(setting: object, config: Mapping[str, Any] | None = None, *, is_key: bool = True) -> Any:
    return make_serializer(setting, config or {}, is_key=is_key)


@pytest.mark.spec("P2")
@pytest.mark.parametrize(
    ("config", "is_key", "expected"),
    [
        ({}, True, "ü".encode()),
        ({"serializer.encoding": "latin-1"}, True, b"\xfc"),
        ({"serializer.encoding": "latin-1"}, False, b"\xfc"),
        ({"key.serializer.encoding": "latin-1"}, True, b"\xfc"),
        ({"key.serializer.encoding": "latin-1"}, False, "ü".encode()),
        ({"value.serializer.encoding": "latin-1"}, False, b"\xfc"),
        ({"value.serializer.encoding": "latin-1"}, True, "ü".encode()),
        ({"serializer.encoding": "latin-1", "key.serializer.encoding": "cp437"}, True, b"\x81"),
        ({"serializer.encoding": "latin-1", "key.serializer.encoding": "cp437"}, False, b"\xfc"),
    ],
)
def test_text_takes_its_encoding_from_the_settings(config: dict[str, str], is_key: bool, expected: bytes) -> None:
    assert serializer("StringSerializer", config, is_key=is_key).serialize("t", (), "ü") == expected
    reading = make_deserializer(
        StringDeserializer, {name.replace("ser", "deser"): value for name, value in config.items()}, is_key=is_key
    )
    assert reading.deserialize("t", (), expected) == "ü"


@pytest.mark.spec("P2")
@pytest.mark.parametrize("encoding", ["utf-9", "base64", "", "a\0b", 7])
def test_an_unknown_encoding_is_named(encoding: object) -> None:
    with pytest.raises(SerializationError, match=r"value\.serializer\.encoding=") as caught:
        serializer(StringSerializer, {"value.serializer.encoding": encoding}, is_key=False)
    assert repr(encoding) in str(caught.value)
    with pytest.raises(SerializationError):
        StringSerializer(encoding)  # type: ignore[arg-type]


@pytest.mark.spec("P2")
@pytest.mark.parametrize("made", [StringSerializer(), BytesSerializer(), IntegerSerializer(), UUIDSerializer()])
def test_none_stays_none(made: Serializer[Any]) -> None:
    assert made.serialize("t", (), None) is None


def test_characters_that_an_encoding_lacks() -> None:
    with pytest.raises(SerializationError, match=r"'日' at position 1 .* cannot be written in ascii"):
        StringSerializer("ascii").serialize("t", (), "a日")
    assert StringDeserializer("ascii").deserialize("t", (), b"a\xff") == "a\ufffd"
    assert StringDeserializer("UTF-16").deserialize("t", (), b"\xff\xfea\0") == "a"


@pytest.mark.spec("P2")
@pytest.mark.parametrize("setting", ["mine.Recording", Recording])
def test_named_serializers_are_imported_made_and_configured(setting: object) -> None:
    config = {"bootstrap.servers": "a:1", "x": 1}
    made = serializer(setting, config, is_key=False)
    assert isinstance(made, Serializer)
    assert made.configured == (config, False)  # type: ignore[attr-defined]
    assert made.serialize("t", (), 5) == b"t:5"


@pytest.mark.spec("P2")
def test_objects_are_taken_as_they_are() -> None:
    setting = Recording()
    assert serializer(setting) is setting
    assert setting.configured is None


@pytest.mark.parametrize("setting", [double, "mine.double", "json.dumps", int.to_bytes])
def test_functions_are_serializers(setting: object) -> None:
    made = serializer(setting)
    assert made.serialize("t", (), None) is None
    if setting in (double, "mine.double"):
        assert made.serialize("t", (), b"a") == b"aa"
    elif setting == "json.dumps":
        with pytest.raises(SerializationError, match="dumps gave str and not bytes"):
            made.serialize("t", (), {})


def test_functions_and_types_are_deserializers() -> None:
    assert make_deserializer(json.loads, {}, is_key=True).deserialize("t", (), b'{"a": 1}') == {"a": 1}
    reading = make_deserializer(int, {}, is_key=True)
    assert isinstance(reading, Deserializer)
    assert reading.deserialize("t", (), b"12") == 12
    assert reading.deserialize("t", (), None) is None


def test_without_one_bytes_stay_as_they_are() -> None:
    made = serializer(None)
    assert made.serialize("t", (), bytearray(b"a")) == b"a"
    with pytest.raises(SerializationError, match=r"not str: 'a'; encode them, or set key.serializer"):
        made.serialize("t", (), "a")
    assert deserialize_function(make_deserializer(None, {}, is_key=True)) is None
    assert deserialize_function(IntegerDeserializer()) is not None


@pytest.mark.spec("P2")
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("mine.Missing", "key.serializer=mine.Missing: mine.Missing cannot be imported (mine has no Missing)"),
        ("not_there.Class", "No module named 'not_there'"),
        ("StringSerialiser", "did you mean StringSerializer?"),
        ("org.apache.kafka.common.serialization.StringSerialiser", "did you mean StringSerializer?"),
        ("io.confluent.kafka.serializers.KafkaAvroSerializer", "is a Java class without a counterpart here"),
        ("mine.Demanding", "Demanding cannot be made without arguments (TypeError"),
        ("mine.Unwilling", "configure of Unwilling failed (KeyError: 'my.url')"),
        ("mine.HERE", "has no serialize(topic, headers, data) and is not a function"),
        (5, "5 has no serialize"),
        (str, "Give StringSerializer"),
    ],
)
def test_names_that_fail_are_reported(setting: object, told: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        serializer(setting)
    assert told in str(caught.value)
    assert "key.serializer" in str(caught.value)


@pytest.mark.parametrize(
    ("made", "data", "told"),
    [
        (IntegerSerializer(), 2**31, "2147483648 is out of range"),
        (IntegerSerializer(), True, "not bool"),
        (IntegerSerializer(), 1.0, "not float"),
        (LongSerializer(), "1", "whole numbers from -9223372036854775808"),
        (FloatSerializer(), 1e300, "out of range"),
        (StringSerializer(), b"x", "StringSerializer takes text, not bytes"),
        (UUIDSerializer(), "x", "UUIDSerializer takes uuid.UUID, not str"),
    ],
)
def test_data_of_another_type(made: Any, data: object, told: str) -> None:
    with pytest.raises(SerializationError) as caught:
        made.serialize("t", (), data)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("made", "data"),
    [
        (IntegerDeserializer(), b"abc"),
        (BooleanDeserializer(), b"\x02"),
        (BooleanDeserializer(), b""),
        (VoidDeserializer(), b""),
        (UUIDDeserializer(), b"123"),
        (ListDeserializer(StringDeserializer()), b""),
        (ListDeserializer(StringDeserializer()), b"\x01\x7f\xff\xff\xff"),
        (ListDeserializer(StringDeserializer()), b"\x01\0\0\0\x01\xff\xff\xff\xf0"),
        (ListDeserializer(StringDeserializer()), b"\0\0\0\0\0\0\0\0\0"),
        (ListDeserializer(IntegerDeserializer()), b"\0\x7f\xff\xff\xff"),
        (ListDeserializer(IntegerDeserializer()), b"\0\xff\xff\xff\xff"),
    ],
)
def test_bytes_that_are_something_else(made: Any, data: bytes) -> None:
    with pytest.raises(SerializationError):
        made.deserialize("t", (), data)


@pytest.mark.parametrize("data", ["abc", b"abc", 5])
def test_what_is_no_list(data):
    with pytest.raises(SerializationError, match="ListSerializer takes lists, not"):
        ListSerializer(StringSerializer()).serialize("t", (), data)


def test_a_number_that_is_far_too_long_is_not_reported_whole():
    with pytest.raises(SerializationError, match=r"takes numbers; 1000000\d*\.\.\. is out of range"):
        DoubleSerializer().serialize("t", (), 10**400)
