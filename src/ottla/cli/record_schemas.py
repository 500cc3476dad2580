"""Keys and values that have a schema, Avro or Protobuf: options, files, the registry's address, and decoders."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from ottla.cli.command import Command, CommandError
from ottla.cli.named_clusters import REGISTRY_LOGIN, REGISTRY_URL
from ottla.records.extras import missing_extra

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from ottla.cli.options import ClusterOptions
    from ottla.decoding.registry import RegistrySchemas, SchemaText
    from ottla.decoding.values import Decode
    from ottla.ops.record_decoding import RecordDecoder
    from ottla.records.consumed import ConsumerRecord

URL_VARIABLE: Final = "OTTLA_SCHEMA_REGISTRY"
LOGIN_VARIABLE: Final = "OTTLA_SCHEMA_REGISTRY_LOGIN"
#: Formats of keys and values that have a schema.
PROTOBUF_FORMAT: Final = "protobuf"
WITH_SCHEMA: Final = ("avro", PROTOBUF_FORMAT)
#: Bytes of a schema's file; more is another kind of file.
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
#: Keys and values that cannot be decoded and are reported one by one; then only how many there are.
MOST_REPORTED: Final = 10

SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The schema registry that has the schemas [OTTLA_SCHEMA_REGISTRY, or the named cluster's]; its login is "
        "user:password in OTTLA_SCHEMA_REGISTRY_LOGIN.",
    ),
]
KeySchema = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="The schema of keys that no registry's serializer wrote: of Avro, or a descriptor set."
    ),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="The schema of values that no registry's serializer wrote: of Avro, or a descriptor set."
    ),
]
KeyMessage = Annotated[str | None, typer.Option(metavar="NAME", help="The message that keys are, as for --message.")]
Message = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Protobuf: the full name of the message that values are, where no registry's framing says it; `ottla "
        "produce` takes the schema's first one otherwise.",
    ),
]


@dataclass(frozen=True, slots=True)
class SchemaField:
    """Keys or values: their format, the file of their schema, and which message of it they are."""

    name: str
    format: str
    file: str | None
    message: str | None

    @property
    def has_schema(self) -> bool:
        """Whether the format needs a schema."""
        return self.format in WITH_SCHEMA

    @property
    def message_option(self) -> str:
        """The option that names the message."""
        return "--key-message" if self.name == "key" else "--message"

    def check(self) -> None:
        """Raise CommandError for an option that this format does not have."""
        if self.file is not None and not self.has_schema:
            raise CommandError(f"--{self.name}-schema goes with --{self.name}-format {' and '.join(WITH_SCHEMA)}")
        if self.message is not None and self.format != PROTOBUF_FORMAT:
            raise CommandError(f"{self.message_option} goes with --{self.name}-format {PROTOBUF_FORMAT}")

    def known(self, registry: RegistrySchemas | None) -> RegistrySchemas:
        """The registry, which has the schema where no file has it. Raises CommandError."""
        if registry is None:
            raise CommandError(
                f"--{self.name}-format {self.format} needs the schema: --schema-registry URL where {self.name}s have a "
                f"registry's framing, else --{self.name}-schema FILE"
            )
        return registry

    def content(self) -> bytes:
        """Bytes of the file. Raises CommandError."""
        try:
            with Path(self.file or "").open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise CommandError(f"--{self.name}-schema {self.file}: {error.strerror}") from error
        if len(content) > MAX_FILE_BYTES:
            raise CommandError(
                f"--{self.name}-schema {self.file}: it has more than {MAX_FILE_BYTES >> 20} MiB, which no schema has"
            )
        return content

    def schema(self) -> SchemaText:
        """The file's text. Raises CommandError."""
        from ottla.decoding.registry import SchemaText

        return SchemaText(self.content().decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Sources of schemas: the address of a registry, files for keys and for values, and messages of Protobuf."""

    registry: str | None = None
    key_file: str | None = None
    value_file: str | None = None
    key_message: str | None = None
    value_message: str | None = None

    def fields(self, formats: tuple[str, str]) -> tuple[SchemaField, SchemaField]:
        """Keys and values of these formats. Raises CommandError for options that need other formats."""
        key = SchemaField("key", formats[0], self.key_file, self.key_message)
        value = SchemaField("value", formats[1], self.value_file, self.value_message)
        key.check()
        value.check()
        if self.registry is not None and not (key.has_schema or value.has_schema):
            raise CommandError(_goes_with_formats("--schema-registry"))
        return key, value


def record_decoder(
    command: Command,
    shared: ClusterOptions,
    formats: tuple[str, str],
    options: SchemaOptions,
    *,
    is_strict: bool = False,
) -> RecordDecoder | None:
    """Decoder of keys and values by their two formats; None where neither has a schema. Raises CommandError.

    What it cannot decode is reported. With `is_strict` the records end there.
    """
    fields = options.fields(formats)
    if not any(each.has_schema for each in fields):
        if is_strict:
            raise CommandError(_goes_with_formats("--strict"))
        return None
    if options.registry is not None and all(each.file is not None for each in fields if each.has_schema):
        raise CommandError("--schema-registry has no effect, since files have the schemas; leave it or them out")
    from ottla.ops.record_decoding import RecordDecoder

    registry = schema_registry(shared, options.registry)
    key, value = (_decode(each, registry) if each.has_schema else None for each in fields)
    return RecordDecoder(key, value, _Undecoded(command, is_strict).report)


def _decode(field: SchemaField, registry: RegistrySchemas | None) -> Decode:
    from ottla.decoding.registry import AVRO, PROTOBUF
    from ottla.decoding.values import FramedValues, unframed

    if field.format == PROTOBUF_FORMAT:
        require_protobuf(field)
        from ottla.decoding.protobuf_values import protobuf_decoder, registered_decoder

        if field.file is not None:
            return unframed(protobuf_decoder(message_of(field)))
        if field.message is not None:
            raise CommandError(f"{field.message_option} goes with --{field.name}-schema; values of a registry name it")
        serialized = replace(field.known(registry), is_serialized=True)
        return FramedValues(serialized, PROTOBUF, registered_decoder)
    from ottla.decoding.avro_schemas import AvroSchemaError
    from ottla.decoding.avro_values import avro_decoder

    if field.file is None:
        return FramedValues(field.known(registry), AVRO, avro_decoder)
    try:
        return unframed(avro_decoder(field.schema()))
    except AvroSchemaError as problem:
        raise CommandError(f"--{field.name}-schema {field.file}: {problem}") from None


def message_of(field: SchemaField) -> Descriptor:
    """The message of a descriptor set. Raises CommandError."""
    from ottla.decoding.protobuf_messages import message_of, read_descriptors
    from ottla.decoding.values import ProtobufSchemaError

    if field.message is None:
        raise CommandError(
            f"--{field.name}-schema {field.file} needs {field.message_option} NAME, the full name of the message, such "
            "as shop.Order"
        )
    try:
        return message_of(read_descriptors(field.content()), field.message)
    except ProtobufSchemaError as problem:
        raise CommandError(f"--{field.name}-schema {field.file}: {problem}") from None


def require_protobuf(field: SchemaField) -> None:
    """Raise CommandError, which names the extra, unless Google's protobuf is installed."""
    try:
        import google.protobuf  # noqa: F401
    except ModuleNotFoundError:
        what = f"--{field.name}-format {PROTOBUF_FORMAT}"
        raise CommandError(missing_extra(what, PROTOBUF_FORMAT, PROTOBUF_FORMAT)) from None


def _goes_with_formats(option: str) -> str:
    return f"{option} goes with --key-format and --value-format {' and '.join(WITH_SCHEMA)}"


def schema_registry(shared: ClusterOptions, url: str | None) -> RegistrySchemas | None:
    """The registry of the option, of the named cluster, or of the environment; None for none. Raises CommandError."""
    from ottla.decoding.registry import RegistrySchemas

    source, login, login_source = "--schema-registry", os.environ.get(LOGIN_VARIABLE, ""), LOGIN_VARIABLE
    if url is None and REGISTRY_URL in shared.registry:
        source, login_source = REGISTRY_URL, REGISTRY_LOGIN
        url, login = shared.registry[REGISTRY_URL], shared.registry.get(REGISTRY_LOGIN, "")
    elif url is None:
        source, url = URL_VARIABLE, os.environ.get(URL_VARIABLE, "")
        if not url:
            return None
    if "@" in url:
        raise CommandError(
            f"{source}: the address has a login, which others could read there; leave user:password@ out, and write "
            f"user:password to {login_source}"
        )
    if not _is_address(url):
        raise CommandError(f"{source} {url}: expected the address of a schema registry, as http://host:8081")
    if login and ":" not in login:
        raise CommandError(f"{login_source}: expected user:password")
    cure = f"check {source}, and that the registry runs"
    return RegistrySchemas(url, round(shared.timeout_s * 1000), cure, login, f"{login_source} is its user:password")


def _is_address(url: str) -> bool:
    try:
        split_url = urlsplit(url)
        return split_url.scheme in ("http", "https") and bool(split_url.hostname) and split_url.port != 0
    except ValueError:
        return False


class _Undecoded:
    """Reports keys and values that are not decoded."""

    def __init__(self, command: Command, is_strict: bool) -> None:
        self._command = command
        self._is_strict = is_strict
        self._count = 0

    def report(self, record: ConsumerRecord[Any, Any], name: str, reason: str) -> bool:
        """Report one; returns whether the next record is read."""
        from ottla.ops.record_rows import record_place

        self._count += 1
        if self._count <= MOST_REPORTED:
            shown = "" if self._is_strict else ", and shown as it is"
            self._command.report(f"{record_place(record)}: its {name} cannot be decoded{shown}: {reason}")
        if self._count == MOST_REPORTED and not self._is_strict:
            self._command.report(f"these are {MOST_REPORTED}; further ones are shown as they are, and not reported")
        return not self._is_strict
