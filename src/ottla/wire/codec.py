"""Encoding and decoding of declared messages: the entrance to the compiled codec."""

from __future__ import annotations

from typing import TypeVar

from ottla.wire import reference
from ottla.wire.errors import WireError
from ottla.wire.schema import Message

__all__ = ["WireError", "decode", "decode_prefix", "encode"]

M = TypeVar("M", bound=Message)


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message in a version. Raises WireError when the version cannot express it."""
    return reference.encode(message, version)


def decode(cls: type[M], data: bytes | memoryview, version: int, offset: int = 0) -> M:
    """The message in the bytes from `offset` to the end. Raises WireError for anything else."""
    decoded, end = decode_prefix(cls, data, version, offset)
    if end != len(data):
        raise WireError(f"{len(data) - end} bytes after the end of {cls.__name__} version {version}")
    return decoded


def decode_prefix(cls: type[M], data: bytes | memoryview, version: int, offset: int = 0) -> tuple[M, int]:
    """The message at `offset` and where it ends. Raises WireError when there is none."""
    return reference.decode_prefix(cls, data, version, offset)
