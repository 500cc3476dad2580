"""What ends a query, out of what Spark reports."""

from __future__ import annotations

from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.queries.ending import why_it_ended

REPORTED = """[STREAM_FAILED] Query [id = d9] terminated with exception: An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "/x/sinks/tables.py", line 20, in take
    raise SupersededError("batch 3 is there; run one of them")
ottla.spark.pipelines.errors.{name}: batch 3 is there; run one of them
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
"""


def test_a_sentence_of_ours_is_found_with_its_class() -> None:
    found = why_it_ended(RuntimeError(REPORTED.format(name="SupersededError")))
    assert type(found) is SupersededError
    assert str(found) == "batch 3 is there; run one of them"


def test_a_refusal_of_the_source_is_one_too() -> None:
    found = why_it_ended(RuntimeError("x ottla.spark.errors.DataLossError: records were deleted SQLSTATE: XXKST"))
    assert type(found) is PipelineError
    assert str(found) == "records were deleted"


def test_anything_else_is_not_ours() -> None:
    assert why_it_ended(RuntimeError("java.lang.OutOfMemoryError: heap")) is None
