"""Keys and values that have a schema: in the framing of a registry, each with its own, or all with one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.decoding.framing import MAGIC, NO_FRAMING, split_frame
from ottla.decoding.registry import Schemas, SchemaText
from ottla.inspection.texts import PlainText

#: Makes text of a key or value: JSON, or of a text the text itself. Raises UndecodableError, SchemaRegistryError.
Decode = Callable[[bytes], bytes]

#: Decoders of as many schemas are kept.
MAX_DECODERS: Final = 200
#: Bytes in JSON: each is the character of its number.
BYTES_AS_TEXT: Final = "iso-8859-1"
FRAMED_HINT: Final = "; it begins with a byte 0: if a schema registry has its schema, name the registry"


class ProtobufSchemaError(ValueError):
    """A descriptor set or a message that cannot be decoded; the message says what to do."""


class UndecodableError(ValueError):
    """A key or value that is not one of its schema; the message says why."""


class UnfitError(ValueError):
    """A value that its schema does not have; the message names the field."""


class Encoder(Protocol):
    """Writes values of JSON by one schema. `takes_text` says whether a text is such a value."""

    takes_text: bool

    def encode(self, value: Any) -> bytes:
        """Bytes of the value. Raises UnfitError."""
        ...


class FramedValues:
    """Decodes values whose framing names their schema, all of one `kind`.

    `make` makes the decoder of a schema's values, and raises ValueError where it is not such a schema.
    """

    def __init__(self, schemas: Schemas, kind: str, make: Callable[[SchemaText], Decode]) -> None:
        self._schemas = schemas
        self._kind = kind
        self._make = make
        self._by_id: dict[int, Decode | str] = {}

    def __call__(self, data: bytes) -> bytes:
        """The text of a value. Raises UndecodableError, SchemaRegistryError."""
        frame = split_frame(data)
        if frame is None:
            raise UndecodableError(NO_FRAMING)
        schema_id, body = frame
        if schema_id not in self._by_id:
            if len(self._by_id) >= MAX_DECODERS:
                self._by_id.clear()
            self._by_id[schema_id] = self._decoder(schema_id)
        decode = self._by_id[schema_id]
        if isinstance(decode, str):
            raise UndecodableError(decode)
        return decode(body)

    def _decoder(self, schema_id: int) -> Decode | str:
        """The decoder of a schema's values, or why there is none."""
        found = self._schemas.get(schema_id)
        if found is None:
            return f"schema {schema_id} is not in the schema registry"
        if found.kind != self._kind:
            return f"schema {schema_id} is {found.kind}, not {self._kind}"
        try:
            return self._make(found)
        except ValueError as problem:
            return f"schema {schema_id} cannot be read: {problem}"


def unframed(decode: Decode) -> Decode:
    """Decodes values without framing; of one that seems to have it the message says so."""

    def decode_plain(data: bytes) -> bytes:
        try:
            return decode(data)
        except UndecodableError as problem:
            hint = FRAMED_HINT if data[:1] == bytes([MAGIC]) else ""
            raise UndecodableError(f"{problem}{hint}") from None

    return decode_plain


def text_of(value: Any) -> bytes:
    """A text, or bytes, as they are; all else as JSON."""
    if isinstance(value, str | bytes):
        return PlainText(value if isinstance(value, bytes) else value.encode())
    return _json(value).encode()


def _json(value: Any) -> str:
    def dumped(each: Any) -> str:
        return json.dumps(each, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_bytes_text)

    try:
        return dumped(value)
    except ValueError:
        return dumped(_finite(value))


def _bytes_text(value: bytes) -> str:
    return value.decode(BYTES_AS_TEXT)


def _finite(value: Any) -> Any:
    """A value with texts for the numbers that JSON lacks: NaN, Infinity, -Infinity."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
