"""The framing of schema registries, of whole batches: ids and what is behind them, and rows put together again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import pyarrow

from ottla.decoding.framing import MAGIC, NO_FRAMING, PREFIX_LENGTH
from ottla.spark.decoding.halving import ColumnFormat, Decoded

#: An id for values without framing.
NOT_FRAMED = -1
#: Registries number schemas from 1.
LIKELY_IDS = range(1, 1 << 24)


@dataclass(frozen=True, slots=True)
class Frames:
    """Schema ids of values (NOT_FRAMED where there is none), and the values behind them."""

    ids: numpy.ndarray
    bodies: pyarrow.BinaryArray


def split_frames(values: pyarrow.BinaryArray) -> Frames:
    """Take the framing off values, none of which is null."""
    bodies = [value[PREFIX_LENGTH:] for value in values.to_pylist()]
    return Frames(frame_ids(values), pyarrow.array(bodies, pyarrow.binary()))


def frame_ids(values: pyarrow.BinaryArray) -> numpy.ndarray:
    """The schema ids that values, none of which is null, begin with; NOT_FRAMED for others."""
    if len(values) == 0:
        return numpy.empty(0, numpy.int64)
    _, positions, data = values.buffers()
    offsets = numpy.frombuffer(positions, numpy.int32)[values.offset : values.offset + len(values) + 1]
    content = numpy.frombuffer(data, numpy.uint8) if data is not None else numpy.zeros(0, numpy.uint8)
    starts = offsets[:-1].astype(numpy.int64)
    ids = numpy.full(len(values), NOT_FRAMED, numpy.int64)
    long_enough = numpy.flatnonzero(offsets[1:] - offsets[:-1] >= PREFIX_LENGTH)
    framed = long_enough[content[starts[long_enough]] == MAGIC]
    number = numpy.zeros(len(framed), numpy.int64)
    for place in range(1, PREFIX_LENGTH):
        number = number << 8 | content[starts[framed] + place]
    ids[framed] = number
    return ids


def put_together(schema: pyarrow.Schema, rows: int, groups: list[tuple[numpy.ndarray, Decoded]]) -> Decoded:
    """Columns of `rows` rows of groups of them, which are given by their places."""
    if len(groups) == 1 and len(groups[0][0]) == rows:
        return groups[0][1]
    if not groups:
        return [pyarrow.nulls(rows, field.type) for field in schema], None
    order = numpy.empty(rows, numpy.int64)
    order[numpy.concatenate([places for places, _ in groups])] = numpy.arange(rows)
    back = pyarrow.array(order)
    columns = [
        pyarrow.concat_arrays([columns[index] for _, (columns, _) in groups]).take(back) for index in range(len(schema))
    ]
    if all(reasons is None for _, (_, reasons) in groups):
        return columns, None
    said: list[str | None] = []
    for places, (_, reasons) in groups:
        said += reasons if reasons is not None else [None] * len(places)
    return columns, [said[place] for place in order]


def all_bad(schema: pyarrow.Schema, rows: int, reason: str) -> Decoded:
    """Rows that are bad for one reason."""
    return [pyarrow.nulls(rows, field.type) for field in schema], [reason] * rows


class Unframed(ColumnFormat):
    """Decoder of a format that needs no schema of the registry: the framing is taken off."""

    def __init__(self, inner: ColumnFormat) -> None:
        self.schema = inner.schema
        self._inner = inner

    def _present(self, values: pyarrow.BinaryArray) -> Decoded:
        frames = split_frames(values)
        framed = frames.ids != NOT_FRAMED
        if framed.all():
            return self._inner.decode(frames.bodies)
        good, bad = numpy.flatnonzero(framed), numpy.flatnonzero(~framed)
        groups = [(bad, all_bad(self.schema, len(bad), NO_FRAMING))]
        if len(good):
            groups.append((good, self._inner.decode(frames.bodies.take(pyarrow.array(good)))))
        return put_together(self.schema, len(values), groups)
