"""Spark's checkpoint of a query, read from outside: whose it is, and what each batch covers. And notes beside it.

`metadata` has the query's id; `offsets/N` is written before batch N runs, `commits/N` after it. Files are read through
the file system of the checkpoint's URL, so that this works without a JVM, on the driver and in Spark Connect's workers.
Source: Spark's `OffsetSeqLog` and `CommitLog`, version 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.fs

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.tables.contract import EndOffsets

_VERSION = "v1"
_NO_OFFSETS = "-"
#: A folder of ours in the checkpoint, for what Spark's own log has no place for.
_NOTES = "ottla"


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One batch as Spark planned it: where it ends, for each source of the query in Spark's order, and the watermark.

    `sources` has None for a source that had nothing yet; `watermark_ms` is None where the query has none.
    """

    sources: tuple[EndOffsets | None, ...]
    watermark_ms: int | None


class QueryCheckpoint:
    """The checkpoint at a URL or path; it need not exist yet."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query_id(self) -> str | None:
        """The id of the query that the checkpoint belongs to; None where there is none. Raises PipelineError."""
        text = self._text("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._unreadable("metadata") from None

    def batch(self, batch_id: int) -> LoggedBatch | None:
        """Read Spark's plan of a batch; None where the log has no such batch. Raises PipelineError."""
        text = self._text(f"offsets/{batch_id}")
        if text is None:
            return None
        lines = text.splitlines()
        if len(lines) < 2 or lines[0].strip() != _VERSION:
            raise self._unreadable(f"offsets/{batch_id}")
        try:
            about = json.loads(lines[1] or "{}")
            sources = tuple(None if line == _NO_OFFSETS else _end_offsets(json.loads(line)) for line in lines[2:])
        except (ValueError, TypeError, AttributeError):
            raise self._unreadable(f"offsets/{batch_id}") from None
        return LoggedBatch(sources, about.get("batchWatermarkMs") or None)

    def newest_planned(self) -> int | None:
        """The newest batch that was planned. Raises PipelineError."""
        return self._newest("offsets")

    def newest_finished(self) -> int | None:
        """The newest batch that Spark counts as done. Raises PipelineError."""
        return self._newest("commits")

    def note(self, name: str) -> dict[str, Any] | None:
        """Read the last note of this name. Raises PipelineError."""
        text = self._text(f"{_NOTES}/{name}.json")
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            raise self._unreadable(f"{_NOTES}/{name}.json") from None
        return found if isinstance(found, dict) else None

    def write_note(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep `content` in the checkpoint, in one step, in place of what had this name. Raises PipelineError."""
        filesystem, root = self._open()
        path = f"{root}/{_NOTES}/{name}.json"
        try:
            filesystem.create_dir(f"{root}/{_NOTES}", recursive=True)
            with filesystem.open_output_stream(f"{path}.new") as stream:
                stream.write(json.dumps(content).encode())
            filesystem.move(f"{path}.new", path)
        except OSError as problem:
            raise PipelineError(f"cannot write to the checkpoint {self.url}: {problem}; check the path") from None

    def _open(self) -> tuple[pyarrow.fs.FileSystem, str]:
        from ottla.spark.pipelines.tables.filesystems import open_filesystem

        filesystem, root = open_filesystem(self.url, {})
        return filesystem, root.rstrip("/")

    def _text(self, name: str) -> str | None:
        filesystem, root = self._open()
        try:
            with filesystem.open_input_stream(f"{root}/{name}") as stream:
                found: bytes = stream.read()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise PipelineError(f"cannot read {name} of the checkpoint {self.url}: {problem}; check the path") from None
        return found.decode()

    def _newest(self, folder: str) -> int | None:
        filesystem, root = self._open()
        wanted = pyarrow.fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
        try:
            numbers = [int(each.base_name) for each in filesystem.get_file_info(wanted) if each.base_name.isdigit()]
        except OSError as problem:
            raise PipelineError(f"cannot list the checkpoint {self.url}: {problem}; check the path") from None
        return max(numbers, default=None)

    def _unreadable(self, name: str) -> PipelineError:
        return PipelineError(
            f"{name} of the checkpoint {self.url} cannot be read: it is damaged, or of a Spark that is not known; "
            "start with another checkpoint"
        )


def _end_offsets(document: Mapping[str, Mapping[str, int]]) -> EndOffsets:
    return {
        topic: {int(number): int(end) for number, end in partitions.items()} for topic, partitions in document.items()
    }


def offsets_as_json(offsets: EndOffsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark and its options write them, topics and partitions in order."""
    return {
        topic: {str(number): offsets[topic][number] for number in sorted(offsets[topic])} for topic in sorted(offsets)
    }


def offsets_of_json(document: object) -> EndOffsets:
    """The reverse. Raises PipelineError."""
    try:
        return _end_offsets(document)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):
        raise PipelineError(
            f"{document!r} is not offsets by topic and partition; start with another checkpoint"
        ) from None
