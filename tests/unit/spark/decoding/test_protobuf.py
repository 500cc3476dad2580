"""Protobuf to typed columns, by a descriptor set, with and without the framing of a schema registry."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from ottla.spark.decoding import decoder, decoder_of, parse_decoding_options
from ottla.spark.errors import OptionError

KINDS = {
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}


def add(message: descriptor_pb2.DescriptorProto, name: str, kind: str, **more: Any) -> FieldDescriptorProto:
    """One more field; `kind` is a scalar, or the full name of a message or enum after `.` or `:`."""
    label = FieldDescriptorProto.LABEL_REPEATED if more.pop("repeated", False) else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=len(message.field) + 1, label=label, **more)
    if kind[0] in ".:":
        field.type = FieldDescriptorProto.TYPE_MESSAGE if kind[0] == "." else FieldDescriptorProto.TYPE_ENUM
        field.type_name = f".{kind[1:]}"
    else:
        field.type = KINDS[kind]
    return field


def made_files() -> descriptor_pb2.FileDescriptorSet:
    """What protoc --include_imports makes of shop.proto: Order, with a message inside, and Tree, which is recursive."""
    files = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, wrappers_pb2):
        known.DESCRIPTOR.CopyToProto(files.file.add())
    shop = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    shop.enum_type.add(name="Kind").value.extend(
        [
            descriptor_pb2.EnumValueDescriptorProto(name="NONE", number=0),
            descriptor_pb2.EnumValueDescriptorProto(name="BIG", number=1),
        ]
    )
    tree = shop.message_type.add(name="Tree")
    add(tree, "label", "string")
    add(tree, "left", ".shop.Tree")
    order = shop.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    add(line, "sku", "string")
    add(line, "count", "uint32")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key", "string")
    add(entry, "value", "double")
    add(order, "id", "int64")
    add(order, "at", ".google.protobuf.Timestamp")
    add(order, "kind", ":shop.Kind")
    add(order, "lines", ".shop.Order.Line", repeated=True)
    add(order, "tags", ".shop.Order.TagsEntry", repeated=True)
    add(order, "size", "uint64")
    order.oneof_decl.add(name="payment")
    add(order, "card", "string", oneof_index=0)
    add(order, "invoice", "int64", oneof_index=0)
    order.oneof_decl.add(name="_note")
    add(order, "note", "string", oneof_index=1, proto3_optional=True)
    add(order, "coupon", ".google.protobuf.StringValue")
    add(order, "raw", "bytes")
    add(order, "parent", ".shop.Tree")
    return files


FILES = made_files()
WANTED = "id,at,kind,lines,tags,size,card,invoice,note,coupon,raw"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("proto") / "shop.desc"
    path.write_bytes(FILES.SerializeToString())
    return str(path)


def message(name: str, **fields: Any) -> Message:
    pool = descriptor_pool.DescriptorPool()
    for file in FILES.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields)


def order(number: int) -> bytes:
    made: Any = message("shop.Order", id=number, kind=number % 2, size=2**64 - 1, raw=b"\xff\x00", tags={"a": 0.5})
    made.at.FromDatetime(datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC))
    made.lines.add(sku="x", count=2**32 - 1)
    if number % 2:
        made.card, made.note = "visa", ""
        made.coupon.value = "SAVE"
    else:
        made.invoice = number
    return bytes(made.SerializeToString())


def decode(values: Sequence[bytes | None], **options: str) -> list[dict[str, Any]]:
    made = decoder(parse_decoding_options({"valueFormat": "protobuf", **options}))
    table = pyarrow.table(made.decode(pyarrow.array(values, pyarrow.binary())), schema=made.fields)
    table.validate(full=True)
    assert table.num_rows == len(values)
    return list(table.to_pylist(maps_as_pydicts="strict"))


def test_messages_are_what_was_written(shop: str) -> None:
    even, odd = decode([order(0), order(1)], valueDescriptor=shop, valueMessage="shop.Order", valueColumns=WANTED)
    both = {
        "at": datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC),
        "lines": [{"sku": "x", "count": 2**32 - 1}],
        "tags": {"a": 0.5},
        "size": Decimal(2**64 - 1),
        "raw": b"\xff\x00",
        "_bad_value": None,
        "_bad_reason": None,
    }
    assert even == both | {"id": 0, "kind": "NONE", "card": None, "invoice": 0, "note": None, "coupon": None}
    assert odd == both | {"id": 1, "kind": "BIG", "card": "visa", "invoice": None, "note": "", "coupon": "SAVE"}


@pytest.mark.spec("D1")
@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_groups_that_are_nested_without_end_are_a_bad_record(shop: str, depth: int, tmp_path: Path) -> None:
    """In a process of its own: ptars alone ends it."""
    values = [order(1)] * 40
    values[17] = b"\xa3\x06" * depth + b"\xa4\x06" * depth
    (tmp_path / "values").write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in values))
    program = """
        import sys
        import pyarrow
        from ottla.spark.decoding import decoder, parse_decoding_options

        file = open(sys.argv[2], "rb")
        values = [file.read(int.from_bytes(file.read(4), "big")) for _ in range(40)]
        options = {"valueFormat": "protobuf", "valueDescriptor": sys.argv[1], "valueMessage": "shop.Order"}
        made = decoder(parse_decoding_options(options | {"valueColumns": "id"}))
        id, _, reasons = made.decode(pyarrow.array(values, pyarrow.binary()))
        print(id.to_pylist() == [1] * 17 + [None] + [1] * 22, [each for each in reasons.to_pylist() if each])
    """
    command = [sys.executable, "-c", textwrap.dedent(program), shop, str(tmp_path / "values")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout.startswith('True ["not a shop.Order: '), (run.returncode, run.stdout, run.stderr[-500:])


def test_long_messages_are_read(shop: str) -> None:
    values = [order(1), order(2) + b"\x5a" + bytes([0xC0, 0x9A, 0x0C]) + b"x" * 200_000]
    rows = decode(values, valueDescriptor=shop, valueMessage="shop.Order", valueColumns="id,raw")
    assert [(row["id"], len(row["raw"]), row["_bad_reason"]) for row in rows] == [(1, 2, None), (2, 200_000, None)]


def test_the_columns_of_a_read_are_decoded_alone(shop: str) -> None:
    options = {"valueFormat": "protobuf", "valueDescriptor": shop, "valueMessage": "shop.Order", "valueColumns": WANTED}
    made = decoder_of(parse_decoding_options(options), ["note", "offset", "_bad_reason", "id"])
    assert made is not None
    columns = made.decode(pyarrow.array([order(1), b"\xff", None], pyarrow.binary()))
    rows = pyarrow.table(columns, schema=made.fields).to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [(1, ""), (None, None), (None, None)]
    assert [row["_bad_reason"] is None for row in rows] == [True, False, True]


def test_only_the_columns_that_are_wanted(shop: str) -> None:
    rows = decode(
        [order(1)], valueDescriptor=shop, valueMessage="shop.Order", valueColumns="note,id", badValueColumn=""
    )
    assert rows == [{"note": "", "id": 1, "_bad_reason": None}]


def test_a_bad_record_never_touches_its_neighbours(shop: str) -> None:
    values: list[bytes | None] = [order(number) for number in range(300)]
    bad = {0: b"\xff", 5: order(5)[:-3], 299: b"\x12\x02\xff\xff"}
    for place, value in bad.items():
        values[place] = value
    values[6] = None
    rows = decode(values, valueDescriptor=shop, valueMessage="shop.Order", valueColumns=WANTED)
    assert {place: row["_bad_value"] for place, row in enumerate(rows) if row["_bad_reason"] is not None} == bad
    assert [row["id"] for row in rows] == [None if place in bad or place == 6 else place for place in range(300)]
    assert rows[0]["_bad_reason"].startswith("not a shop.Order: ")


def test_framing_names_the_message(shop: str) -> None:
    options = {"valueDescriptor": shop, "valueFraming": "registry", "valueColumns": "id"}
    body = order(7)
    start = b"\x00\x00\x00\x00\x09"
    values = [start + b"\x02\x02" + body, start + b"\x00" + body, start + b"\x04\x02\x00" + body, body, start, None]
    rows = decode(values, valueMessage="shop.Order", **options)
    assert [row["id"] for row in rows] == [7, None, None, None, None, None]
    reasons = [row["_bad_reason"] for row in rows]
    assert reasons[0] is None
    assert reasons[1] == "another message of its schema, that at [0] instead of [1]"
    assert reasons[2] == "another message of its schema, that at [1, 0] instead of [1]"
    assert reasons[3].startswith("no framing of a schema registry")
    assert reasons[4] == "no message indexes behind the schema id"
    line = message("shop.Order.Line", sku="x").SerializeToString()
    nested = decode(
        [start + b"\x04\x02\x00" + line],
        valueDescriptor=shop,
        valueMessage="shop.Order.Line",
        valueFraming="registry",
    )
    assert nested[0]["sku"] == "x"


def test_framed_values_without_the_option_say_so(shop: str) -> None:
    (row,) = decode(
        [b"\x00\x00\x00\x00\x09\x00" + order(1)], valueDescriptor=shop, valueMessage="shop.Order", valueColumns="id"
    )
    assert "give valueFraming=registry" in row["_bad_reason"]


def test_bytes_that_chance_made(shop: str) -> None:
    chance = random.Random(5)
    values = []
    for number in range(2_000):
        value = bytearray(order(number))
        for _ in range(chance.randint(1, 3)):
            value[chance.randrange(len(value))] = chance.randrange(256)
        values.append(bytes(value))
    options = {"valueFormat": "protobuf", "valueDescriptor": shop, "valueMessage": "shop.Order", "valueColumns": WANTED}
    columns = decoder(parse_decoding_options(options)).decode(pyarrow.array(values, pyarrow.binary()))
    assert 0 < columns[-1].null_count < len(values)
    for column in columns:
        column.validate(full=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option valueDescriptor is missing"),
        ({"valueDescriptor": "/no/such.desc"}, "'/no/such.desc' cannot be read"),
        ({"valueDescriptor": "shop"}, "option valueMessage is missing"),
        ({"valueDescriptor": "shop", "valueMessage": "Order"}, "no message 'Order'; there are "),
        ({"valueDescriptor": "shop", "valueMessage": "shop.Order"}, "field parent.left is a shop.Tree within itself"),
        ({"valueDescriptor": "shop", "valueMessage": "shop.Order", "valueColumns": "x"}, "has no field 'x'"),
        ({"valueDescriptor": "junk", "valueMessage": "shop.Order"}, "not a descriptor set"),
        ({"valueDescriptor": "half", "valueMessage": "shop.Order"}, "make it with protoc --include_imports"),
    ],
)
def test_options_that_cannot_be(shop: str, tmp_path: Path, options: dict[str, str], said: str) -> None:
    (tmp_path / "junk").write_bytes(b"\xff" * 10)
    half = descriptor_pb2.FileDescriptorSet(file=[FILES.file[-1]])
    (tmp_path / "half").write_bytes(half.SerializeToString())
    places = {"shop": shop, "junk": str(tmp_path / "junk"), "half": str(tmp_path / "half")}
    place = options.get("valueDescriptor")
    given = options if place is None else options | {"valueDescriptor": places.get(place, place)}
    with pytest.raises(OptionError) as caught:
        decode([], **given)
    assert said in str(caught.value)
