"""Avro values as text: JSON, or for a text the text itself.

Unions are their values alone, bytes are text as in Avro's JSON, decimals are texts as `12.30`, other logical types
are the numbers or bytes that they are.
"""

from __future__ import annotations

from typing import Final

from ottla.decoding.avro_resolution import Read, plain_reader
from ottla.decoding.avro_schemas import AvroNode, AvroSchemaError, parse_type
from ottla.decoding.registry import SchemaText
from ottla.decoding.values import Decode, UndecodableError, text_of

_TOO_DEEP: Final = "types are nested too deep"


def avro_node(schema: SchemaText) -> AvroNode:
    """The type that a schema is. Raises AvroSchemaError."""
    try:
        return parse_type(schema.text, schema.references)
    except RecursionError:
        raise AvroSchemaError(_TOO_DEEP) from None


def avro_decoder(schema: SchemaText) -> Decode:
    """Decodes the values that were written with a schema. Raises AvroSchemaError."""
    node = avro_node(schema)
    try:
        read = plain_reader(node)
    except RecursionError:
        raise AvroSchemaError(_TOO_DEEP) from None
    return lambda data: _decoded(read, data)


def _decoded(read: Read, data: bytes) -> bytes:
    try:
        value, end = read(data, 0)
        if end == len(data):
            return text_of(value)
        problem = f"{len(data) - end} bytes are left behind its end"
    except IndexError:
        problem = "it ends too early"
    except RecursionError:
        problem = "values are nested too deep"
    except ValueError as error:
        problem = str(error)
    raise UndecodableError(f"not Avro of its schema: {problem}")
