"""A folder of plain Parquet files that takes each batch of a pipeline once, for readers that only list files.

`_ottla/` in the folder holds what readers must not see: names that begin with `_` are passed over by Spark, pyarrow,
DuckDB and the like. In it are `table.json` (whose table it is), `staging/` (files of batches that are not committed),
`commits/` (a manifest per batch), `compacting/` (folders that are being rebuilt).
"""

from ottla.records.extras import require_extra

require_extra("a table of files", "arrow", "pyarrow")

from ottla.spark.pipelines.tables.parquet.reading import committed_files
from ottla.spark.pipelines.tables.parquet.table import ParquetBatchTable

__all__ = ["ParquetBatchTable", "committed_files"]
