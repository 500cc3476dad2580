"""The errors of the Spark source and sink, which name the cause and the cure, and how they reach the user.

Spark's Python workers send the text of an exception to the JVM, which shows it to the user: by default the traceback
through Spark's and our own code first, and the message last. `one_sentence` leaves only the message.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from ottla.records.extras import MissingExtraError

P = ParamSpec("P")
T = TypeVar("T")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The environment variable that PySpark's workers ask when they report an exception."""
TIMESTAMP_CURE = (
    "name the columns that are needed, without timestamp, in the option columns, or leave the record out by starting "
    "and ending offsets"
)
"""What helps where a record has a timestamp that Spark cannot hold."""


class SparkRefusal(Exception):
    """An error that a user of the Spark source or sink can cure; the message says how."""


class OptionError(SparkRefusal, ValueError):
    """An option that is missing, unknown, contradictory or malformed; the message names it and the cure."""


class DataLossError(SparkRefusal, RuntimeError):
    """Records that the query has not read yet were deleted from the topic."""


class VersionMismatchError(SparkRefusal, RuntimeError):
    """Versions that do not work together; the message names them."""


@contextmanager
def message_only() -> Iterator[None]:
    """Let a refusal, or an error of the client, reach the user of Spark as its message, without a traceback.

    The worker process that reports an exception ends afterwards, so the change to its environment hides no traceback of
    anybody else. Bugs keep theirs.
    """
    from ottla.client.errors import ClientError

    try:
        yield
    except (SparkRefusal, ClientError, MissingExtraError):
        if in_spark_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def one_sentence(function: Callable[P, T]) -> Callable[P, T]:
    """`message_only` around every call of a function."""

    @functools.wraps(function)
    def reporting(*args: P.args, **options: P.kwargs) -> T:
        with message_only():
            return function(*args, **options)

    return reporting


def in_spark_worker() -> bool:
    """Whether this process was started by Spark (`python -m pyspark.daemon` or a worker), not by a user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
