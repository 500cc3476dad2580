"""Manifests: what each commit put into a table, and where its pipeline stands; the newest one alone says it all.

They are numbered without gaps. The first driver to create the next number has it, so all drivers see one order. A
driver that starts takes a number, too, without files: commits of earlier drivers fail from then on.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.contract import EndOffsets, LastCommit
from ottla.spark.pipelines.tables.parquet.place import TablePlace

COMMITS: Final = "_ottla/commits"
#: Manifests that are kept. Older ones say nothing that the newest one does not.
MANIFESTS_KEPT: Final = 100
_FORMAT: Final = 1
_NAME: Final = re.compile(r"(\d{20})\.json")
#: Attempts to read the newest manifest: one fails only if `MANIFESTS_KEPT` commits were made in between.
_READS_AT_MOST: Final = 10


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A committed file: where it was staged and where it belongs, relative to the table."""

    staged: str
    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One commit (`attempt` is its folder's name), or the start of a driver (`attempt` is None).

    `last` is the newest batch up to here, `batches` the last one of each query, `schema` that of all files.
    """

    version: int
    driver: str
    attempt: str | None = None
    last: LastCommit | None = None
    watermark_ms: int | None = None
    batches: Mapping[str, int] = field(default_factory=dict)
    schema: pyarrow.Schema | None = None
    files: tuple[PlacedFile, ...] = ()

    def to_bytes(self) -> bytes:
        """JSON, for people too."""
        last = self.last
        document: dict[str, Any] = {
            "format": _FORMAT,
            "version": self.version,
            "driver": self.driver,
            "attempt": self.attempt,
            "query_id": last.query_id if last else None,
            "batch_id": last.batch_id if last else None,
            "end_offsets": last.end_offsets if last else None,
            "watermark_ms": self.watermark_ms,
            "batches": dict(self.batches),
            "schema": None if self.schema is None else base64.b64encode(self.schema.serialize()).decode(),
            "files": [[each.staged, each.path, each.rows, each.size_bytes] for each in self.files],
        }
        return json.dumps(document, ensure_ascii=True, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Raises ValueError, KeyError or TypeError for what is not a manifest."""
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']}")
        last = None
        if document["query_id"] is not None:
            last = LastCommit(document["query_id"], document["batch_id"], _offsets(document["end_offsets"]))
        encoded = document["schema"]
        schema = None
        if encoded is not None:
            schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(encoded, validate=True)))
        return cls(
            version=document["version"],
            driver=document["driver"],
            attempt=document["attempt"],
            last=last,
            watermark_ms=document["watermark_ms"],
            batches={str(query): int(batch) for query, batch in document["batches"].items()},
            schema=schema,
            files=tuple(
                PlacedFile(str(staged), str(path), int(rows), int(size))
                for staged, path, rows, size in document["files"]
            ),
        )


class CommitLog:
    """The manifests of one table."""

    def __init__(self, place: TablePlace) -> None:
        self._place = place

    def newest(self) -> Manifest | None:
        """The newest manifest; None before the first. Raises PipelineError for a damaged one."""
        for _ in range(_READS_AT_MOST):
            versions = self.versions()
            if not versions:
                return None
            data = self._place.read(_path(versions[-1]))
            if data is not None:
                return self._decoded(versions[-1], data)
        raise PipelineError(f"{self._place}: its newest manifest is removed each time before it can be read; try again")

    def versions(self) -> list[int]:
        """The numbers of the manifests that are kept, in order."""
        matches = (_NAME.fullmatch(each.base_name) for each in self._place.entries(COMMITS))
        return sorted(int(matched[1]) for matched in matches if matched)

    def append(self, manifest: Manifest) -> bool:
        """Create the manifest of the next number; False if another driver has made one of it, or a later one.

        Manifests of long ago are gone, so their numbers can be had again by a driver that slept: therefore the look at
        the newest one.
        """
        try:
            created = self._place.create(_path(manifest.version), manifest.to_bytes())
        except FileNotFoundError:  # another driver's start has removed what was half written
            if self.versions()[-1:] < [manifest.version]:
                raise
            return False
        return created and self.versions()[-1] == manifest.version

    def remove_old(self, newest: int) -> None:
        """Remove the manifest that the newest one pushes out."""
        if newest >= MANIFESTS_KEPT:
            self._place.delete_file(_path(newest - MANIFESTS_KEPT))

    def half_written(self) -> list[str]:
        """The names of what is being created, or never was."""
        return [each.base_name for each in self._place.entries(COMMITS) if each.base_name.startswith(".")]

    def clean(self, newest: int, half_written: Iterable[str]) -> None:
        """Remove all old manifests, and what never was created."""
        old = [each for each in self.versions() if each <= newest - MANIFESTS_KEPT]
        for name in (*map(_path, old), *(f"{COMMITS}/{each}" for each in half_written)):
            self._place.delete_file(name)

    def _decoded(self, version: int, data: bytes) -> Manifest:
        try:
            manifest = Manifest.from_bytes(data)
            if manifest.version != version:
                raise ValueError(f"it says version {manifest.version}")
        except (ValueError, KeyError, TypeError, AttributeError, OSError, pyarrow.ArrowException) as error:
            raise PipelineError(
                f"{self._place}/{_path(version)} is damaged ({type(error).__name__}: {error}); restore it from a copy, "
                "or continue in another folder"
            ) from error
        return manifest


def _path(version: int) -> str:
    return f"{COMMITS}/{version:020d}.json"


def _offsets(document: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, EndOffsets]:
    return {
        source: {topic: {int(number): offset for number, offset in ends.items()} for topic, ends in topics.items()}
        for source, topics in document.items()
    }
