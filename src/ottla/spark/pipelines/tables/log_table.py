"""The common part of tables with a log: each write is made at the version that was read, or not at all.

Files are written into the table's folder, where only the log makes them visible. A commit that seemed to fail may have
been made: before another try the table is read and the batch looked up.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.attempts import COMPACTIONS, Attempt, AttemptFolders
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit
from ottla.spark.pipelines.tables.pipeline_state import EMPTY, PipelineState
from ottla.spark.pipelines.tables.rewriting import Rewritten, alike, bins, is_worth_it, rewrite
from ottla.spark.pipelines.tables.trial import try_writing

#: Times that a commit is tried again because another writer's came between.
MAX_TRIES: Final = 50
#: New files of one commit of compaction; if one of the old files has gone meanwhile, all that work is lost.
BINS_PER_COMMIT: Final = 32
_DRIVER_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file to be replaced: `name` is relative to the table; `entry` is what the format knows of it."""

    name: str
    size_bytes: int
    entry: Any = None


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """Files of one partition, whose values are as the format has them, and as ISO text by column."""

    partition: Any
    files: Sequence[OldFile]
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new file `name` in the place of `files`."""

    partition: Any
    files: tuple[OldFile, ...]
    name: str
    made: Rewritten


class LogTable(ABC):
    """A table and the commits of one pipeline in it. One thread at a time may use it."""

    def __init__(self, sink: TableSinkSettings, pipeline: str, name: str) -> None:
        """`name` says in messages which table. Before use, `_attempts` must be set and `_open` called."""
        self._sink = sink
        self._pipeline = pipeline
        self._name = name
        self._state: PipelineState = EMPTY
        #: Whether a write may have been made that was not looked up.
        self._is_unsure = False
        self._attempts: AttemptFolders

    def _open(self) -> None:
        self._read()
        self._driver = Driver(self._state.last_query, secrets.randbits(_DRIVER_BITS))

    @property
    @abstractmethod
    def _version(self) -> Hashable | None:
        """A version that each commit changes; None without a table."""

    @abstractmethod
    def _read(self) -> None:
        """Read the newest version, and the pipeline's state in it. Raises PipelineError."""

    @abstractmethod
    def _write(self, batch: BatchCommit, attempt: Attempt) -> None:
        """Commit the batch to the version that was read, or change the schema only; raises anything."""

    @abstractmethod
    def _write_recovery(self) -> None:
        """Commit that this driver recovered, to the version that was read; raises anything."""

    @abstractmethod
    def _write_replacements(self, made: Sequence[Replacement], number: int) -> None:
        """Commit these, and the number of compactions made, to the version that was read; raises anything."""

    @abstractmethod
    def _own_files(self) -> Iterator[PartitionFiles]:
        """Yield this pipeline's files in the version that was read, oldest first; none where they cannot be replaced.

        Files of other writers are left to them.
        """

    @abstractmethod
    def _live_names(self) -> set[str]:
        """The table's files in the version that was read, as `OldFile.name`."""

    def last_commit(self) -> LastCommit | None:
        """The newest batch of this pipeline; None where there is none. Raises PipelineError."""
        self._read()
        return self._state.last_commit

    def try_writing(self) -> None:
        """Create and remove a small file in the table's folder. Raises PipelineError."""
        try_writing(self._attempts.filesystem, self._attempts.path("").rstrip("/"), self._name)

    def commit(self, batch: BatchCommit) -> bool:
        """Make the batch visible, with its end offsets, also if it has no files; see `BatchTable.commit`."""
        attempt = self._attempts.newest(batch.query_id, batch.batch_id)
        there = False

        def is_settled() -> bool:
            nonlocal there
            if self._is_ours(batch, attempt):
                return True
            there = is_committed(batch, self._driver, self._state, self._name)
            return there

        try:
            self._until(is_settled, lambda: self._write(batch, attempt), f"commit batch {batch.batch_id} to")
        except SupersededError:
            self._attempts.abandon(batch.query_id, batch.batch_id)
            raise
        if there:
            self._attempts.abandon(batch.query_id, batch.batch_id)
            return False
        files = {f"{attempt.folder}/{each.path}" for each in batch.files}
        self._attempts.committed(batch.query_id, batch.batch_id, files)
        return True

    def end_if_superseded(self) -> None:
        """See `BatchTable.end_if_superseded`."""
        self._read()
        if self._driver.is_shut_out(self._state):
            raise self._superseded()

    def _superseded(self) -> SupersededError:
        return SupersededError(f"another driver of this pipeline has taken over {self._name}; this driver ends")

    def recover(self) -> None:
        """Shut older drivers of this pipeline out, and remove what they wrote and did not commit."""
        number = self._driver.number
        self._until(
            lambda: self._version is None or self._state.driver == number,
            self._write_recovery,
            "recover",
        )
        self._driver.recovered(self._state)
        crash_points.reach(crash_points.RECOVERING)
        if self._version is None:
            return  # An older driver may still make the table, with what it wrote.
        lasts = {query: each.batch_id for query, each in self._state.queries.items()}
        try:
            self._attempts.remove_never_committed({**lasts, COMPACTIONS: self._state.compactions})
        except OSError as error:
            raise self._failure("remove old files from", error) from error

    def compact(self, watermark_ms: int | None) -> int:
        """Replace small files of partitions that the watermark has passed, of others if they are many.

        Only files of this pipeline are replaced. Files that were replaced stay for readers of older versions.
        """
        target_bytes = self._sink.compact_to_bytes
        self._read()
        if target_bytes is None or self._version is None:
            return 0
        replaced = 0
        small = list(self._small_files(watermark_ms, target_bytes))
        for start in range(0, len(small), BINS_PER_COMMIT):
            try:
                replaced += self._replace(small[start : start + BINS_PER_COMMIT])
            except OSError as error:
                raise self._failure("compact", error) from error
        return replaced

    def _small_files(self, watermark_ms: int | None, target_bytes: int) -> Iterator[PartitionFiles]:
        """Yield files that are worth compacting, those that become one together."""
        for found in self._own_files():
            sizes = [each.size_bytes for each in found.files]
            if is_worth_it(found.texts, sizes, watermark_ms, target_bytes):
                for numbers in bins(sizes, target_bytes):
                    yield replace(found, files=[found.files[number] for number in numbers])

    def _replace(self, small: Sequence[PartitionFiles]) -> int:
        """Make one file of those of each bin, if all are there still; gives how many files were replaced."""
        number = self._state.compactions + 1
        attempt = self._attempts.new(COMPACTIONS, number)
        made: list[Replacement] = []
        for each in small:
            for files in self._alike(each.files):
                name = f"{attempt.folder}/part-{len(made)}.parquet"
                paths = [self._attempts.path(file.name) for file in files]
                target = self._attempts.new_file(name)
                rewritten = rewrite(self._attempts.filesystem, paths, target, self._sink.compression)
                made.append(Replacement(each.partition, files, name, rewritten))
                crash_points.reach(crash_points.COMPACTING)
        if not made or not self._commit_replacements(made, number):
            return 0
        return sum(len(each.files) for each in made)

    def _alike(self, files: Sequence[OldFile]) -> Iterator[tuple[OldFile, ...]]:
        """Yield groups of files that have one schema, two at least."""
        by_path = {self._attempts.path(each.name): each for each in files}
        for paths in alike(self._attempts.filesystem, list(by_path)):
            if len(paths) > 1:
                yield tuple(by_path[path] for path in paths)

    def _commit_replacements(self, made: Sequence[Replacement], number: int) -> bool:
        new = {each.name for each in made}
        old = {file.name for each in made for file in each.files}
        is_made = False

        def is_settled() -> bool:
            nonlocal is_made
            live = self._live_names()
            is_made = new <= live
            if is_made:
                return True
            if self._driver.is_shut_out(self._state):
                raise self._superseded()
            return self._state.compactions >= number or not old <= live

        try:
            self._until(is_settled, lambda: self._write_replacements(made, number), "replace small files of")
        finally:
            if is_made:
                self._attempts.committed(COMPACTIONS, number, new)
            elif not self._is_unsure:
                self._attempts.abandon(COMPACTIONS, number)
        return is_made

    def _until(self, is_settled: Callable[[], bool], write: Callable[[], None], doing: str) -> None:
        """Read the table and write to it at the version that was read, until what is there settles it.

        A write that failed may have been made, and so nothing is tried before the table was read again.
        """
        failed: Exception | None = None
        version = None
        for _ in range(MAX_TRIES):
            self._read()
            self._is_unsure = False
            if is_settled():
                return
            if failed is not None and self._version == version:
                raise self._failure(doing, failed) from failed
            version = self._version
            try:
                self._is_unsure = True
                write()
            except PipelineError:
                self._is_unsure = False
                raise
            except Exception as error:
                failed = error
        raise PipelineError(
            f"cannot {doing} {self._name}: other writers committed before each of {MAX_TRIES} tries; let "
            "fewer write to it, or give this pipeline a longer trigger interval"
        )

    @property
    def _recovered_driver(self) -> int | None:
        """The driver that a commit must name, so that older ones end: this one, once it has recovered."""
        return self._driver.number if self._driver.has_recovered else self._state.driver

    def _is_ours(self, batch: BatchCommit, attempt: Attempt) -> bool:
        """Whether this very attempt is in the table; a commit that seemed to fail may have been made."""
        query = self._state.queries.get(batch.query_id)
        return query is not None and (query.batch_id, query.attempt) == (batch.batch_id, attempt.number)

    def _failure(self, doing: str, error: Exception) -> PipelineError:
        if isinstance(error, PipelineError):
            return error
        text = str(error).split("\n", 1)[0]
        return PipelineError(f"cannot {doing} {self._name}: {text}")


class Driver:
    """One driver, by a number that it chose: once a later one has recovered, the table refuses this one's batches."""

    def __init__(self, last_query: str | None, number: int) -> None:
        """`last_query` is the pipeline's newest query when the table was opened."""
        self.number = number
        self.last_query = last_query
        self.has_recovered = False
        self._expected: set[int | None] = set()

    def recovered(self, state: PipelineState) -> None:
        """From here on, drivers that recover later shut this one out."""
        self.has_recovered = True
        self._expected = {self.number, state.driver}
        self.last_query = state.last_query

    def is_shut_out(self, state: PipelineState) -> bool:
        """Whether a later driver has recovered."""
        return self.has_recovered and state.driver not in self._expected


def is_committed(batch: BatchCommit, driver: Driver, state: PipelineState, where: str) -> bool:
    """Whether the batch is there already. Raises SupersededError if it is another driver's turn."""
    cure = "this driver ends; stop one of the two"
    if driver.is_shut_out(state):
        raise SupersededError(f"another driver of this pipeline has taken over {where}; {cure}")
    known = state.queries.get(batch.query_id)
    if state.last_query not in (driver.last_query, batch.query_id, None):
        raise SupersededError(
            f"query {state.last_query} of this pipeline commits to {where} too, and began after query "
            f"{batch.query_id}; {cure}"
        )
    if known is None or known.batch_id < batch.batch_id:
        return False
    if known.batch_id > batch.batch_id:
        raise SupersededError(
            f"{where} has batch {known.batch_id} of this pipeline, and batch {batch.batch_id} came after it; {cure}"
        )
    return True
