"""Which Delta tables ottla does not write to: those whose rules would have to be checked for each row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.settings.model import TableSinkSettings

if TYPE_CHECKING:
    import deltalake

_CONSTRAINTS: Final = "delta.constraints."
#: How long `txn` actions are kept; without it they are kept for ever.
_RETENTION: Final = "delta.setTransactionRetentionDuration"
_REFUSED: Final = {
    "delta.columnMapping.mode": ("none",),
    "delta.enableRowTracking": ("false",),
    "delta.enableIcebergCompatV1": ("false",),
    "delta.enableIcebergCompatV2": ("false",),
}
_REFUSED_OF_COLUMNS: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def check_writable(table: deltalake.DeltaTable, sink: TableSinkSettings, where: str) -> None:
    """Raises PipelineError if this table has rules that ottla does not keep, or is partitioned otherwise."""
    metadata = table.metadata()
    if tuple(metadata.partition_columns) != tuple(sink.partition_by):
        raise PipelineError(
            f"{where} is partitioned by {_names(metadata.partition_columns)}, and partition_by is "
            f"{_names(sink.partition_by)}; set partition_by to the table's columns, or write to another table"
        )
    for key, value in metadata.configuration.items():
        if key == _RETENTION:
            raise PipelineError(
                f"{where} has {_RETENTION}, which would delete the pipeline's last batch; unset that property"
            )
        if key.startswith(_CONSTRAINTS) or str(value).lower() not in _REFUSED.get(key, (str(value).lower(),)):
            raise PipelineError(f"{where} has {key} = {value}, which ottla does not write; write to another table")
    for field in table.schema().fields:
        for key in _REFUSED_OF_COLUMNS:
            if key in json.loads(field.to_json())["metadata"]:
                raise PipelineError(
                    f"column {field.name} of {where} has {key}, which ottla does not write; write to another table"
                )


def _names(columns: object) -> str:
    return ", ".join(map(str, columns)) if isinstance(columns, list | tuple) and columns else "nothing"
