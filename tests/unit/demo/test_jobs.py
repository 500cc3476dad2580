"""Spark's words, shortened."""

from __future__ import annotations

from ottla.demo.jobs import _shortened

SPARK = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/sink.py", line 86, in write
    return write_rows(iterator, self._options)
ValueError: first

During handling of the above exception, another exception occurred:

ottla.client.errors.DeliveryError: 402 records were not acknowledged: the broker is away
\tat org.apache.spark.sql.Something(Some.scala:1)
Caused by: more
"""


def test_the_first_line_and_the_last_error_remain() -> None:
    assert _shortened(SPARK) == (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last): "
        "ottla.client.errors.DeliveryError: 402 records were not acknowledged: the broker is away"
    )
    assert _shortened("") == "no reason given"
    assert _shortened("ValueError: one") == "ValueError: one"
