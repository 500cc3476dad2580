"""Staged files as Iceberg's data files, with the metrics by which readers leave files out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType
from pyiceberg.utils.datetime import (
    date_to_days,
    datetime_to_micros,
    days_to_date,
    micros_to_timestamp,
    micros_to_timestamptz,
)

from ottla.spark.pipelines.tables.arrow_types import partition_value
from ottla.spark.pipelines.tables.contract import BatchCommit
from ottla.spark.pipelines.tables.statistics import check_required, column_statistics, read_footer


def data_files(
    batch: BatchCommit, folder: str, partition_by: Sequence[str], required: Sequence[str], metadata: TableMetadata
) -> list[DataFile]:
    """The batch's files in `folder` (a URL). Raises PipelineError if a `required` column has nulls."""
    made = []
    types = [batch.schema.field(name).type for name in partition_by]
    for file in batch.files:
        values = [
            partition_value(text, kind, name)
            for name, kind, text in zip(partition_by, types, file.partition, strict=True)
        ]
        if required:
            check_required(required, column_statistics(file.footer), {})
        record = Record(*map(_as_stored, values))
        made.append(data_file(f"{folder}/{file.path}", file.size_bytes, file.footer, record, metadata))
    return made


def data_file(url: str, size_bytes: int, footer: bytes, partition: Record, metadata: TableMetadata) -> DataFile:
    """A Parquet file as a manifest has it."""
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=read_footer(footer),
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _as_stored(value: Any) -> Any:
    """A partition value as Iceberg's manifests have it: dates and times as numbers."""
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value


def python_values(partition: Record, metadata: TableMetadata, spec_id: int) -> list[Any]:
    """The values of a data file's partition, dates and times as Python's."""
    types = metadata.specs()[spec_id].partition_type(metadata.schema()).fields
    made: list[Any] = []
    for field, value in zip(types, (partition[number] for number in range(len(types))), strict=True):
        if value is None:
            made.append(None)
        elif isinstance(field.field_type, DateType):
            made.append(days_to_date(value))
        elif isinstance(field.field_type, TimestampType):
            made.append(micros_to_timestamp(value))
        elif isinstance(field.field_type, TimestamptzType):
            made.append(micros_to_timestamptz(value))
        else:
            made.append(value)
    return made
