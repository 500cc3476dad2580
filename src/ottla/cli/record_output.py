"""How commands show records: options, and the function that they make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import CommandError
from ottla.cli.record_schemas import WITH_SCHEMA
from ottla.cli.terminal import json_line, printable
from ottla.inspection.texts import TextFormat

if TYPE_CHECKING:
    from ottla.records.consumed import ConsumerRecord

Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-f",
        help=r"How a record is shown, as by kcat: %t topic, %p partition, %o offset, %T timestamp, %k key, %s "
        r"value, %h headers, %K and %S sizes, \n, \t, \x1f [%s\n].",
    ),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", help=r"Show the key, this text (\t), and the value.")
]
Null = Annotated[str, typer.Option("--null", "-Z", help="What is shown for null.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="With --format csv: key, value, headers, topic, partition, offset, timestamp, timestamp_type, and fields "
        "of values that are JSON objects [key,value,headers,partition,offset,timestamp].",
    ),
]


class ShownFormat(StrEnum):
    """How bytes of records are shown: as TextFormat has it, or decoded by their schema."""

    auto = "auto"
    text = "text"
    json = "json"
    hex = "hex"
    base64 = "base64"
    integer = "integer"
    avro = "avro"
    protobuf = "protobuf"

    def text_format(self, *, as_json: bool) -> TextFormat:
        """The format of what a schema made text of, too: with --json it is JSON there."""
        if self in WITH_SCHEMA:
            return TextFormat.JSON if as_json else TextFormat.AUTO
        return TextFormat(self)


KeyFormat = Annotated[
    ShownFormat, typer.Option(help="How keys are shown; avro and protobuf decode them, by their schema.")
]
ValueFormat = Annotated[
    ShownFormat, typer.Option(help="How values are shown; avro and protobuf decode them, by their schema.")
]


class RecordLayout(StrEnum):
    """How records are shown: as text, or as rows of CSV under a row with the columns' names."""

    text = "text"
    csv = "csv"


@dataclass(frozen=True, slots=True)
class Shape:
    """How records are shown."""

    template: str | None
    key_separator: str | None
    null: str
    key_format: ShownFormat
    value_format: ShownFormat
    as_json: bool
    output_format: RecordLayout = RecordLayout.text
    columns: str | None = None

    def head(self) -> bytes:
        """Bytes before the records: the row of CSV that names the columns."""
        from ottla.ops.record_fields import csv_row

        return csv_row(self._columns()) if self.output_format is RecordLayout.csv else b""

    def show(self) -> Callable[[ConsumerRecord[Any, Any]], bytes]:
        """Function that shows a record on standard output. Raises CommandError, InvalidArgumentError."""
        from ottla.ops.record_rows import record_row
        from ottla.ops.record_templates import template

        if self.null.startswith("-") and len(self.null) == len("-e"):
            raise CommandError(
                f"--null {self.null} takes a text; write -Z NULL, or --null={self.null} if {self.null} is meant"
            )
        key_format, value_format = self._formats()
        if self.output_format is RecordLayout.csv:
            return self._show_csv()
        if self.columns is not None:
            raise CommandError("--columns goes with --format csv; --template chooses fields of text")
        if self.as_json:
            if self.template is not None or self.key_separator is not None:
                raise CommandError("--json shows all fields; leave --template and --key-separator out")
            return lambda record: json_line(record_row(record, key_format, value_format)).encode(
                errors="backslashreplace"
            )
        if self.template is not None and self.key_separator is not None:
            raise CommandError(
                r"--template and --key-separator are both there; write the separator into the template: %k\t%s\n"
            )
        text = self.template
        if text is None:
            text = "%s\\n" if self.key_separator is None else f"%k{self.key_separator.replace('%', '%%')}%s\\n"
        return _for_output(template(text, self.null.encode(errors="surrogateescape"), key_format, value_format))

    def _formats(self) -> tuple[TextFormat, TextFormat]:
        key_format, value_format = (
            each.text_format(as_json=self.as_json) for each in (self.key_format, self.value_format)
        )
        return key_format, value_format

    def _columns(self) -> list[str]:
        from ottla.ops.record_fields import CSV_COLUMNS

        columns = list(CSV_COLUMNS) if self.columns is None else self.columns.split(",")
        if "" in columns or len(set(columns)) < len(columns):
            raise CommandError(f"--columns {self.columns}: expected names with commas between, each once")
        return columns

    def _show_csv(self) -> Callable[[ConsumerRecord[Any, Any]], bytes]:
        from ottla.ops.record_fields import csv_shower

        if self.as_json or self.template is not None or self.key_separator is not None:
            raise CommandError(
                "--format csv has columns; leave --json, --template and --key-separator out, and choose by --columns"
            )
        return _for_output(csv_shower(self._columns(), self.null, *self._formats()))


def _for_output(show: Callable[[ConsumerRecord[Any, Any]], bytes]) -> Callable[[ConsumerRecord[Any, Any]], bytes]:
    return (lambda record: _harmless(show(record))) if sys.stdout.isatty() else show


def _harmless(shown: bytes) -> bytes:
    """Text for a terminal: characters that it would obey, or cannot show, as escapes; ends of lines and tabs stay."""
    text = shown.decode(errors="backslashreplace")
    return "".join([each if each in "\n\t" else printable(each) for each in text]).encode()
