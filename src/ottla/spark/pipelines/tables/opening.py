"""A table by its settings; the packages of a format are imported when one of its tables is opened."""

from __future__ import annotations

from importlib import import_module

from ottla.records.extras import MissingExtraError
from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.settings.model import TableSinkSettings
from ottla.spark.pipelines.tables.contract import BatchTable

#: Where the class of each format stands.
_TABLES = {
    "parquet": ("ottla.spark.pipelines.tables.parquet", "ParquetBatchTable"),
    "delta": ("ottla.spark.pipelines.tables.delta", "DeltaBatchTable"),
    "iceberg": ("ottla.spark.pipelines.tables.iceberg", "IcebergBatchTable"),
}


def open_table(sink: TableSinkSettings, pipeline: str) -> BatchTable:
    """The table of these settings as the pipeline of this name commits to it. Raises PipelineError."""
    if sink.format not in _TABLES:
        raise PipelineSettingsError(f"format = {sink.format!r}: a table is one of {', '.join(_TABLES)}")
    module, name = _TABLES[sink.format]
    try:
        table: BatchTable = getattr(import_module(module), name)(sink, pipeline)
    except MissingExtraError as error:
        raise PipelineError(str(error)) from None
    return table
