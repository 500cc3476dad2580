"""Protobuf in `ottla consume`, `produce` and `search`, with a broker and a played registry in this process."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from ottla.client.sync import Producer
from ottla.testing import Broker
from support.command_line import ottla_at, shown_at
from support.played_registry import PlayedRegistry

pytestmark = pytest.mark.spec("U2")


def made_files() -> descriptor_pb2.FileDescriptorSet:
    """place.proto with Place; order.proto with Order, which has a map, a place and a time, and Note with Line in it."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    place = files.file.add(name="place.proto", package="shop", syntax="proto3")
    place.message_type.add(name="Place").field.add(name="city", number=1, type=Field.TYPE_STRING, label=1)
    order = files.file.add(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["google/protobuf/timestamp.proto", "place.proto"])
    first = order.message_type.add(name="Order")
    first.field.add(name="place", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Place", label=1)
    first.field.add(name="pear_count", number=2, type=Field.TYPE_INT64, label=1)
    first.field.add(name="ok", number=3, type=Field.TYPE_BOOL, label=1)
    first.field.add(name="at", number=4, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    first.field.add(name="tags", number=5, type=Field.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=3)
    entry = first.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=1)
    line = first.nested_type.add(name="Line")
    line.field.add(name="text", number=1, type=Field.TYPE_STRING, label=1)
    order.message_type.add(name="Note").field.add(name="text", number=1, type=Field.TYPE_STRING, label=1)
    return files


FILES = made_files()
OSLO = b"\x0a\x06\x0a\x04Oslo\x10\x02\x22\x02\x08\x01\x2a\x05\x0a\x01a\x10\x07"
SHOWN = '{"place":{"city":"Oslo"},"pear_count":"2","at":"1970-01-01T00:00:01Z","tags":{"a":7},"ok":false}'
HEAD = b"\x00\x00\x00\x00\x14"
PROTOBUF = ("--value-format", "protobuf")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    topics = {"orders": 1, "plain": 1, "mixed": 1, "written": 1, "again": 1}
    with Broker(topics) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", HEAD + b"\x00" + OSLO, HEAD + b"\x02\x02\x0a\x01k")
        producer.send("plain", OSLO)
        producer.send("mixed", HEAD + b"\x04\x00\x02\x0a\x01x")  # Line, its place with the map's entry, and without it
        producer.send("mixed", HEAD + b"\x04\x00\x00\x0a\x01x")
        for body in (b"\x00\x0a\xff", b"", b"\x02", b"\x04\x00\x0a\x0a\x01x"):
            producer.send("mixed", HEAD + body)
        producer.send("mixed", b"\x00\x00\x00\x00\x07x")
        producer.flush()
        yield broker


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedRegistry]:
    def serialized(at: int, name: str) -> str:
        file = descriptor_pb2.FileDescriptorProto()
        file.CopyFrom(FILES.file[at])
        file.name = name
        return base64.b64encode(file.SerializeToString()).decode()

    with PlayedRegistry({7: '"string"'}) as played:
        played.protobuf[20] = serialized(2, "default")
        played.references[20] = [{"name": "place.proto", "subject": "place", "version": 1}]
        played.subjects["/subjects/place/versions/1"] = {"schemaType": "PROTOBUF", "schema": serialized(1, "default")}
        monkeypatch.setenv("OTTLA_SCHEMA_REGISTRY", played.address)
        yield played


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    (path := tmp_path / "shop.desc").write_bytes(FILES.SerializeToString())
    return str(path)


def read(topic: str, *arguments: str) -> tuple[str, ...]:
    return ("consume", topic, "--from", "beginning", "--exit", *arguments)


def test_messages_are_json(broker: Broker, registry: PlayedRegistry) -> None:
    shown = shown_at(broker, *read("orders", *PROTOBUF, "--key-format", "protobuf", "-K", " "))
    key, value = shown.decode().split(" ", 1)
    assert json.loads(key) == {"text": "k"}
    assert json.loads(value) == json.loads(SHOWN)
    assert "/schemas/ids/20?format=serialized" in registry.paths
    found = ottla_at(broker, "search", "orders", '"city":"Oslo"', *PROTOBUF, "-f", "%o")
    assert (found.exit_code, found.stdout) == (0, "0")
    assert shown_at(broker, *read("orders", *PROTOBUF, "--filter", "value.tags.a == `7`", "-f", "%o")) == b"0"


def test_a_descriptor_set_has_the_schema_of_messages_without_framing(broker: Broker, descriptors: str) -> None:
    file = ("--value-schema", descriptors, "--message", "shop.Order")
    assert json.loads(shown_at(broker, *read("plain", *PROTOBUF, *file))) == json.loads(SHOWN)
    done = ottla_at(broker, *read("orders", *PROTOBUF, *file))
    assert "it begins with a byte 0: if a schema registry has its schema, name the registry" in done.stderr


def test_messages_in_messages_and_what_cannot_be_decoded(broker: Broker) -> None:
    done = ottla_at(broker, *read("mixed", *PROTOBUF, "-f", "%s\\n"))
    assert done.stdout_bytes.split(b"\n")[:2] == [b'{"text":"x"}'] * 2
    reasons = [line.partition("shown as it is: ")[2] for line in done.stderr.splitlines()]
    assert reasons[0].startswith("not a shop.Order: ")
    assert reasons[1:] == [
        "no message indexes behind the schema id",
        "no message indexes behind the schema id",
        "its schema has no message at [0, 5]",
        "schema 7 is AVRO, not PROTOBUF",
    ]


def test_json_is_written_as_messages(broker: Broker, registry: PlayedRegistry, descriptors: str) -> None:
    registry.versions["written-value"] = [20]
    shown_at(broker, "produce", "written", *PROTOBUF, stdin=f"{SHOWN}\n")
    shown_at(broker, "produce", "written", *PROTOBUF, "--message", "shop.Note", stdin='{"text": "n"}\n')
    shown_at(broker, "produce", "written", *PROTOBUF, "--message", "shop.Order.Line", stdin='{"text": "n"}\n')
    raw = shown_at(broker, *read("written", "-f", "%s"))
    assert raw == HEAD + b"\x00" + OSLO + HEAD + b"\x02\x02\x0a\x01n" + HEAD + b"\x04\x00\x02\x0a\x01n"


def test_without_a_registry_messages_have_no_framing(
    broker: Broker, descriptors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_SCHEMA_REGISTRY")
    file = ("--value-schema", descriptors, "--message", "shop.Order")
    shown_at(broker, "produce", "again", *PROTOBUF, *file, stdin=f"{SHOWN}\n")
    assert shown_at(broker, *read("again", "-f", "%s")) == OSLO


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("produce refused --value-format protobuf", "line 1: value: not a shop.Order: "),
        (
            "produce refused --value-format protobuf --message shop.X",
            "no message 'shop.X'; there are shop.Order, shop.",
        ),
        ("produce other --value-format protobuf", "the schema registry has no subject other-value\n"),
        ("produce avro --value-format protobuf", "the schema of subject avro-value is AVRO, not PROTOBUF"),
        ("produce refused --value-format avro", "the schema of subject refused-value is PROTOBUF, not AVRO"),
        ("produce x --value-format protobuf --value-schema f", "for values without a registry; name none, or leave"),
        (
            "consume plain --value-format protobuf --value-schema f",
            "--value-schema f needs --message NAME, the full name",
        ),
        ("consume plain --value-format protobuf --value-schema no --message m", "--value-schema no: No such file or d"),
        ("consume plain --value-format protobuf --message m", "--message goes with --value-schema; "),
        ("consume plain --value-format avro --message m", "--message goes with --value-format protobuf"),
        ("consume plain --key-message m", "--key-message goes with --key-format protobuf"),
    ],
)
def test_mistakes(broker: Broker, registry: PlayedRegistry, arguments: str, message: str) -> None:
    registry.versions |= {"refused-value": [20], "avro-value": [7]}
    done = ottla_at(broker, *arguments.split(), stdin='{"town":"Oslo"}\n')
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_schema_is_named(broker: Broker, registry: PlayedRegistry) -> None:
    for text, reason in {"!": "not a serialized descriptor", "": "its file has no message"}.items():
        registry.protobuf[20] = text
        registry.versions["broken-value"] = [20]
        done = ottla_at(broker, "produce", "broken", *PROTOBUF, stdin="{}\n")
        assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr
    registry.protobuf[20] = base64.b64encode(FILES.file[2].SerializeToString()).decode()
    registry.references.clear()
    done = ottla_at(broker, *read("orders", *PROTOBUF))
    assert "schema 20 cannot be read: it is not whole: " in done.stderr


def test_the_extra_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    done = ottla_at(broker, *read("orders", *PROTOBUF))
    assert (done.exit_code, done.stderr) == (
        2,
        "ottla consume: --value-format protobuf needs protobuf: pip install 'ottla[protobuf]'\n",
    )
