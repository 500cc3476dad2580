"""Schemas that `ottla produce` writes keys and values by: options, and encoders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import CommandError
from ottla.cli.record_schemas import (
    PROTOBUF_FORMAT,
    SchemaField,
    SchemaOptions,
    message_of,
    require_protobuf,
    schema_registry,
)

if TYPE_CHECKING:
    from ottla.cli.options import ClusterOptions
    from ottla.decoding.registry import RegisteredSchema, RegistrySchemas
    from ottla.ops.record_encoding import FieldEncoder, RecordEncoder

WrittenKeySchema = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The schema of keys [the newest of the registry's subject TOPIC-key]."),
]
WrittenValueSchema = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The schema of values [the newest of the registry's subject TOPIC-value]."),
]
RegisterSchema = Annotated[
    bool, typer.Option("--register-schema", help="Register the schemas of these files in the registry.")
]


def record_encoder(
    shared: ClusterOptions, topic: str, formats: tuple[str, str], options: SchemaOptions, *, is_registered: bool
) -> RecordEncoder | None:
    """Encoder of keys and values by their two formats; None where neither has a schema. Raises CommandError.

    With a registry, schemas are the newest ones of the subjects TOPIC-key and TOPIC-value, or those of the files, which
    the subjects have, or get with `is_registered`.
    """
    fields = options.fields(formats)
    if is_registered and all(each.file is None for each in fields):
        raise CommandError("--register-schema registers the schema of --key-schema or --value-schema; name its FILE")
    if not any(each.has_schema for each in fields):
        return None
    from ottla.ops.record_encoding import RecordEncoder

    registry = schema_registry(shared, options.registry)
    if is_registered and registry is None:
        raise CommandError("--register-schema needs the registry: --schema-registry URL")

    def encoder(field: SchemaField) -> FieldEncoder | None:
        if not field.has_schema:
            return None
        if field.format == PROTOBUF_FORMAT:
            return _protobuf_encoder(field, topic, registry)
        return _avro_encoder(field, topic, registry, is_registered=is_registered)

    key, value = map(encoder, fields)
    return RecordEncoder(key, value)


def _avro_encoder(
    field: SchemaField, topic: str, registry: RegistrySchemas | None, *, is_registered: bool
) -> FieldEncoder:
    from ottla.decoding.avro_schemas import AvroSchemaError
    from ottla.decoding.avro_writing import AvroEncoder
    from ottla.decoding.framing import frame_head
    from ottla.decoding.registry import AVRO
    from ottla.ops.record_encoding import FieldEncoder

    subject = f"{topic}-{field.name}"
    if field.file is None:
        found = _newest(field.known(registry), field, subject, AVRO)
        try:
            return FieldEncoder(AvroEncoder(found.schema), frame_head(found.schema_id))
        except AvroSchemaError as problem:
            raise CommandError(f"the schema of subject {subject} cannot be read: {problem}") from None
    schema = field.schema()
    try:
        encoder = AvroEncoder(schema)
    except AvroSchemaError as problem:
        raise CommandError(f"--{field.name}-schema {field.file}: {problem}") from None
    if registry is None:
        return FieldEncoder(encoder)
    schema_id = registry.register(subject, schema) if is_registered else registry.id_of(subject, schema)
    if schema_id is None:
        raise CommandError(
            f"--{field.name}-schema {field.file}: subject {subject} of the registry does not have this schema; "
            "--register-schema registers it there"
        )
    return FieldEncoder(encoder, frame_head(schema_id))


def _protobuf_encoder(field: SchemaField, topic: str, registry: RegistrySchemas | None) -> FieldEncoder:
    require_protobuf(field)
    from ottla.decoding.framing import encode_indexes, frame_head
    from ottla.decoding.protobuf_messages import message_in, message_paths
    from ottla.decoding.protobuf_values import ProtobufEncoder, registered_file
    from ottla.decoding.registry import PROTOBUF
    from ottla.decoding.values import ProtobufSchemaError
    from ottla.ops.record_encoding import FieldEncoder

    if field.file is not None:
        if registry is not None:
            raise CommandError(
                f"--{field.name}-schema with a descriptor set is for {field.name}s without a registry; name none, or "
                f"leave the file out, and the newest schema of subject {topic}-{field.name} is taken"
            )
        return FieldEncoder(ProtobufEncoder(message_of(field)))
    subject = f"{topic}-{field.name}"
    found = _newest(replace(field.known(registry), is_serialized=True), field, subject, PROTOBUF)
    try:
        message = message_in(registered_file(found.schema), field.message)
    except ProtobufSchemaError as problem:
        raise CommandError(f"the schema of subject {subject}: {problem}") from None
    head = frame_head(found.schema_id) + encode_indexes(message_paths(message)[0])
    return FieldEncoder(ProtobufEncoder(message), head)


def _newest(registry: RegistrySchemas, field: SchemaField, subject: str, kind: str) -> RegisteredSchema:
    from ottla.decoding.registry import AVRO

    found = registry.latest(subject)
    if found is None:
        cure = f"; --{field.name}-schema FILE --register-schema registers a schema there" if kind == AVRO else ""
        raise CommandError(f"the schema registry has no subject {subject}{cure}")
    if found.schema.kind != kind:
        raise CommandError(f"the schema of subject {subject} is {found.schema.kind}, not {kind}")
    return found
