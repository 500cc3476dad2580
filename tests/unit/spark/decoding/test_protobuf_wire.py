"""Protobuf's wire format, rule by rule, with the values that Google's library reads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from ottla.spark.decoding import decoder, parse_decoding_options
from ottla.spark.errors import OptionError

pytestmark = pytest.mark.spec("D1")

ONE, MANY = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
SCALARS = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    *("float", "double", "bool", "string", "bytes"),
)
#: Fields of the message M behind those of SCALARS: names, types, whether they are repeated.
MORE: tuple[tuple[str, Any, str, bool], ...] = (
    ("kind", Field.TYPE_ENUM, ".w.Kind", False),
    ("sub", Field.TYPE_MESSAGE, ".w.Sub", False),
    ("ints", Field.TYPE_INT32, "", True),
    ("floats", Field.TYPE_FLOAT, "", True),
    ("texts", Field.TYPE_STRING, "", True),
    ("subs", Field.TYPE_MESSAGE, ".w.Sub", True),
    ("kinds", Field.TYPE_ENUM, ".w.Kind", True),
    ("sizes", Field.TYPE_MESSAGE, ".w.M.SizesEntry", True),
    ("named", Field.TYPE_MESSAGE, ".w.M.NamedEntry", True),
)
NUMBERS = {name: place for place, name in enumerate((*SCALARS, *(each[0] for each in MORE), "a", "b", "c"), 1)}
NOTHING = {"n": 0, "t": "", "many": [], "x": None, "y": None}


def made_file(syntax: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax=syntax)
    for number, name in enumerate(("NONE", "BIG")):
        (file.enum_type[0] if number else file.enum_type.add(name="Kind")).value.add(name=name, number=number)
    sub = file.message_type.add(name="Sub")
    sub.field.add(name="n", number=1, type=Field.TYPE_INT32, label=ONE)
    sub.field.add(name="t", number=2, type=Field.TYPE_STRING, label=ONE)
    sub.field.add(name="many", number=3, type=Field.TYPE_INT32, label=MANY)
    sub.oneof_decl.add(name="either")
    for number, name in enumerate(("x", "y"), 4):
        sub.field.add(name=name, number=number, type=Field.TYPE_INT32, label=ONE, oneof_index=0)
    message = file.message_type.add(name="M")
    for name in SCALARS:
        kind = Field.Type.Value(f"TYPE_{name.upper()}")
        message.field.add(name=name, number=NUMBERS[name], type=kind, label=ONE)
    for name, type_number, type_name, repeated in MORE:
        label = MANY if repeated else ONE
        message.field.add(name=name, number=NUMBERS[name], type=type_number, type_name=type_name or None, label=label)
    for name in ("SizesEntry", "NamedEntry"):
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=ONE)
        value = entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=ONE)
        if name == "NamedEntry":
            value.type, value.type_name = Field.TYPE_MESSAGE, ".w.Sub"
    message.oneof_decl.add(name="either")
    message.field.add(name="a", number=NUMBERS["a"], type=Field.TYPE_INT32, label=ONE, oneof_index=0)
    message.field.add(name="b", number=NUMBERS["b"], type=Field.TYPE_STRING, label=ONE, oneof_index=0)
    message.field.add(
        name="c", number=NUMBERS["c"], type=Field.TYPE_MESSAGE, type_name=".w.Sub", label=ONE, oneof_index=0
    )
    if syntax == "proto2":
        message.field.add(name="forty", number=90, type=Field.TYPE_INT32, label=ONE, default_value="42")
        message.nested_type.add(name="Old").field.add(name="n", number=1, type=Field.TYPE_INT32, label=ONE)
        message.field.add(name="old", number=91, type=Field.TYPE_GROUP, type_name=".w.M.Old", label=ONE)
    return file


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("wire")

    def path(syntax: str) -> Path:
        files = descriptor_pb2.FileDescriptorSet(file=[made_file(syntax)])
        (folder / syntax).write_bytes(files.SerializeToString())
        return folder / syntax

    return path


def decode(path: Path, *values: bytes, **more: str) -> list[dict[str, Any]]:
    options = {"valueFormat": "protobuf", "valueDescriptor": str(path), "valueMessage": "w.M", "badValueColumn": ""}
    made = decoder(parse_decoding_options(options | more))
    table = pyarrow.table(made.decode(pyarrow.array(values, pyarrow.binary())), schema=made.fields)
    table.validate(full=True)
    return list(table.to_pylist())


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    octets = b""
    while number > 0x7F:
        octets += bytes([number & 0x7F | 0x80])
        number >>= 7
    return octets + bytes([number])


def tag(name: str | int, wire: int) -> bytes:
    return varint((NUMBERS[name] if isinstance(name, str) else name) << 3 | wire)


def number(name: str | int, value: int) -> bytes:
    return tag(name, 0) + varint(value)


def octets(name: str | int, value: bytes) -> bytes:
    return tag(name, 2) + varint(len(value)) + value


GROUP = tag(500, 3) + number(1, 9) + tag(501, 3) + tag(501, 4) + tag(500, 4)
#: Bytes, and what is read of them beside what a message without any field has.
RULES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "nothing": (b"", {}),
    "int32 below 0 in ten bytes": (number("int32", -5), {"int32": -5}),
    "int32 below 0 in five bytes": (tag("int32", 0) + b"\xfb\xff\xff\xff\x0f", {"int32": -5}),
    "int32 of more bits": (number("int32", (1 << 32) + 7), {"int32": 7}),
    "uint32 of more bits": (number("uint32", (1 << 40) + 3), {"uint32": 3}),
    "int64": (number("int64", -1), {"int64": -1}),
    "uint64": (number("uint64", 2**64 - 1), {"uint64": 2**64 - 1}),
    "sint32": (number("sint32", 9), {"sint32": -5}),
    "sint64": (number("sint64", 2**64 - 1), {"sint64": -(2**63)}),
    "fixed32": (tag("fixed32", 5) + b"\xff" * 4, {"fixed32": 2**32 - 1}),
    "fixed64": (tag("fixed64", 1) + b"\xff" * 8, {"fixed64": 2**64 - 1}),
    "sfixed32": (tag("sfixed32", 5) + b"\xff" * 4, {"sfixed32": -1}),
    "sfixed64": (tag("sfixed64", 1) + b"\xfe" + b"\xff" * 7, {"sfixed64": -2}),
    "float": (tag("float", 5) + struct.pack("<f", 1.5), {"float": 1.5}),
    "double": (tag("double", 1) + struct.pack("<d", 1e300), {"double": 1e300}),
    "bool of any number": (number("bool", 2**63), {"bool": True}),
    "bool in two bytes": (tag("bool", 0) + b"\x80\x00", {"bool": False}),
    "string": (octets("string", "ü".encode()), {"string": "ü"}),
    "bytes": (octets("bytes", b"\xff\x00"), {"bytes": b"\xff\x00"}),
    "enum": (number("kind", 1), {"kind": "BIG"}),
    "enum without a name": (number("kind", 7), {"kind": "7"}),
    "enum below 0": (number("kind", -1), {"kind": "-1"}),
    "the last of several": (number("int32", 1) + octets("string", b"a") + number("int32", 0), {"string": "a"}),
    "messages of one field are merged": (
        octets("sub", number(1, 1) + number(3, 1)) + octets("sub", octets(2, b"x") + number(3, 2)),
        {"sub": NOTHING | {"n": 1, "t": "x", "many": [1, 2]}},
    ),
    "message without fields": (octets("sub", b""), {"sub": NOTHING}),
    "packed": (octets("ints", varint(1) + varint(-2)), {"ints": [1, -2]}),
    "not packed": (number("ints", 1) + number("ints", -2), {"ints": [1, -2]}),
    "packed and not": (
        number("ints", 1) + octets("ints", varint(2) + varint(3)) + number("ints", 4), {"ints": [1, 2, 3, 4]},
    ),
    "packed without items": (octets("ints", b""), {}),
    "floats, packed and not": (
        octets("floats", struct.pack("<ff", 1, 2)) + tag("floats", 5) + struct.pack("<f", 3),
        {"floats": [1.0, 2.0, 3.0]},
    ),
    "enums, packed and not": (
        octets("kinds", b"\x00\x01\x07") + number("kinds", 1), {"kinds": ["NONE", "BIG", "7", "BIG"]},
    ),
    "strings": (octets("texts", b"a") + octets("texts", b""), {"texts": ["a", ""]}),
    "messages": (octets("subs", number(1, 1)) + octets("subs", b""), {"subs": [NOTHING | {"n": 1}, NOTHING]}),
    "map": (octets("sizes", octets(1, b"k") + number(2, 1)), {"sizes": [("k", 1)]}),
    "map, value first": (octets("sizes", number(2, 1) + octets(1, b"k")), {"sizes": [("k", 1)]}),
    "map, entry without value": (octets("sizes", octets(1, b"k")), {"sizes": [("k", 0)]}),
    "map, entry without key": (octets("sizes", number(2, 5)), {"sizes": [("", 5)]}),
    "map, unknown field of an entry": (
        octets("sizes", octets(1, b"k") + number(2, 1) + octets(9, b"z")), {"sizes": [("k", 1)]},
    ),
    "map of messages": (
        octets("named", octets(1, b"k") + octets(2, number(1, 1))), {"named": [("k", NOTHING | {"n": 1})]},
    ),
    "map of messages, entry without value": (octets("named", octets(1, b"k")), {"named": [("k", NOTHING)]}),
    "unknown varint": (number(500, 1) + number("int32", 3), {"int32": 3}),
    "unknown bytes": (octets(500, b"abc") + number("int32", 3), {"int32": 3}),
    "unknown 32 bits": (tag(500, 5) + b"abcd" + number("int32", 3), {"int32": 3}),
    "unknown 64 bits": (tag(500, 1) + b"abcdefgh" + number("int32", 3), {"int32": 3}),
    "unknown group": (GROUP + number("int32", 3), {"int32": 3}),
    "number as bytes is an unknown field": (octets("int64", b"abc") + number("int32", 3), {"int32": 3}),
    "string as a number is an unknown field": (number("string", 1) + number("int32", 3), {"int32": 3}),
    "message as a number is an unknown field": (number("sub", 1) + number("int32", 3), {"int32": 3}),
    "double as 32 bits is an unknown field": (tag("double", 5) + b"abcd" + number("int32", 3), {"int32": 3}),
    "tag in more bytes": (b"\x88\x80\x00\x05", {"int32": 5}),
    "oneof, default": (number("a", 0), {"a": 0}),
    "oneof, the last member": (number("a", 1) + octets("b", b"x"), {"b": "x"}),
    "oneof, the last member, a default": (octets("b", b"x") + number("a", 0), {"a": 0}),
    "oneof, message first": (octets("c", number(1, 1)) + number("a", 1), {"a": 1}),
    "oneof, message last": (number("a", 1) + octets("c", b""), {"c": NOTHING}),
    "oneof, messages are merged": (
        octets("c", number(1, 1)) + octets("c", octets(2, b"y")), {"c": NOTHING | {"n": 1, "t": "y"}},
    ),
    "oneof, message and another between": (
        octets("c", number(1, 1)) + number("a", 1) + octets("c", octets(2, b"y")), {"c": NOTHING | {"t": "y"}},
    ),
    "oneof in a message": (octets("sub", number(4, 1) + number(5, 2)), {"sub": NOTHING | {"y": 2}}),
    "oneof in a merged message": (
        octets("sub", number(5, 1)) + octets("sub", number(4, 2)), {"sub": NOTHING | {"x": 2}},
    ),
    "oneof in a list": (
        octets("subs", b"") + octets("subs", number(5, 1) + number(4, 2)), {"subs": [NOTHING, NOTHING | {"x": 2}]},
    ),
    "oneof in a map": (
        octets("named", octets(1, b"k") + octets(2, number(4, 1) + number(5, 2))),
        {"named": [("k", NOTHING | {"y": 2})]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_values(described: Callable[[str], Path], rule: str) -> None:
    value, expected = RULES[rule]
    before, row, after = decode(described("proto3"), number("int32", 1), value, number("int32", 2))
    empty: dict[str, Any] = dict.fromkeys(SCALARS, 0) | {
        "bool": False,
        "string": "",
        "bytes": b"",
        "kind": "NONE",
        "sub": None,
    }
    empty |= {name: [] for name, _, _, repeated in MORE if repeated} | {"a": None, "b": None, "c": None}
    assert row == empty | expected | {"_bad_reason": None}
    assert (before["int32"], after["int32"]) == (1, 2)


@pytest.mark.parametrize(
    "value",
    [
        octets("string", b"\xff"), octets("ints", b"\x80"), octets("kinds", b"\x80"), tag(500, 3) + number(1, 9),
        tag(500, 4), bytes([1 << 3 | 6, 0]), bytes([1 << 3 | 7, 0]), b"\x00\x01", tag("int32",
        0) + b"\x80" * 10 + b"\x01",
        tag("int32", 0) + b"\x80", tag("string", 2) + b"\x05ab", tag("string", 2) + varint(2**63), tag("fixed32",
        5) + b"ab",
        octets("sub", b"\x08"), octets("sizes", b"\x0a\x05k"), number("a", 1) + octets("b", b"x") + b"\xff",
    ],
)  # fmt: skip
def test_bytes_that_are_no_message(described: Callable[[str], Path], value: bytes) -> None:
    before, row, after = decode(described("proto3"), number("int32", 1), value, number("int32", 2))
    assert row["_bad_reason"].startswith("not a w.M: ")
    assert row["int32"] is None
    assert (before["int32"], after["int32"]) == (1, 2)


def test_the_last_member_of_a_oneof_counts_also_if_it_is_not_wanted(described: Callable[[str], Path]) -> None:
    values = [
        octets("b", b"x") + number("a", 1),
        number("a", 1) + octets("b", b"\xff"),
        number("a", 1) + octets("c", b"\xff"),
    ]
    rows = decode(described("proto3"), *values, valueColumns="a")
    assert [(row["a"], row["_bad_reason"]) for row in rows] == [(1, None), (None, None), (None, None)]


def test_few_messages_with_several_members_are_read_with_the_others(described: Callable[[str], Path]) -> None:
    values = [number("a", 1) + (octets("b", b"x") if place in (3, 700) else b"") for place in range(1_000)]
    rows = decode(described("proto3"), *values)
    assert [row["a"] for row in rows] == [None if place in (3, 700) else 1 for place in range(1_000)]


def test_defaults_of_proto2_and_presence(described: Callable[[str], Path]) -> None:
    empty, set_to_zero = decode(
        described("proto2"), b"", number("int32", 0) + number(90, 0), valueColumns="int32,forty,ints"
    )
    assert empty == {"int32": None, "forty": None, "ints": [], "_bad_reason": None}
    assert set_to_zero == {"int32": 0, "forty": 0, "ints": [], "_bad_reason": None}


def test_groups_are_refused_unless_they_are_not_wanted(described: Callable[[str], Path]) -> None:
    group = tag(91, 3) + number(1, 5) + tag(91, 4) + number("int32", 3)
    (row,) = decode(described("proto2"), group, valueColumns="int32")
    assert row == {"int32": 3, "_bad_reason": None}
    with pytest.raises(OptionError, match="field old is a group, which is not read; name the fields that you want"):
        decode(described("proto2"), group)


def test_members_of_a_oneof_with_a_group_are_refused(tmp_path: Path) -> None:
    """A group that comes last on the wire counts, and nothing that is read says that it is there."""
    file = made_file("proto2")
    file.message_type[1].field[-1].oneof_index = 0
    path = tmp_path / "w.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    value = number("a", 1) + tag(91, 3) + number(1, 5) + tag(91, 4) + number("int32", 3)
    with pytest.raises(OptionError, match=r"field old of oneof either is a group, .* leave them out of valueColumns"):
        decode(path, value, valueColumns="a,int32")
    (row,) = decode(path, value, valueColumns="int32")
    assert row == {"int32": 3, "_bad_reason": None}


def test_message_indexes_count_the_entries_of_maps_or_do_not(tmp_path: Path) -> None:
    """Top and its nested messages: a map's entry, First, another map's entry, Second, Third."""
    file = descriptor_pb2.FileDescriptorProto(name="i.proto", package="i", syntax="proto3")
    top = file.message_type.add(name="Top")
    for place, name in enumerate(("OneEntry", "First", "TwoEntry", "Second", "Third")):
        nested = top.nested_type.add(name=name)
        if name.endswith("Entry"):
            nested.options.map_entry = True
            nested.field.add(name="key", number=1, type=Field.TYPE_STRING, label=ONE)
            field = top.field.add(name=name[:3].lower(), number=place + 1, type=Field.TYPE_MESSAGE, label=MANY)
            field.type_name = f".i.Top.{name}"
        nested.field.add(name="value", number=2, type=Field.TYPE_INT32, label=ONE)
    path = tmp_path / "i.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    values = [b"\x00\x00\x00\x00\x07" + bytes([4, 0, 2 * index]) + number(2, 5) for index in range(5)]
    # By descriptors: 1, 3, 4. Without entries: 0, 1, 2; but [0, 1] is First by descriptors.
    for name, taken in (("First", [0, 1]), ("Second", [3]), ("Third", [2, 4])):
        rows = decode(path, *values, valueMessage=f"i.Top.{name}", valueFraming="registry")
        assert [index for index, row in enumerate(rows) if row["value"] == 5] == taken
    refused = rows[1]["_bad_reason"]
    assert refused == "another message of its schema, that at [0, 1] instead of [0, 4] or [0, 2]"


def chained(types: int, fields_of_next: tuple[str, ...], label: Any = ONE) -> descriptor_pb2.FileDescriptorProto:
    """Messages M0, M1, …: each has a field n and, under these names, the next message."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto3")
    for level in range(types):
        message = file.message_type.add(name=f"M{level}")
        message.field.add(name="n", number=1, type=Field.TYPE_INT32, label=ONE)
        for place, name in enumerate(fields_of_next if level + 1 < types else (), 2):
            field = message.field.add(name=name, number=place, type=Field.TYPE_MESSAGE, label=label)
            field.type_name = f".w.M{level + 1}"
    return file


def test_a_short_schema_that_names_a_billion_fields_is_read_where_they_are_not_wanted(tmp_path: Path) -> None:
    path = tmp_path / "w.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[chained(30, ("a", "b"))]).SerializeToString())
    options = {"valueMessage": "w.M0", "valueColumns": "n"}
    assert decode(path, number(1, 7), **options) == [{"n": 7, "_bad_reason": None}]
    refused = r"valueMessage: field a: written out it has 1,073,741,822 types: a column has at most 10,000; name the"
    for more in ({}, {"valueColumns": "n,a"}):
        with pytest.raises(OptionError, match=refused):
            decode(path, **{"valueMessage": "w.M0", **more})


@pytest.mark.parametrize(("types", "label", "fits"), [(59, ONE, True), (70, ONE, False), (29, MANY, True)])
def test_a_chain_of_messages_is_a_column_or_is_refused(tmp_path: Path, types: int, label: Any, fits: bool) -> None:
    path = tmp_path / "w.desc"
    for length, is_read in ((types, fits), (types + 3, False)):
        chain = descriptor_pb2.FileDescriptorSet(file=[chained(length, ("next",), label)])
        path.write_bytes(chain.SerializeToString())
        if is_read:
            assert decode(path, number(1, 7), valueMessage="w.M0")[0]["n"] == 7
            continue
        with pytest.raises(OptionError, match="field next: types are nested too deep: a column has at most 60 levels"):
            decode(path, valueMessage="w.M0")
