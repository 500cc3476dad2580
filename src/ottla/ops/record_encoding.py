"""Records whose keys and values, JSON, are written as their schemas have it, behind a registry's framing or without."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.client.errors import InvalidArgumentError
from ottla.client.producer.record import ProducerRecord
from ottla.decoding.values import Encoder, UnfitError
from ottla.ops.record_rows import parse_json

Bytes = bytes | None


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """The writer of keys or of values, and what stands before each of them."""

    encoder: Encoder
    head: bytes = b""

    def encoded(self, name: str, data: Bytes) -> Bytes:
        """Bytes of JSON, or of a text where the schema has one; null stays null. Raises InvalidArgumentError."""
        if data is None:
            return None
        try:
            return self.head + self.encoder.encode(parse_json(data, ""))
        except (InvalidArgumentError, UnfitError) as problem:
            if self.encoder.takes_text:
                return self._of_text(name, data)
            raise InvalidArgumentError(f"{name}: {problem}") from None

    def _of_text(self, name: str, data: bytes) -> bytes:
        try:
            return self.head + self.encoder.encode(data.decode())
        except UnicodeDecodeError as problem:
            raise InvalidArgumentError(f"{name}: byte {problem.start} is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """Writes keys and values, each where there is an encoder for it."""

    key: FieldEncoder | None
    value: FieldEncoder | None

    @property
    def takes_texts(self) -> tuple[bool, bool]:
        """Whether a text is a key, and a value, of the schemas."""
        key, value = (each is not None and each.encoder.takes_text for each in (self.key, self.value))
        return key, value

    def encoded(self, record: ProducerRecord[Bytes, Bytes]) -> ProducerRecord[Bytes, Bytes]:
        """The record with its key and value written. Raises InvalidArgumentError that names the field."""
        return record._replace(
            key=record.key if self.key is None else self.key.encoded("key", record.key),
            value=record.value if self.value is None else self.value.encoded("value", record.value),
        )
