"""Ids of topics and clusters as text: 16 bytes in URL-safe base64 without padding, as Kafka's `Uuid` prints them."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID


def format_uuid(value: UUID) -> str:
    """Format an id as 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Parse an id. Raises ValueError."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id: {error}") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not an id: it stands for {len(raw)} bytes, not 16")
    return UUID(bytes=raw)
