"""Names of partition folders as Hive has them: `column=value`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from ottla.spark.pipelines.errors import PipelineError

#: The value of null; and of empty text, for which Hive has no name.
NULL_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: What Hive and Spark write as %XX; and NUL, which no path may hold.
_ESCAPED: Final = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
#: Bytes of one name, on the file systems in use.
_NAME_BYTES_AT_MOST: Final = 255


def partition_folder(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of these values below the table; empty without columns. Raises PipelineError for impossible names."""
    return "/".join(_segment(column, value) for column, value in zip(columns, values, strict=True))


def partition_values(folder: str) -> dict[str, str | None]:
    """The values that a folder's name says, by column, in order; a segment that is no `column=value` is left out."""
    pairs = (segment.partition("=") for segment in folder.split("/"))
    return {unquote(name): None if value == NULL_VALUE else unquote(value) for name, equals, value in pairs if equals}


def _segment(column: str, value: str | None) -> str:
    segment = f"{_escape(column)}={_escape(value) if value else NULL_VALUE}"
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        raise PipelineError(f"partition column {column}: {value!r} is not valid text, and can name no folder") from None
    if length > _NAME_BYTES_AT_MOST:
        raise PipelineError(
            f"partition column {column}: the value {(value or '')[:40]!r}… is too long for the name of a folder "
            f"({length} of {_NAME_BYTES_AT_MOST} bytes); partition by another column, or by part of it"
        )
    return segment


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
