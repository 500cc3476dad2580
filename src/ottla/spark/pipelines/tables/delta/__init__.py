"""Rows appended exactly once to a Delta table, by its log alone: no jar, no catalog, no lock.

The log's `txn` actions hold a pipeline's last batch and its end offsets: checkpoints keep them when older parts of the
log go. A commit is one file of the log that must not exist yet, made at the version whose `txn` actions were read.
"""

from __future__ import annotations

from ottla.records.extras import require_extra

require_extra("a Delta table", "delta", "deltalake", "pyarrow")

from ottla.spark.pipelines.tables.delta.table import DeltaBatchTable

__all__ = ["DeltaBatchTable"]
