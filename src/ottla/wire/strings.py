"""The limit of strings in Kafka's protocol: their length is a signed number of 16 bits, and compact ones keep it."""

from __future__ import annotations

MAX_STRING_LENGTH = 0x7FFF
_MOST_BYTES_OF_A_LETTER = 4


def too_long(text: str) -> str | None:
    """The reason why a text is too long for the protocol, as the end of a sentence; None where it fits."""
    if len(text) <= MAX_STRING_LENGTH // _MOST_BYTES_OF_A_LETTER:
        return None
    size = len(text.encode(errors="replace"))
    if size <= MAX_STRING_LENGTH:
        return None
    return f"has {size} bytes, and a string of Kafka's protocol has {MAX_STRING_LENGTH} at most"
