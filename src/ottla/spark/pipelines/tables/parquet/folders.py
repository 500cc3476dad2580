"""Names of partition folders as Hive has them (`column=value`), and of the files in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from ottla.spark.pipelines.errors import PipelineError

#: The value of null; and of empty text, for which Hive has no name.
NULL_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: What Hive and Spark write as %XX; and NUL, which no path may hold.
_ESCAPED: Final = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
#: Bytes of one name, on the file systems in use.
_NAME_BYTES_AT_MOST: Final = 255
_FILE: Final = re.compile(r"part-([0-9a-f]{8})-(\d{20})-(\d{6})(?:-c(\d{3})-(\d{3}))?\.parquet")


def partition_folder(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of these values below the table; empty without columns. Raises PipelineError for impossible names."""
    return "/".join(_segment(column, value) for column, value in zip(columns, values, strict=True))


def partition_values(folder: str) -> dict[str, str | None]:
    """The values that a folder's name says, by column, in order; a segment that is no `column=value` is left out."""
    pairs = (segment.partition("=") for segment in folder.split("/"))
    return {unquote(name): None if value == NULL_VALUE else unquote(value) for name, equals, value in pairs if equals}


def is_hidden(name: str) -> bool:
    """Whether readers pass over a file or folder of this name."""
    return name.startswith(("_", "."))


def _segment(column: str, value: str | None) -> str:
    segment = f"{_escape(column)}={_escape(value) if value else NULL_VALUE}"
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        raise PipelineError(f"partition column {column}: {value!r} is no valid text, and can name no folder") from None
    if length > _NAME_BYTES_AT_MOST:
        raise PipelineError(
            f"partition column {column}: the value {(value or '')[:40]!r}… is too long for the name of a folder "
            f"({length} of {_NAME_BYTES_AT_MOST} bytes); partition by another column, or by part of it"
        )
    return segment


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


@dataclass(frozen=True, slots=True, order=True)
class DataFileName:
    """A committed file: its commit's version and its number in it, for merged files those of the last one of them.

    Names sort as their rows were committed. `generation` is how often rows in it were merged, `part` the number of the
    file among those made by one merge. So a name never comes twice.
    """

    version: int
    index: int
    generation: int = 0
    part: int = 0
    table: str = ""

    @classmethod
    def parse(cls, name: str) -> DataFileName | None:
        """The name's parts; None for a name that no committed file has."""
        matched = _FILE.fullmatch(name)
        if not matched:
            return None
        table, version, index, generation, part = matched.groups(default="0")
        return cls(int(version), int(index), int(generation), int(part), table)

    def __str__(self) -> str:
        merged = f"-c{self.generation:03d}-{self.part:03d}" if self.generation else ""
        return f"part-{self.table}-{self.version:020d}-{self.index:06d}{merged}.parquet"
