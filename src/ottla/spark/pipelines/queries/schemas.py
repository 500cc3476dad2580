"""Schemas of JSON sources that grow with `new_fields = add`; kept in the checkpoint, since batches that run again need
the schema that they ran with.
"""

from __future__ import annotations

import pyarrow

from ottla.spark.pipelines.errors import PipelineError
from ottla.spark.pipelines.queries.checkpoint import QueryCheckpoint
from ottla.spark.pipelines.queries.new_fields import extended, names_in
from ottla.spark.pipelines.settings.model import NewFields, PipelineSettings, SourceSettings

_SCHEMA = "schema"


def schema_in_use(checkpoint: QueryCheckpoint, settings: PipelineSettings, source: SourceSettings) -> str | None:
    """The schema of a source: its setting, with the fields that were added since. Raises PipelineError, OptionError."""
    note = checkpoint.note(_note(source)) if settings.new_fields is NewFields.add else None
    if note is None or source.schema is None:
        return source.schema
    return _joined(source.schema, _fields(str(note[_SCHEMA])))


def added_fields(checkpoint: QueryCheckpoint, source: SourceSettings) -> str:
    """The schema noted for a source, empty where none is. Raises PipelineError."""
    note = checkpoint.note(_note(source))
    return "" if note is None else str(note[_SCHEMA])


def add_fields(checkpoint: QueryCheckpoint, source: SourceSettings, schema: str, found: pyarrow.DataType) -> list[str]:
    """Note the schema with the fields of `found` that it lacks, and give their names.

    Raises PipelineError for a field that is another one in Spark's eyes, which does not tell cases apart.
    """
    known = _fields(schema)
    taken = {each.name.lower(): each.name for each in known}
    for index in range(found.num_fields):
        name = found.field(index).name
        other = taken.get(name.lower())
        if other is not None and other != name:
            raise PipelineError(
                f"source {source.name}: records have the fields {other} and {name}, which Spark does not tell apart; "
                "set new_fields = ignore, or have the producer name them differently"
            )
    before = set(names_in(known))
    joined = _joined(schema, found)
    checkpoint.write_note(_note(source), {_SCHEMA: joined})
    return [name for name in names_in(_fields(joined)) if name not in before]


def _note(source: SourceSettings) -> str:
    return f"schema-{source.name}"


def _fields(schema: str) -> pyarrow.DataType:
    from ottla.spark.decoding.schemas import parse_schema

    return pyarrow.struct(list(parse_schema(schema, option="schema")))


def _joined(schema: str, found: pyarrow.DataType) -> str:
    """As Spark's JSON text, which `schema` and the option `valueSchema` take as well as DDL."""
    from pyspark.sql.pandas.types import from_arrow_schema

    text: str = from_arrow_schema(pyarrow.schema(list(extended(_fields(schema), found)))).json()
    return text
