"""Declared classes as plain data."""

from __future__ import annotations

import copy
import pickle
import uuid

import pytest

from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import (
    BOOL,
    INT32,
    STRING,
    UUID,
    ZERO_UUID,
    Message,
    Struct,
    array,
    field,
    message,
    struct,
)


@struct
class Inner(Struct):
    """A struct."""

    name: str = field(STRING, default="none")
    flag: bool = field(BOOL)


@message(versions=(0, 3), flexible_since=2)
class Outer(Message):
    """A message."""

    number: int = field(INT32, default=-1)
    late: str = field(STRING, since=1, until=2, ignorable=True)
    topic_id: uuid.UUID = field(UUID)
    one: Inner = field(Inner)
    many: list[Inner] | None = field(array(Inner), nullable_since=1)


def test_every_field_has_its_default() -> None:
    made = Outer()
    assert (made.number, made.late, made.topic_id, made.many) == (-1, "", ZERO_UUID, [])
    assert made.one == Inner(name="none", flag=False)
    assert made.unknown_tagged_fields is None


def test_lists_and_structs_are_not_shared() -> None:
    first, second = Outer(), Outer()
    assert first.many is not second.many
    assert first.one is not second.one
    assert Outer(many=None).many is None


def test_plain_slotted_data() -> None:
    made = Outer(number=3)
    assert not hasattr(made, "__dict__")
    with pytest.raises(AttributeError):
        made.nmuber = 4  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmuber'"):
        Outer(nmuber=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Outer(4)  # type: ignore[misc]
    assert made != Outer(number=4)
    assert made != Inner()
    assert made != 3
    with pytest.raises(TypeError):
        hash(made)


def test_unknown_tagged_fields_are_part_of_equality() -> None:
    one, other = Inner(), Inner()
    one.unknown_tagged_fields = {}
    assert one == other
    one.unknown_tagged_fields = {7: b"x"}
    assert one != other
    assert repr(one) == "Inner(name='none', flag=False, unknown_tagged_fields={7: b'x'})"


def test_repr_names_the_fields() -> None:
    assert repr(Inner(name="a")) == "Inner(name='a', flag=False)"


def test_copies_and_pickles() -> None:
    request = JoinGroupRequest(group_id="g", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")])
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_schema_reports_versions() -> None:
    schema = Outer.SCHEMA
    assert (schema.name, schema.versions, schema.flexible_since) == ("Outer", (0, 3), 2)
    fields = {f.name: f for f in schema.fields}
    assert list(fields) == ["number", "late", "topic_id", "one", "many"]
    assert [fields["late"].present(version) for version in range(4)] == [False, True, True, False]
    assert [fields["many"].nullable(version) for version in range(2)] == [False, True]
    assert repr(fields["many"]) == "Field(many: []Inner)"


def test_defaults_are_recognised() -> None:
    fields = {f.name: f for f in FetchRequest.SCHEMA.fields}
    assert fields["replica_state"].is_default(ReplicaState())
    assert not fields["replica_state"].is_default(ReplicaState(replica_id=1))
    assert fields["topics"].is_default([])
    topics = {f.name: f for f in MetadataRequest.SCHEMA.fields}["topics"]
    assert not topics.is_default(None)
