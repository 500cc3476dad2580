"""Lines of a stream, a list for what arrived at a time, and records made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.client.errors import InvalidArgumentError
from ottla.client.producer.record import ProducerRecord
from ottla.inspection.texts import TextFormat
from ottla.ops.record_rows import decoded, parse_json, record_of_row

Bytes = bytes | None

#: Bytes that are read at a time.
READ_BYTES: Final = 256 * 1024
#: A longer line is not a record of any broker.
MOST_LINE_BYTES: Final = 256 * 1024 * 1024


class LineSource(Protocol):
    """A binary stream that gives what there is."""

    def read1(self, size: int, /) -> bytes:
        """Read at most `size` bytes; none at its end."""
        ...


def lines_of(stream: LineSource) -> Iterator[list[bytes]]:
    r"""Yield the lines that are there, without their ends (`\n`), as they arrive; the last one needs no end.

    Raises InvalidArgumentError for a line above MOST_LINE_BYTES.
    """
    pending: list[bytes] = []
    size = 0
    while data := stream.read1(READ_BYTES):
        head, end, rest = data.rpartition(b"\n")
        if end:
            yield b"".join([*pending, head]).split(b"\n")
            pending, size = [], 0
        size += len(rest)
        if size > MOST_LINE_BYTES:
            raise InvalidArgumentError(f"a line has more than {MOST_LINE_BYTES} bytes; --format file sends whole files")
        if rest:
            pending.append(rest)
    if pending:
        yield [b"".join(pending)]


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How a line becomes a record of `topic`.

    `rows`: each line is a row of JSON (`record_of_row`). Otherwise a line is a value, or with `key_separator` a key and
    a value; `null` is the text that stands for null, and `encoding` says whether lines are text, hexadecimal or base64.
    `key`, `partition` and `headers` are for records whose line does not say them. `as_json` says whether texts of rows
    and columns that are keys, and values, are written as JSON: their schemas have texts.
    """

    topic: str
    rows: bool = False
    key_separator: Bytes = None
    null: Bytes = None
    key_encoding: TextFormat = TextFormat.TEXT
    value_encoding: TextFormat = TextFormat.TEXT
    key: Bytes = None
    partition: int | None = None
    headers: tuple[tuple[str, Bytes], ...] = ()
    keep_partition: bool = False
    as_json: tuple[bool, bool] = (False, False)

    def record(self, line: bytes) -> ProducerRecord[Bytes, Bytes]:
        """Record of a line. Raises InvalidArgumentError that says what is wrong with it."""
        if self.rows:
            row = parse_json(line)
            record = record_of_row(self.topic, row, keep_partition=self.keep_partition, as_json=self.as_json)
            return record._replace(
                key=self.key if record.key is None else record.key,
                partition=self.partition if record.partition is None else record.partition,
                headers=[*self.headers, *record.headers],
            )
        key, value = self.key, line
        if self.key_separator is not None:
            first, found, value = line.partition(self.key_separator)
            if not found:
                raise InvalidArgumentError(
                    f"no key separator {self.key_separator.decode(errors='replace')!r} in it; each line is a key, the "
                    "separator, and a value"
                )
            key = self._decoded(first, self.key_encoding)
        return self.of_value(self._decoded(value, self.value_encoding), key)

    def of_value(self, value: Bytes, key: Bytes = None) -> ProducerRecord[Bytes, Bytes]:
        """Record of a value as it is."""
        key = self.key if key is None and self.key_separator is None else key
        return ProducerRecord(self.topic, value, key, self.partition, None, self.headers)

    def _decoded(self, text: bytes, encoding: TextFormat) -> Bytes:
        return None if text == self.null else decoded(text, encoding)
