"""Which small files of an Iceberg table are replaced; and that a replacement lost none and kept none twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot

from ottla.spark.pipelines.tables.iceberg.files import python_values
from ottla.spark.pipelines.tables.log_table import OldFile, PartitionFiles


def live_files(table: Table) -> Iterator[DataFile]:
    """The data files of the newest snapshot, in the order of their manifests."""
    snapshot = table.current_snapshot()
    if snapshot is not None:
        yield from files_of(table, snapshot)


def files_of(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """The data files of a snapshot, which may not be committed yet."""
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def own_files(table: Table, url: str, own_folder: str) -> Iterator[PartitionFiles]:
    """Yield the files in `own_folder` of the table, whose folder is `url`.

    None of tables with files that say which rows are deleted.
    """
    snapshot = table.current_snapshot()
    if snapshot is None or any(each.content == ManifestContent.DELETES for each in snapshot.manifests(table.io)):
        return
    metadata = table.metadata
    files: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for file in live_files(table):
        if file.file_path.startswith(f"{url}/{own_folder}/") and file.spec_id == metadata.default_spec_id:
            files[tuple(python_values(file.partition, metadata, file.spec_id))].append(file)
    for partition, found in files.items():
        found.sort(key=lambda each: each.file_path)
        texts = {
            field.name: None if value is None else str(value)
            for field, value in zip(metadata.spec().fields, partition, strict=True)
        }
        olds = [OldFile(each.file_path.removeprefix(f"{url}/"), each.file_size_in_bytes, each) for each in found]
        yield PartitionFiles(found[0].partition, olds, texts)


class ReplacementError(Exception):
    """A replacement of files that would have changed rows; it was not committed."""


def check_replacement(
    table: Table, transaction: Transaction, removed: Sequence[DataFile], added: Sequence[DataFile]
) -> None:
    """Before the commit: the new snapshot has exactly the old one's files but for these. Raises ReplacementError."""
    after = transaction.table_metadata.current_snapshot()
    expected = Counter(each.file_path for each in live_files(table))
    expected.subtract(each.file_path for each in removed)
    expected.update(each.file_path for each in added)
    found = Counter(each.file_path for each in files_of(table, after)) if after is not None else Counter()
    if found != +expected:
        raise ReplacementError("the replacement would have changed rows, and was not committed")
