"""`ottla search`: the records of a topic whose key or value has a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command import EXIT_REFUSED, Command, CommandError
from ottla.cli.options import ClusterOptions
from ottla.cli.progress import Progress, passed_of
from ottla.cli.record_options import ClientConfig, ClientProperties, Partitions, client_settings, parse_partitions
from ottla.cli.record_output import KeyFormat, KeySeparator, Null, Shape, ShownFormat, Template, ValueFormat
from ottla.cli.record_reading import (
    BEGINNING,
    END,
    ReadCommitted,
    StartAtBeginning,
    UntilEnd,
    reading_settings,
    start_reading,
)
from ottla.cli.record_schemas import (
    KeyMessage,
    KeySchema,
    Message,
    SchemaOptions,
    SchemaRegistry,
    ValueSchema,
    record_decoder,
)
from ottla.cli.terminal import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.ops.record_search import Wanted
    from ottla.ops.topic_reading import TopicReader
    from ottla.records.consumed import ConsumerRecord

COMMAND = Command("ottla search")
#: How a record is shown unless an option says it.
FOUND = r"%p %o %k %s\n"


def search(
    shared: ClusterOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    text: Annotated[str, typer.Argument(help="What is searched for.")],
    in_keys: Annotated[bool, typer.Option("--key", "-k", help="Only in keys.")] = False,
    in_values: Annotated[bool, typer.Option("--value", "-v", help="Only in values.")] = False,
    is_regex: Annotated[
        bool, typer.Option("--regex", "-r", help="TEXT is a regular expression of Python's; (?i) ignores case.")
    ] = False,
    start: StartAtBeginning = BEGINNING,
    until: UntilEnd = END,
    most_records: Annotated[
        int | None, typer.Option("--count", "-n", help="End after that many were found.", min=1)
    ] = None,
    partitions: Partitions = None,
    template: Template = None,
    key_separator: KeySeparator = None,
    null: Null = "null",
    key_format: KeyFormat = ShownFormat.auto,
    value_format: ValueFormat = ShownFormat.auto,
    schema_registry: SchemaRegistry = None,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    key_message: KeyMessage = None,
    message: Message = None,
    read_committed: ReadCommitted = False,
    config: ClientConfig = None,
    properties: ClientProperties = None,
) -> None:
    r"""Show the records of a topic whose key or value has a text: partition, offset, key, value.

    It reads the topic from its beginning to the end that it has when the command begins. Ctrl-C ends it; what was
    found by then is shown, and how far it came. Without pyarrow, with --regex, and with a format that has a schema,
    whose text then is searched, it is slower.

    Ends with 0 where something was found, else with 1.

    Examples: `ottla search orders 4711`, `ottla search orders --key -r '^eu-' --from 7d --json`.
    """

    def work() -> int:
        text_of = FOUND if template is None and key_separator is None and not shared.as_json else template
        show = Shape(text_of, key_separator, null, key_format, value_format, shared.as_json).show()
        wanted = _wanted(text, in_keys=in_keys, in_values=in_values, is_regex=is_regex)
        schemas = SchemaOptions(schema_registry, key_schema, value_schema, key_message, message)
        decoder = record_decoder(COMMAND, shared, (key_format, value_format), schemas)
        settings: dict[str, Any] = client_settings(shared, config or (), properties)
        settings |= reading_settings(read_committed=read_committed)
        with Consumer(settings) as consumer:
            searching = _Searching(show, most_records)
            searching.reader = start_reading(
                COMMAND,
                consumer,
                [topic],
                parse_partitions(partitions),
                (start, until or END),
                shared.timeout_s,
                poll=searching_poll(consumer, wanted, decoder),
                on_wait=searching.progress.show,
            )
            return searching.run()

    from ottla.client.errors import ClientError
    from ottla.client.sync import Consumer
    from ottla.decoding.registry import SchemaRegistryError
    from ottla.ops.record_search import searching_poll

    COMMAND.run(work, (ClientError, SchemaRegistryError), until_closed=True)


class _Searching:
    """Shows what the reader finds."""

    reader: TopicReader

    def __init__(self, show: Callable[[ConsumerRecord[Any, Any]], bytes], most_records: int | None) -> None:
        self.progress = Progress(self._text)
        self._show = show
        self._most_records = most_records
        self._found = 0

    def run(self) -> int:
        """Return the exit code, 1 where nothing was found."""
        try:
            for records in self.reader:
                shown = records if self._most_records is None else records[: self._most_records - self._found]
                self.progress.clear()
                sys.stdout.buffer.write(b"".join(map(self._show, shown)))
                sys.stdout.buffer.flush()
                self._found += len(shown)
                if self._found == self._most_records:
                    break
                self.progress.show()
        except KeyboardInterrupt:
            self.progress.clear()
            COMMAND.report(f"interrupted; {self._text()}")
            raise
        self.progress.clear()
        COMMAND.report(self._text())
        return 0 if self._found else EXIT_REFUSED

    def _text(self) -> str:
        return f"{count(self._found, 'record')} found, {passed_of(*self.reader.passed())} read"


def _wanted(text: str, *, in_keys: bool, in_values: bool, is_regex: bool) -> Wanted:
    from ottla.ops.record_search import Wanted, pattern_of

    if not text:
        raise CommandError("TEXT is empty; every record has it, and `ottla consume` shows them")
    what = pattern_of(text) if is_regex else text.encode(errors="surrogateescape")
    both = in_keys == in_values
    return Wanted(what, in_keys or both, in_values or both)
