"""Rows appended exactly once to an Iceberg table in any catalog of pyiceberg: no jar, no lock.

A property of the table holds a pipeline's last batch and its end offsets, so that snapshots may expire. It is set in
the transaction of the snapshot, which the catalog takes only if the table is still at the snapshot that was read.
Each change of the property comes with a snapshot, if need be an empty one: properties alone are not conditional.
"""

from __future__ import annotations

from ottla.records.extras import require_extra

require_extra("an Iceberg table", "iceberg", "pyiceberg", "pyarrow")

from ottla.spark.pipelines.tables.iceberg.table import IcebergBatchTable

__all__ = ["IcebergBatchTable"]
