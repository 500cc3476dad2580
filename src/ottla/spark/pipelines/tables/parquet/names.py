"""Names of the files of a table, and which names readers pass over."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_FILE: Final = re.compile(r"part-([0-9a-f]{8})-(\d{20})-(\d{6})(?:-c(\d{3})-(\d{3}))?\.parquet")


def is_hidden(name: str) -> bool:
    """Whether readers pass over a file or folder of this name."""
    return name.startswith(("_", "."))


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
