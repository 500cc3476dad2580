"""Protobuf values to typed columns, in whole batches, with ptars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import pyarrow
import pyarrow.compute as compute

from ottla.decoding.framing import NO_FRAMING, encode_indexes, take_indexes
from ottla.records.extras import require_extra
from ottla.spark.decoding.framing import NOT_FRAMED, all_bad, put_together, split_frames
from ottla.spark.decoding.halving import (
    ColumnFormat,
    Decoded,
    UnreadableError,
    decode_in_halves,
    read_singly,
    read_together,
)

require_extra("valueFormat=protobuf", "spark-decode", "ptars")

import ptars
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.decoding.protobuf_messages import message_paths
from ottla.spark.decoding.protobuf_messages import column_type, find_message, refuse_no_columns

_CONFIG = ptars.PtarsConfig(
    timestamp_tz="UTC", timestamp_unit="us", duration_unit="us", enum_repr="string", list_value_name="element"
)


#: ptars descends into groups without a limit, until its stack ends and the process with it; this depth is safe. A
#: group takes a byte, so only longer messages can have more; Google's parser, which refuses more than 100, reads those
#: first.
SAFE_GROUPS = 10_000


class ProtobufBatches(ColumnFormat):
    """Decoder of values that are messages of one type."""

    def __init__(self, descriptor_set: bytes, message: str, wanted: Sequence[str] = ()) -> None:
        descriptor = find_message(descriptor_set, message, wanted)
        self._name = message
        refuse_no_columns(descriptor, list(wanted) or [field.name for field in descriptor.fields])
        self.paths = message_paths(descriptor)
        self._descriptor = descriptor
        self._oneofs: dict[str, bool] = {}
        self._has_oneof = has_oneof(descriptor, self._oneofs)
        self._handler = ptars.HandlerPool([descriptor.file], config=_CONFIG).get_for_message(descriptor)
        self._class = GetMessageClass(descriptor)
        read = self._handler.schema()
        names = list(wanted) or read.names
        self.schema = pyarrow.schema([pyarrow.field(name, column_type(read.field(name).type)) for name in names])

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        return decode_in_halves(values, self._batch, self._singly)

    def _batch(self, values: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        self._refuse_deep(values)
        with read_together():
            read = self._handler.array_to_record_batch(values)
            if self._has_oneof:
                # ptars keeps each member of a oneof that it meets.
                places = numpy.flatnonzero(several_members(read.to_struct_array(), self._descriptor, self._oneofs))
                if len(places):
                    read = self._handler.array_to_record_batch(self._rewritten(values, places))
            return [read.column(field.name).cast(field.type) for field in self.schema]

    def _rewritten(self, values: pyarrow.BinaryArray, places: numpy.ndarray) -> pyarrow.BinaryArray:
        """The values with those at `places` as Google's library writes what it has read. Raises UnreadableError."""
        messages = values.to_pylist()
        for place in places.tolist():
            try:
                messages[place] = self._class.FromString(messages[place]).SerializeToString()
            except DecodeError as problem:
                raise UnreadableError(str(problem), place) from problem
        return pyarrow.array(messages, pyarrow.binary())

    def _refuse_deep(self, values: pyarrow.BinaryArray) -> None:
        """Raises UnreadableError for a message that is long and bad."""
        longer = compute.greater(compute.binary_length(values), SAFE_GROUPS)
        for place in numpy.flatnonzero(longer.to_numpy(zero_copy_only=False)):
            try:
                self._class.FromString(values[int(place)].as_py())
            except DecodeError as problem:
                raise UnreadableError(str(problem), int(place)) from problem

    def _singly(self, values: pyarrow.BinaryArray) -> tuple[list[pyarrow.Array], list[str | None]]:
        return read_singly(values, self.schema, self._one, f"not a {self._name}")

    def _one(self, value: pyarrow.BinaryArray) -> list[pyarrow.Array]:
        """One message. ptars refuses some that are only written in an unusual way."""
        try:
            return self._batch(value)
        except UnreadableError as problem:
            usual = self._rewritten(value, numpy.zeros(1, numpy.int64))
            if usual == value:
                raise
            try:
                return self._batch(usual)
            except UnreadableError:
                raise problem from None


class FramedProtobuf(ColumnFormat):
    """Decoder of Protobuf values with the framing of a registry. Fields go by number, whatever the schema's id is."""

    def __init__(self, batches: ProtobufBatches) -> None:
        self.schema = batches.schema
        self._batches = batches
        self._expected = encode_indexes(batches.paths[0])

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        frames = split_frames(values)
        bodies: list[bytes] = []
        good: list[int] = []
        bad: dict[str, list[int]] = {}
        for place, (schema_id, body) in enumerate(zip(frames.ids.tolist(), frames.bodies.to_pylist(), strict=True)):
            reason, message = self._message(schema_id, body)
            if reason is None:
                good.append(place)
                bodies.append(message)
            else:
                bad.setdefault(reason, []).append(place)
        groups = [(numpy.array(places), all_bad(self.schema, len(places), reason)) for reason, places in bad.items()]
        if good:
            groups.append((numpy.array(good), self._batches.decode(pyarrow.array(bodies, pyarrow.binary()))))
        return put_together(self.schema, len(values), groups)

    def _message(self, schema_id: int, body: bytes) -> tuple[str | None, bytes]:
        """Why a value is not a message of the type, or the message."""
        if schema_id == NOT_FRAMED:
            return NO_FRAMING, b""
        if body.startswith(self._expected):
            return None, body[len(self._expected) :]
        found = take_indexes(body)
        if found is None:
            return "no message indexes behind the schema id", b""
        path, start = found
        if path not in self._batches.paths:
            expected = " or ".join(str(list(each)) for each in self._batches.paths)
            return f"another message of its schema, that at {list(path)} instead of {expected}", b""
        return None, body[start:]


def has_oneof(message: Descriptor, known: dict[str, bool]) -> bool:
    """Whether a message, or one in it, has a oneof of several fields. `known` are messages that were looked at."""
    if message.full_name not in known:
        known[message.full_name] = any(len(each.fields) > 1 for each in message.oneofs) or any(
            field.message_type is not None and has_oneof(field.message_type, known) for field in message.fields
        )
    return known[message.full_name]


def several_members(messages: pyarrow.StructArray, message: Descriptor, known: dict[str, bool]) -> numpy.ndarray:
    """Which messages have, at any depth, more than one member of a oneof on the wire, of which the last one counts."""
    found = numpy.zeros(len(messages), bool)
    for oneof in message.oneofs:
        if len(oneof.fields) > 1:
            members = [_is_there(messages.field(field.name)) for field in oneof.fields if _has(messages, field)]
            found |= numpy.sum(members, axis=0, dtype=numpy.int64) > 1
    for field in message.fields:
        if field.message_type is not None and _has(messages, field) and has_oneof(field.message_type, known):
            found |= _within(messages.field(field.name), field.message_type, known)
    return numpy.asarray(found & _is_there(messages))


def _has(messages: pyarrow.StructArray, field: FieldDescriptor) -> bool:
    return bool(messages.type.get_field_index(field.name) >= 0)


def _is_there(array: pyarrow.Array) -> numpy.ndarray:
    return numpy.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _within(array: pyarrow.Array, message: Descriptor | None, known: dict[str, bool]) -> numpy.ndarray:
    """Which rows of a column, of messages, of lists or of maps of them, have such a message."""
    types = pyarrow.types
    if message is None:
        return numpy.zeros(len(array), bool)
    if types.is_struct(array.type):
        return several_members(array, message, known)
    found = numpy.zeros(len(array), bool)
    if types.is_map(array.type):
        value = message.fields_by_name["value"].message_type
        inner = _within(array.items, value, known)
    elif types.is_list(array.type):
        inner = _within(array.values, message, known)
    else:
        return found
    rows = numpy.searchsorted(array.offsets.to_numpy(), numpy.flatnonzero(inner), side="right") - 1
    found[rows] = True
    return found
