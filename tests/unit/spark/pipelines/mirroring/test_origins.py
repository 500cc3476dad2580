"""Headers that say where a record has been."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from ottla.records.arrow import arrow_schema
from ottla.spark.pipelines.mirroring.origins import ORIGIN, VIA, sent_by, with_origin, without_returning

pytestmark = pytest.mark.spec("R6")

HEADERS = arrow_schema(include_headers=True).field("headers").type


def records(*headers: list[tuple[str, bytes | None]] | None) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({"offset": list(range(len(headers))), "headers": pyarrow.array(headers, HEADERS)})


def headers_of(batch: pyarrow.RecordBatch) -> list[Any]:
    return [[(each["key"], each["value"]) for each in row] for row in batch.column("headers").to_pylist()]


def test_the_origin_comes_behind_what_a_record_has() -> None:
    batch = records(None, [("a", b"1"), ("a", None)], [], [(ORIGIN, b"north")], [(ORIGIN, b"north"), (VIA, b"south")])
    for first in range(len(batch) + 1):
        expected = [
            [(ORIGIN, b"west")],
            [("a", b"1"), ("a", None), (ORIGIN, b"west")],
            [(ORIGIN, b"west")],
            [(ORIGIN, b"north"), (VIA, b"west")],
            [(ORIGIN, b"north"), (VIA, b"south"), (VIA, b"west")],
        ]
        marked = with_origin(batch.slice(first), "west")
        assert headers_of(marked) == expected[first:]
        assert marked.column("offset").to_pylist() == list(range(first, 5))
        assert marked.schema == batch.schema


def test_what_has_been_at_the_target_is_left_out() -> None:
    batch = records(
        None,
        [(ORIGIN, b"east")],
        [("east", b"east"), (ORIGIN, None)],
        [(ORIGIN, b"north"), (VIA, b"east")],
        [(ORIGIN, b"eastern")],
    )
    assert without_returning(batch, "east").column("offset").to_pylist() == [0, 2, 4]
    assert without_returning(batch.slice(1), "east").column("offset").to_pylist() == [2, 4]
    assert without_returning(batch.slice(1, 1), "east").num_rows == 0
    nothing = records(None, [])
    assert without_returning(nothing, "east") is nothing


def test_what_came_from_a_cluster_is_counted() -> None:
    batch = records(None, [(ORIGIN, b"west")], [(ORIGIN, b"north"), (VIA, b"west")], [(ORIGIN, b"east")])
    assert [sent_by(batch, alias) for alias in ("west", "north", "south")] == [2, 1, 0]
    assert sent_by(batch.slice(0, 0), "west") == 0
