"""Whose table a folder is: `_ottla/table.json`, created once."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Final

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.parquet.place import HIDDEN, TablePlace

_PATH: Final = f"{HIDDEN}/table.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """`table` is in the names of all files, so that those of another table are known."""

    table: str
    pipeline: str
    partition_by: tuple[str, ...]


def known_identity(place: TablePlace) -> TableIdentity | None:
    """Whose table it is; None where it has no owner yet. Raises PipelineError where it is damaged."""
    data = place.read(_PATH)
    if data is None:
        return None
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']}")
        return TableIdentity(document["table"], document["pipeline"], tuple(document["partition_by"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{place}/{_PATH} is damaged ({type(error).__name__}: {error}); restore it from a copy, "
            "or continue in another folder"
        ) from error


def claimed_identity(place: TablePlace, pipeline: str, partition_by: tuple[str, ...]) -> TableIdentity:
    """The identity, made if there is none. Raises PipelineError if it is another's, or partitioned otherwise."""
    found = known_identity(place)
    if found is None:
        place.refuse_other_tables()
        place.make_folder(HIDDEN)
        found = TableIdentity(secrets.token_hex(4), pipeline, partition_by)
        document = {
            "format": _FORMAT,
            "table": found.table,
            "pipeline": pipeline,
            "partition_by": list(partition_by),
            "token": secrets.token_hex(8),
        }
        if not place.create(_PATH, json.dumps(document, indent=1).encode()):
            found = known_identity(place) or found
    checked_identity(place, found, pipeline, partition_by)
    return found


def checked_identity(place: TablePlace, found: TableIdentity, pipeline: str, partition_by: tuple[str, ...]) -> None:
    """Raise PipelineError if the table is another pipeline's, or partitioned otherwise."""
    if found.pipeline != pipeline:
        raise PipelineError(
            f"{place} is the table of the pipeline {found.pipeline!r}, and {pipeline!r} cannot write there too; "
            "choose another folder"
        )
    if found.partition_by != partition_by:
        was, is_now = (", ".join(each) or "nothing" for each in (found.partition_by, partition_by))
        raise PipelineError(
            f"{place} is partitioned by {was}, not by {is_now}; set partition_by as it was, or choose another folder"
        )
