"""Tables that do not stream: Parquet folders and Delta tables, read without a jar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.spark.pipelines.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

PARQUET = "parquet"
DELTA = "delta"


def dataset(kind: str, path: str, options: Mapping[str, str]) -> pyarrow.dataset.Dataset:
    """The files of a table as they are now. Raises PipelineError."""
    from ottla.records.extras import require_extra

    if kind == DELTA:
        require_extra("a Delta table", DELTA, "deltalake")
        import deltalake
        import deltalake.exceptions

        try:
            return deltalake.DeltaTable(path, storage_options=dict(options)).to_pyarrow_dataset()
        except (deltalake.exceptions.DeltaError, OSError) as problem:
            raise PipelineError(f"the Delta table {path} cannot be read: {problem}") from None
    import pyarrow
    import pyarrow.dataset

    from ottla.spark.pipelines.tables.filesystems import open_filesystem

    try:
        filesystem, root = open_filesystem(path, options)
        return pyarrow.dataset.dataset(root, filesystem=filesystem, format=PARQUET, partitioning="hive")
    except (OSError, pyarrow.ArrowException) as problem:
        raise PipelineError(f"the Parquet table {path} cannot be read: {problem}") from None
