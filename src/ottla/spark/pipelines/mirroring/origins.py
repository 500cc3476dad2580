"""Headers with the origin of records, by which mirrors in both directions with unchanged names send no record back.

The functions work on columns, not on records. A mirror adds one header: `ottla.mirror.origin` with its source's alias,
or `ottla.mirror.via` where the record has an origin already. A record that was at the target, by either header, is not
sent there.
"""

from __future__ import annotations

import pyarrow

ORIGIN = "ottla.mirror.origin"
VIA = "ottla.mirror.via"


def without_returning(records: pyarrow.RecordBatch, target_alias: str) -> pyarrow.RecordBatch:
    """The records that have not been at the target."""
    import pyarrow.compute as compute

    headers = records.column("headers")
    has_been = _names_cluster(headers.flatten(), target_alias)
    if not compute.any(has_been).as_py():
        return records
    rows = compute.list_parent_indices(headers).filter(has_been)
    return records.filter(compute.invert(compute.is_in(_numbers(len(records)), rows)))


def with_origin(records: pyarrow.RecordBatch, source_alias: str) -> pyarrow.RecordBatch:
    """The records with one header more, behind those that they have."""
    import pyarrow.compute as compute

    count = len(records)
    headers = records.column("headers")
    values, rows = headers.flatten(), compute.list_parent_indices(headers)
    has_origin = rows.filter(compute.equal(values.field("key"), ORIGIN))
    names = compute.if_else(compute.is_in(_numbers(count), has_origin), VIA, ORIGIN)
    aliases = pyarrow.repeat(pyarrow.scalar(source_alias.encode()), count)
    fields = list(values.type)
    added = pyarrow.StructArray.from_arrays(
        [names.cast(fields[0].type), aliases.cast(fields[1].type)], names=[each.name for each in fields]
    )
    # A stable order by row puts each added header behind its row's own.
    all_rows = pyarrow.concat_arrays([rows, _numbers(count)])
    order = compute.sort_indices(all_rows)
    lengths = compute.add(compute.fill_null(compute.list_value_length(headers), 0), 1)
    ends = compute.cumulative_sum(lengths)
    offsets = pyarrow.concat_arrays([_array([0]).cast(pyarrow.int32()), ends.cast(pyarrow.int32())])
    flat = pyarrow.concat_arrays([values.cast(added.type), added]).take(order)
    column = pyarrow.ListArray.from_arrays(offsets, flat)
    return records.set_column(records.schema.get_field_index("headers"), "headers", column)


def sent_by(records: pyarrow.RecordBatch, source_alias: str) -> int:
    """How many of the target's records came from this source."""
    import pyarrow.compute as compute

    return int(compute.sum(_names_cluster(records.column("headers").flatten(), source_alias)).as_py() or 0)


def _names_cluster(headers: pyarrow.StructArray, alias: str) -> pyarrow.BooleanArray:
    """Which headers say that the record has been at this cluster."""
    import pyarrow.compute as compute

    return compute.and_(
        compute.is_in(headers.field("key"), _array([ORIGIN, VIA])),
        compute.fill_null(compute.equal(headers.field("value"), alias.encode()), fill_value=False),
    )


def _array(items: list[str] | list[int]) -> pyarrow.Array:
    return pyarrow.array(items)


def _numbers(count: int) -> pyarrow.Array:
    return pyarrow.array(range(count), pyarrow.int64())
