"""Encoding and decoding of declared messages: the entrance to the compiled codec.

A function is compiled when a class is first read or written in a version, and kept (`ottla.wire.compile`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar

from ottla.wire.compile import Decoder, Encoder, compile_decoder, compile_encoder, has_records
from ottla.wire.errors import WireError
from ottla.wire.schema import Message, Schema, Struct
from ottla.wire.strings import too_long

__all__ = ["WireError", "decode", "decode_prefix", "encode"]

M = TypeVar("M", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in a version.

    Raises WireError when the version cannot express it: a value out of range, None where null is not allowed, a
    field set that the version does not have and that must not be dropped.
    """
    return b"".join(encode_parts(message, version))


def encode_parts(message: Message, version: int) -> list[Any]:
    """As `encode`, not yet joined: bytes and records are in the list as they were given. Raises WireError likewise."""
    encoder = message.SCHEMA.encoders.get(version) or _encoder(type(message), version)
    parts: list[Any] = []
    try:
        encoder(message, parts.append)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise _not_encoded(message, version, error) from error
    except WireError as error:
        raise _not_encoded(message, version, error) from None
    return parts


def _not_encoded(message: Message, version: int, error: Exception) -> WireError:
    why = _too_long_string(message, version) or error
    return WireError(f"{message.SCHEMA.name} version {version} cannot be encoded: {why}")


def _too_long_string(value: Any, version: int, name: str = "") -> str | None:
    """The problem of the first string that is too long, else None: the compiled encoders know no names."""
    if isinstance(value, str):
        problem = too_long(value)
        return None if problem is None else f"{name} {problem}"
    found: Iterable[str | None] = ()
    if isinstance(value, Struct):
        fields = [each for each in value.SCHEMA.fields if each.present(version)]
        found = (_too_long_string(getattr(value, each.name, None), version, each.name) for each in fields)
    elif isinstance(value, list):
        found = (_too_long_string(each, version, name) for each in value)
    return next(filter(None, found), None)


def decode(cls: type[M], data: bytes | memoryview, version: int, offset: int = 0) -> M:
    """The message in the bytes from `offset` to the end. Raises WireError for anything else."""
    decoded, end = decode_prefix(cls, data, version, offset)
    if end != len(data):
        raise WireError(f"{cls.SCHEMA.name} version {version} is followed by {len(data) - end} bytes too many")
    return decoded


def decode_prefix(cls: type[M], data: bytes | memoryview, version: int, offset: int = 0) -> tuple[M, int]:
    """The message at `offset` and where it ends. Raises WireError when there is none.

    Records come out as slices of `data` (of a memoryview of it, if it is bytes), so that they are writable if `data`
    is; everything else is copied.
    """
    schema = cls.SCHEMA
    decoder = schema.decoders.get(version) or _decoder(cls, version)
    base = 0
    if schema.has_records:
        data = memoryview(data)
    elif not isinstance(data, bytes):
        data = bytes(data[offset:])
        base, offset = offset, 0
    try:
        decoded, end = decoder(data, offset)
    except (struct.error, IndexError):
        raise WireError(f"{schema.name} version {version} ends too early, after {len(data)} bytes") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{schema.name} version {version} has a string that is not UTF-8: {error}") from None
    except WireError as error:
        raise WireError(f"{schema.name} version {version} is malformed: {error}") from None
    return decoded, base + end


def _encoder(cls: type[Message], version: int) -> Encoder:
    schema = _checked(cls, version)
    encoder = compile_encoder(cls, version, flexible=version >= schema.flexible_since)
    schema.encoders[version] = encoder
    return encoder


def _decoder(cls: type[Message], version: int) -> Decoder:
    schema = _checked(cls, version)
    decoder = compile_decoder(cls, version, flexible=version >= schema.flexible_since)
    schema.has_records = has_records(cls)
    schema.decoders[version] = decoder
    return decoder


def _checked(cls: type[Message], version: int) -> Schema:
    schema = cls.SCHEMA
    first, last = schema.versions
    if not first <= version <= last:
        raise WireError(f"{schema.name} has the versions {first} to {last}, not {version}")
    return schema
