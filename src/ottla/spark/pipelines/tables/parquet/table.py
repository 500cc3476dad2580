"""The table of plain Parquet files as pipelines know it (`BatchTable`)."""

from __future__ import annotations

import logging
import re
import secrets
from typing import Final

import pyarrow

from ottla.spark.pipelines import crash_points
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError, SupersededError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchCommit, LastCommit, Staging
from ottla.spark.pipelines.tables.filesystems import below
from ottla.spark.pipelines.tables.parquet.compaction import FolderCompactor
from ottla.spark.pipelines.tables.parquet.identity import (
    TableIdentity,
    checked_identity,
    claimed_identity,
    known_identity,
)
from ottla.spark.pipelines.tables.parquet.manifests import COMMITS, CommitLog, Manifest, PlacedFile
from ottla.spark.pipelines.tables.parquet.moving import flush_files, move_into_place
from ottla.spark.pipelines.tables.parquet.names import DataFileName, is_hidden
from ottla.spark.pipelines.tables.parquet.place import FOLDERS_AT_MOST, STAGING, TablePlace
from ottla.spark.pipelines.tables.partition_folders import partition_folder
from ottla.spark.pipelines.tables.trial import try_writing

_log = logging.getLogger(__name__)

#: Attempts of a start to take over from a driver at work.
_TAKEOVERS_AT_MOST: Final = 20
#: Queries whose last batch is remembered; a new one comes with each new checkpoint.
_QUERIES_KEPT: Final = 100


class ParquetBatchTable:
    """Files are staged in `_ottla/`, named by a manifest, then moved into their partition folders.

    The manifest is created exclusively: that is the commit. Files are moved after it, so readers that list files see
    none of a batch that is not committed, none twice, and some of a batch for the moment that the moves take.
    """

    def __init__(self, sink: TableSinkSettings, pipeline: str) -> None:
        """Raises PipelineError if the settings name no folder on a file system that can be used."""
        if sink.path is None:
            raise PipelineSettingsError("a Parquet table needs the path of its folder")
        hidden = [column for column in sink.partition_by if is_hidden(column)]
        if hidden:
            raise PipelineSettingsError(
                f"partition_by {', '.join(hidden)}: readers pass over folders whose names begin with _ or . ; rename it"
            )
        self._sink = sink
        self._pipeline = pipeline
        self._place = TablePlace(sink.path, sink.storage_options)
        self._commits = CommitLog(self._place)
        self._driver = secrets.token_hex(8)
        self._identity: TableIdentity | None = None
        #: The newest manifest as far as this driver knows: what it commits comes after it.
        self._newest: Manifest | None = None
        self._is_loaded = False
        #: The manifest whose files are known to be in place.
        self._placed = -1
        #: The newest attempt at a batch, as (query, batch, folder).
        self._attempt: tuple[str, int, str] | None = None
        #: Its manifest was sent; an error says nothing about whether it is there.
        self._may_be_committed = False
        self._compactor = FolderCompactor(self._place, sink, self._is_superseded)

    def last_commit(self) -> LastCommit | None:
        """See `BatchTable.last_commit`."""
        with self._place.errors():
            found = known_identity(self._place)
            if found is None:
                return None
            checked_identity(self._place, found, self._pipeline, self._sink.partition_by)
            newest = self._commits.newest()
            return newest.last if newest else None

    def try_writing(self) -> None:
        """See `BatchTable.try_writing`."""
        try_writing(self._place.filesystem, self._place.root, str(self._place))

    def staging(self, query_id: str, batch_id: int) -> Staging:
        """See `BatchTable.staging`."""
        query = re.sub(r"[^A-Za-z0-9-]", "-", query_id)[:64]
        name = f"{query}-{batch_id}-{secrets.token_hex(8)}"
        folder = f"{STAGING}/{name}"
        with self._place.errors():
            self._claim()
            # What this driver knows of the table is older than its folder: see `recover`.
            self._loaded()
            if not self._may_be_committed:
                self._drop_attempt()
            self._place.make_folder(folder)
        self._attempt = (query_id, batch_id, name)
        self._may_be_committed = False
        return Staging(
            below(self._place.url, folder), self._sink.storage_options, self._sink.partition_by, self._sink.compression
        )

    def commit(self, batch: BatchCommit) -> bool:
        """See `BatchTable.commit`."""
        with self._place.errors():
            identity = self._claim()
            newest = self._loaded()
            if newest is not None and newest.last is not None:
                if (newest.last.query_id, newest.last.batch_id) == (batch.query_id, batch.batch_id):
                    self._put_into_place(newest)
                    self._drop_attempt()
                    return False
                if newest.batches.get(batch.query_id, -1) >= batch.batch_id:
                    raise self._superseded(batch)
            manifest = self._manifest(batch, identity, newest)
            self._check_staged(batch, manifest)
            self._flush_staged(batch, manifest)
            if newest is not None:
                self._put_into_place(newest)
            self._may_be_committed = True
            if not self._commits.append(manifest):
                return self._own_commit_or_superseded(batch)
            self._newest = manifest
            self._put_into_place(manifest)
            self._drop_attempt()
            self._commits.remove_old(manifest.version)
            self._compactor.note({file.path.rpartition("/")[0] for file in manifest.files})
            return True

    def recover(self) -> None:
        """See `BatchTable.recover`. From here on no driver that was started before can commit."""
        with self._place.errors():
            identity = self._claim()
            if not self._place.creates_exclusively():
                _log.warning(
                    "%s: this file system cannot create a file exclusively; see to it that one driver runs at a time",
                    self._place,
                )
            # Listed before: an attempt that is there now belongs to a driver whose commits fail from then on. Those
            # that come later may be of one that took over from this one.
            attempts = [each.base_name for each in self._place.entries(STAGING)]
            half_written = self._commits.half_written()
            self._take_over()
            crash_points.reach(crash_points.RECOVERING)
            self._end_if_overtaken()
            for name in attempts:
                self._place.delete_folder(f"{STAGING}/{name}")
            self._attempt = None
            self._compactor.clean()
            assert self._newest is not None
            self._commits.clean(self._newest.version, half_written)
            self._refuse_foreign_files(identity, self._newest.version)

    def compact(self, watermark_ms: int | None) -> int:
        """See `BatchTable.compact`; on local file systems of Linux, 0 elsewhere."""
        if watermark_ms is None:
            return 0
        with self._place.errors():
            newest = self._loaded()
            # A driver that took over before this one's own manifest cannot commit; one that does so after it removes
            # what is being built. Neither holds where this driver has made no manifest yet.
            if newest is None or newest.driver != self._driver:
                return 0
            return self._compactor.compact(watermark_ms)

    def _claim(self) -> TableIdentity:
        if self._identity is None:
            self._identity = claimed_identity(self._place, self._pipeline, self._sink.partition_by)
            self._place.make_folder(COMMITS)
            self._place.flush_folders({COMMITS})
        return self._identity

    def _loaded(self) -> Manifest | None:
        """The newest manifest at the start of this driver, or of its own since."""
        if not self._is_loaded:
            self._newest = self._commits.newest()
            self._is_loaded = True
            if self._newest is not None:
                self._put_into_place(self._newest)
        return self._newest

    def _take_over(self) -> None:
        for _ in range(_TAKEOVERS_AT_MOST):
            newest = self._commits.newest()
            if newest is None:
                mine = Manifest(version=0, driver=self._driver)
            else:
                self._put_into_place(newest)
                mine = Manifest(
                    version=newest.version + 1,
                    driver=self._driver,
                    last=newest.last,
                    watermark_ms=newest.watermark_ms,
                    batches=newest.batches,
                    schema=newest.schema,
                )
            if self._commits.append(mine):
                self._newest = mine
                self._is_loaded = True
                self._placed = mine.version
                return
        raise PipelineError(f"{self._place}: another driver of {self._pipeline!r} is at work there; stop it first")

    def _manifest(self, batch: BatchCommit, identity: TableIdentity, newest: Manifest | None) -> Manifest:
        if self._attempt is None or self._attempt[:2] != (batch.query_id, batch.batch_id):
            raise PipelineError(
                f"{self._place}: batch {batch.batch_id} has no staging folder; this is a defect of ottla"
            )
        name = self._attempt[2]
        version = newest.version + 1 if newest else 0
        files = []
        for index, file in enumerate(batch.files):
            if any(part in ("", ".", "..") for part in file.path.split("/")):
                raise PipelineError(
                    f"{self._place}: {file.path!r} is not a path in a staging folder; this is a defect of ottla"
                )
            folder = partition_folder(self._sink.partition_by, file.partition)
            path = f"{folder}/{DataFileName(version, index, table=identity.table)}".lstrip("/")
            files.append(PlacedFile(f"{STAGING}/{name}/{file.path}", path, file.rows, file.size_bytes))
        batches = dict(newest.batches) if newest else {}
        batches.pop(batch.query_id, None)
        batches[batch.query_id] = batch.batch_id
        return Manifest(
            version=version,
            driver=self._driver,
            attempt=name,
            last=LastCommit(batch.query_id, batch.batch_id, batch.end_offsets),
            watermark_ms=batch.watermark_ms,
            batches=dict(list(batches.items())[-_QUERIES_KEPT:]),
            schema=self._grown_schema(newest.schema if newest else None, batch.schema),
            files=tuple(files),
        )

    def _grown_schema(self, old: pyarrow.Schema | None, new: pyarrow.Schema) -> pyarrow.Schema:
        """The schema of all files. Raises PipelineError if the table cannot take the new one."""
        lacking = [column for column in self._sink.partition_by if column not in new.names]
        if lacking:
            raise PipelineError(f"partition_by names {', '.join(lacking)}; the rows have {', '.join(new.names)}")
        if old is None:
            return new.remove_metadata()
        try:
            return pyarrow.unify_schemas([old, new.remove_metadata()])
        except (pyarrow.ArrowTypeError, pyarrow.ArrowInvalid):
            for field in new:
                if field.name in old.names and old.field(field.name).type != field.type:
                    raise PipelineError(
                        f"{self._place}: column {field.name} was {old.field(field.name).type} and is {field.type} now; "
                        "cast it in the SQL, or choose another folder"
                    ) from None
            raise

    def _check_staged(self, batch: BatchCommit, manifest: Manifest) -> None:
        if not manifest.files:
            return
        folder = f"{STAGING}/{manifest.attempt}"
        there = self._place.sizes(folder)
        expected = {file.path: file.size_bytes for file in batch.files}
        if len(expected) != len(manifest.files):
            raise PipelineError(f"{self._place}: two files of batch {batch.batch_id} have one path; a defect of ottla")
        wrong = [path for path, size in expected.items() if there.get(path) != size]
        if not wrong:
            return
        if self._is_superseded():
            raise self._superseded(batch)
        raise PipelineError(
            f"{self._place}: {len(wrong)} of {len(expected)} files of batch {batch.batch_id} are not as they were "
            f"written ({wrong[0]}: {there.get(wrong[0], 'no')} instead of {expected[wrong[0]]} bytes); start it again"
        )

    def _flush_staged(self, batch: BatchCommit, manifest: Manifest) -> None:
        if not manifest.files:
            return
        try:
            flush_files(self._place, [file.staged for file in manifest.files])
        except FileNotFoundError as error:
            if self._is_superseded():
                raise self._superseded(batch) from error
            raise
        self._place.flush_folders({file.staged.rpartition("/")[0] for file in manifest.files})

    def _own_commit_or_superseded(self, batch: BatchCommit) -> bool:
        """False if this driver itself has committed the batch, and got an error. Raises SupersededError."""
        newest = self._commits.newest()
        if newest is None or newest.driver != self._driver or newest.last is None:
            raise self._superseded(batch)
        if (newest.last.query_id, newest.last.batch_id) != (batch.query_id, batch.batch_id):
            raise self._superseded(batch)
        self._newest = newest
        self._put_into_place(newest)
        self._drop_attempt()
        return False

    def _put_into_place(self, manifest: Manifest) -> None:
        if manifest.version == self._placed:
            return
        move_into_place(self._place, manifest.files)
        self._placed = manifest.version

    def _drop_attempt(self) -> None:
        if self._attempt is not None:
            self._place.delete_folder(f"{STAGING}/{self._attempt[2]}")
            self._attempt = None

    def _is_superseded(self) -> bool:
        """Whether another driver has committed since this one read the table.

        A manifest of its own that it knows nothing of is none: its commit failed after that was made.
        """
        known = -1 if self._newest is None else self._newest.version
        if not self._is_loaded or self._commits.versions()[-1:] <= [known]:
            return False
        newest = self._commits.newest()
        return newest is not None and newest.driver != self._driver

    def end_if_superseded(self) -> None:
        """See `BatchTable.end_if_superseded`."""
        with self._place.errors():
            if self._is_superseded():
                raise SupersededError(
                    f"{self._place}: another driver of {self._pipeline!r} has taken over, and this one ends"
                )

    def _end_if_overtaken(self) -> None:
        if self._is_superseded():
            raise SupersededError(
                f"{self._place}: another driver of {self._pipeline!r} has taken over while this one started, "
                "and it ends"
            )

    def _superseded(self, batch: BatchCommit) -> SupersededError:
        newest = self._commits.newest()
        last = newest.last if newest else None
        has = f"which has committed up to batch {last.batch_id}" if last else "which has committed nothing yet"
        return SupersededError(
            f"{self._place}: another driver of {self._pipeline!r} has taken over, {has}; batch {batch.batch_id} of "
            "this one was not committed, and it ends"
        )

    def _refuse_foreign_files(self, identity: TableIdentity, newest: int) -> None:
        for folder, files in self._place.visible_folders(FOLDERS_AT_MOST):
            for each in files:
                name = DataFileName.parse(each.base_name)
                ours = name is not None and name.table == identity.table and name.version <= newest
                if not ours and each.base_name.endswith(".parquet"):
                    if name is not None and name.table == identity.table:
                        self._end_if_overtaken()
                    self._place.refuse_foreign(f"{folder}/{each.base_name}".lstrip("/"))
