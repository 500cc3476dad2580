"""One line out of what Spark says of a query that failed."""

from __future__ import annotations

import pytest

from ottla.spark.pipelines.running.reasons import short_reason

TRACEBACK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred: An exception was raised:
Traceback (most recent call last):
  File "batches.py", line 9, in __call__
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TRACEBACK
            + "pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] it is negative "
            "SQLSTATE: P0001\n\n== SQL ==\n",
            "[USER_RAISED_EXCEPTION] it is negative",
        ),
        (TRACEBACK + "sqlite3.OperationalError: disk I/O error\n", "OperationalError: disk I/O error"),
        (TRACEBACK + "Caused by: java.io.IOException: No space left\n\tat x.y(z)\n", "IOException: No space left"),
        ("something\n  else", "something else"),
        ("x" * 900, "x" * 500),
    ],
)
def test_the_sentence_that_matters(text: str, expected: str) -> None:
    assert short_reason(text) == expected
