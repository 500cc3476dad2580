"""Small results upserted into a table of a database: SQLite by itself, others by Spark's JDBC writer.

SQLite: the rows of a batch and the batch's number are written in one transaction, so a batch that runs again changes
nothing. Rows come to the driver partition by partition.

JDBC: the rows of a batch are appended in one transaction of one task, with its number in the column `ottla_batch` and
the query's id in `ottla_query`; a batch that is there already is left out. The row of a key with the highest number is
the one that counts. Spark's writer has no upserts, and a driver's jar is the user's to bring (`spark.jars`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions, types
from pyspark.sql.types import DataType

from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError, SupersededError
from ottla.spark.pipelines.settings.model import DatabaseSinkSettings
from ottla.spark.pipelines.sinks.sink import BatchInWork, BatchSink
from ottla.spark.pipelines.writing.refusals import quoted

SQLITE = "sqlite:"
#: How long another writer of the file may take.
LOCK_TIMEOUT_S = 60.0
QUERY_COLUMN = "ottla_query"
BATCH_COLUMN = "ottla_batch"
_BATCHES = "ottla_batches"
_COLUMN_TYPES = "createTableColumnTypes"
#: Characters of a UUID, which Spark names queries by.
_QUERY_ID_LENGTH = 36
_AFFINITY = {
    **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), "INTEGER"),
    **dict.fromkeys(("float", "double"), "REAL"),
    "binary": "BLOB",
}


def check_keys(frame: DataFrame, settings: DatabaseSinkSettings) -> None:
    """Refuse key columns that the rows lack. Raises PipelineSettingsError."""
    missing = [each for each in settings.key_columns if each not in frame.columns]
    if missing:
        raise PipelineSettingsError(
            f"key_columns names {', '.join(missing)}; the last step gives {', '.join(frame.columns)}"
        )


class SqliteSink(BatchSink):
    """A table of a SQLite file, made where it is missing, with one row for each key."""

    def __init__(self, settings: DatabaseSinkSettings) -> None:
        self._settings = settings
        self._path = settings.url.removeprefix(SQLITE).removeprefix("//")
        #: The query that this process wrote batches of.
        self._query_id: str | None = None

    def prepare(self) -> None:
        """Make the table of batches. Raises PipelineError if the file cannot be opened."""
        with self._connected() as database:
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {_BATCHES} (pipeline TEXT NOT NULL, results TEXT NOT NULL, "
                "query_id TEXT NOT NULL, batch_id INTEGER NOT NULL, PRIMARY KEY (pipeline, results))"
            )

    def check(self, rows: DataFrame) -> None:
        """Refuse rows without the key columns. Raises PipelineSettingsError."""
        check_keys(rows, self._settings)

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Upsert the rows in one transaction. Raises SupersededError, PipelineError."""
        rows = frame.select(*(_plain(each.name, each.dataType) for each in frame.schema))
        database = self._connected()
        try:
            database.execute("BEGIN IMMEDIATE")
            if self._is_there(database, batch):
                # Every task of the query has to run all the same, for its state.
                frame.write.format("noop").mode("append").save()
                database.rollback()
                return
            self._make_table(database, frame)
            self._upsert(database, frame.columns, (tuple(row) for row in rows.toLocalIterator()))
            database.execute(
                f"INSERT INTO {_BATCHES} VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET query_id = excluded.query_id, "
                "batch_id = excluded.batch_id",
                (batch.pipeline, self._settings.table, batch.query_id, batch.batch_id),
            )
            database.commit()
        except sqlite3.Error as problem:
            raise PipelineError(f"table {self._settings.table} of {self._path}: {problem}") from None
        finally:
            database.close()
        self._query_id = batch.query_id

    def _is_there(self, database: sqlite3.Connection, batch: BatchInWork) -> bool:
        found = database.execute(
            f"SELECT query_id, batch_id FROM {_BATCHES} WHERE pipeline = ? AND results = ?",
            (batch.pipeline, self._settings.table),
        ).fetchone()
        if found is None:
            return False
        query_id, batch_id = found
        superseded = batch_id > batch.batch_id if query_id == batch.query_id else self._query_id == batch.query_id
        if superseded:
            raise SupersededError(
                f"table {self._settings.table} of {self._path} has batch {batch_id} of another driver of pipeline "
                f"{batch.pipeline}: this one ends at batch {batch.batch_id}; run one of them"
            )
        return bool(query_id == batch.query_id and batch_id == batch.batch_id)

    def _make_table(self, database: sqlite3.Connection, frame: DataFrame) -> None:
        columns = ", ".join(
            f"{_name(each.name)} {_AFFINITY.get(each.dataType.typeName(), 'TEXT')}" for each in frame.schema
        )
        table = _name(self._settings.table)
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        keys = ", ".join(map(_name, self._settings.key_columns))
        index = _name(f"ottla_keys_of_{self._settings.table}")
        database.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({keys})")

    def _upsert(self, database: sqlite3.Connection, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        keys = self._settings.key_columns
        others = [each for each in columns if each not in keys]
        table = _name(self._settings.table)
        # IS, since a key may be null.
        where = " AND ".join(f"{_name(each)} IS ?" for each in keys)
        change = ", ".join(f"{_name(each)} = ?" for each in others or keys)
        update = f"UPDATE {table} SET {change} WHERE {where}"
        insert = f"INSERT INTO {table} ({', '.join(map(_name, columns))}) VALUES ({', '.join('?' for _ in columns)})"
        key_at = [columns.index(each) for each in keys]
        other_at = [columns.index(each) for each in others or keys]
        for row in rows:
            changed = database.execute(update, [row[at] for at in (*other_at, *key_at)])
            if changed.rowcount == 0:
                database.execute(insert, row)

    def _connected(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as problem:
            raise PipelineError(f"{self._path} cannot be opened as a SQLite file: {problem}; check the url") from None


class JdbcSink(BatchSink):
    """A table of any database that has a JDBC driver, appended to batch by batch."""

    def __init__(self, settings: DatabaseSinkSettings) -> None:
        self._settings = settings

    def prepare(self) -> None:
        """Nothing: the driver's jar is in the JVM, which says itself what is wrong."""

    def check(self, rows: DataFrame) -> None:
        """Refuse rows without the key columns. Raises PipelineSettingsError."""
        check_keys(rows, self._settings)

    def take(self, frame: DataFrame, batch: BatchInWork) -> None:
        """Append the rows in one transaction, unless the batch is there. Raises what Spark raises."""
        rows = frame.withColumns(
            {QUERY_COLUMN: functions.lit(batch.query_id), BATCH_COLUMN: functions.lit(batch.batch_id).cast("long")}
        )
        spark = frame.sparkSession
        # Makes the table where it is missing.
        spark.createDataFrame([], rows.schema).write.format("jdbc").options(**self._options()).mode("append").save()
        if self._is_there(spark, batch):
            frame.write.format("noop").mode("append").save()
            return
        # One task is one transaction: rows of the batch are all there, or none.
        rows.repartition(1).write.format("jdbc").options(**self._options()).mode("append").save()

    def _is_there(self, spark: SparkSession, batch: BatchInWork) -> bool:
        there = spark.read.format("jdbc").options(**self._options()).load()
        columns = {each.lower(): each for each in there.columns}
        if BATCH_COLUMN not in columns:
            raise PipelineError(
                f"table {self._settings.table} has no column {BATCH_COLUMN}: it was not made by a pipeline; choose "
                "another table"
            )
        of_batch = there.where(
            (quoted(columns[QUERY_COLUMN]) == batch.query_id) & (quoted(columns[BATCH_COLUMN]) == batch.batch_id)
        )
        return not of_batch.isEmpty()

    def _options(self) -> dict[str, str]:
        options = dict(self._settings.options) | {"url": self._settings.url, "dbtable": self._settings.table}
        # Where texts are large objects by default they cannot be compared.
        types = (options.pop(_COLUMN_TYPES, ""), f"{QUERY_COLUMN} VARCHAR({_QUERY_ID_LENGTH})")
        return options | {_COLUMN_TYPES: ", ".join(each for each in types if each)}


def _plain(name: str, kind: DataType) -> Column:
    """A column as SQLite takes it: times as text in UTC, what is nested as JSON."""
    column = quoted(name)
    if isinstance(kind, types.TimestampType):
        column = functions.date_format(
            functions.convert_timezone(None, functions.lit("UTC"), column.cast("timestamp_ntz")),
            "yyyy-MM-dd HH:mm:ss.SSSSSS",
        )
    elif isinstance(kind, types.StructType | types.ArrayType | types.MapType):
        column = functions.to_json(column)
    elif isinstance(kind, types.BooleanType):
        column = column.cast("int")
    elif not isinstance(kind, types.NumericType | types.BinaryType | types.StringType) or isinstance(
        kind, types.DecimalType
    ):
        column = column.cast("string")
    return column.alias(name)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
