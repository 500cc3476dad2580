"""Why a query failed, in one line out of all that Spark says."""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 500
#: Spark's own sentences, `[CLASS] text`, but for those that only wrap another one.
_CONDITION: Final = re.compile(
    r"\[(?!STREAM_FAILED|FOREACH_BATCH|FOREACH_USER)[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?\] [^\n]+"
)
#: The last line of a traceback of Python's, or of Java's causes.
_ERROR: Final = re.compile(r"^(?:Caused by: )?(?:[\w.$]+[.$])?(\w*(?:Error|Exception|Refusal): [^\n]+)$", re.MULTILINE)


#: Packages whose errors are Spark's answers.
_OF_SPARK: Final = ("pyspark", "py4j", "grpc")


def is_of_spark(problem: Exception) -> bool:
    """Whether an error is one of Spark's, by its package: a client of Spark Connect may lack py4j."""
    return type(problem).__module__.partition(".")[0] in _OF_SPARK


def short_reason(text: str) -> str:
    """The sentence that matters in an exception's text: Spark's own, else the last error named, else its start."""
    found = _CONDITION.findall(text) or _ERROR.findall(text)
    reason = found[-1] if found else text
    return " ".join(reason.split(" SQLSTATE:")[0].split())[:_LONGEST]
