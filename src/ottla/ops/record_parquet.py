"""Records in Parquet files. pyarrow is an extra, imported at first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import InvalidArgumentError
from ottla.inspection.batch_rows import timestamp_type_name
from ottla.ops.record_rows import record_place
from ottla.records.consumed import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow

Bytes = bytes | None

#: Rows that are read at a time.
READ_ROWS: Final = 2_000
#: A row group is written when it has that many rows, or its keys and values that many bytes.
GROUP_ROWS: Final = 100_000
GROUP_BYTES: Final = 64 * 1024 * 1024
#: The end of the name of a file that is being written.
PARTIAL: Final = ".partial"


class ParquetRecords:
    """The rows of a Parquet file, under the names of its columns. Raises InvalidArgumentError, OSError."""

    def __init__(self, path: str) -> None:
        import pyarrow
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as problem:
            raise InvalidArgumentError(f"not a Parquet file: {problem}") from None
        self.columns: list[str] = self._file.schema_arrow.names

    def __iter__(self) -> Iterator[list[tuple[Any, ...]]]:
        import pyarrow

        try:
            for batch in self._file.iter_batches(READ_ROWS):
                columns = [_plain(name, batch.column(at)) for at, name in enumerate(self.columns)]
                yield list(zip(*columns, strict=True))
        except pyarrow.ArrowException as problem:
            raise InvalidArgumentError(f"it cannot be read: {problem}") from None


def _plain(name: str, column: pyarrow.Array) -> list[Any]:
    import pyarrow

    if name == "timestamp" and pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp("ms"), safe=False).cast(pyarrow.int64())
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as problem:
        raise InvalidArgumentError(f"column {name} has a value that cannot be read: {problem}") from None
    return found


class ParquetWriter:
    """A Parquet file that gets records: where each is, timestamp, key, value, headers.

    Keys and values are bytes, or text: then a record whose key or value is not UTF-8 raises InvalidArgumentError, and
    those before it are written. The file has another name, `path` and PARTIAL, until `close` succeeds.
    `record_count`: records that were written.
    """

    def __init__(self, path: str, *, text_keys: bool, text_values: bool) -> None:
        import pyarrow
        from pyarrow import parquet

        header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
        self._schema = pyarrow.schema(
            [
                ("topic", pyarrow.string()),
                ("partition", pyarrow.int32()),
                ("offset", pyarrow.int64()),
                ("timestamp", pyarrow.timestamp("ms", "UTC")),
                ("timestamp_type", pyarrow.string()),
                ("key", pyarrow.string() if text_keys else pyarrow.binary()),
                ("value", pyarrow.string() if text_values else pyarrow.binary()),
                ("headers", pyarrow.list_(header)),
            ]
        )
        self._texts = (text_keys, text_values)
        self._path, self._partial = Path(path), Path(f"{path}{PARTIAL}")
        self.record_count = 0
        self._is_whole = True
        self._writer = parquet.ParquetWriter(str(self._partial), self._schema, compression="zstd")
        self._records: list[ConsumerRecord[Bytes, Bytes]] = []
        self._bytes = 0

    def add(self, records: Sequence[ConsumerRecord[Bytes, Bytes]]) -> None:
        """Add records."""
        self._records += records
        self._bytes += sum(max(0, each.serialized_key_size) + max(0, each.serialized_value_size) for each in records)
        if len(self._records) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> None:
        """Write what is left and the end of the file. Raises InvalidArgumentError for what is not text, OSError.

        After an OSError no file is left: without its end it cannot be read.
        """
        failure: InvalidArgumentError | None = None
        try:
            try:
                self._write()
            except InvalidArgumentError as problem:
                failure = problem
            self._writer.close()
            if self._is_whole:
                self._partial.rename(self._path)
        finally:
            self._partial.unlink(missing_ok=True)
        if failure is not None:
            raise failure

    def _write(self) -> None:
        records, self._records, self._bytes = self._records, [], 0
        text_keys, text_values = self._texts
        failure: InvalidArgumentError | None = None
        if text_keys or text_values:
            for at, each in enumerate(records):
                try:
                    _ = text_keys and _text(each, "key", each.key), text_values and _text(each, "value", each.value)
                except InvalidArgumentError as problem:
                    records, failure = records[:at], problem
                    break
        if records:
            self._write_group(records)
        if failure is not None:
            raise failure

    def _write_group(self, records: list[ConsumerRecord[Bytes, Bytes]]) -> None:
        import pyarrow

        columns: list[list[Any]] = [
            [each.topic for each in records],
            [each.partition for each in records],
            [each.offset for each in records],
            [each.timestamp for each in records],
            [timestamp_type_name(each.timestamp_type) for each in records],
            [each.key for each in records],
            [each.value for each in records],
            [[{"key": name, "value": value} for name, value in each.headers] for each in records],
        ]
        arrays = [pyarrow.array(each, field.type) for each, field in zip(columns, self._schema, strict=True)]
        self._is_whole = False
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
        self._is_whole = True
        self.record_count += len(records)


def _text(record: ConsumerRecord[Bytes, Bytes], name: str, data: Bytes) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            f"{record_place(record)}: its {name} is not UTF-8; leave --{name}-format out, and the column has bytes"
        ) from None
