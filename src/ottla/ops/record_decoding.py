"""Records whose keys and values are decoded to text; what cannot be decoded stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.decoding.values import Decode, UndecodableError
from ottla.records.consumed import ConsumerRecord

Bytes = bytes | None


class RecordDecoder:
    """Decodes keys and values, each where there is a function for it.

    `on_failure` gets the record, `key` or `value`, and the cause; where it returns false, the records end before it.
    `is_ended` then is true, and `passed` the number of records of the list that came before.
    """

    def __init__(
        self,
        key: Decode | None,
        value: Decode | None,
        on_failure: Callable[[ConsumerRecord[Bytes, Bytes], str, str], bool],
    ) -> None:
        self._key = key
        self._value = value
        self._on_failure = on_failure
        self.is_ended = False
        self.passed = 0

    def decoded(self, records: Iterable[ConsumerRecord[Bytes, Bytes]]) -> Iterator[ConsumerRecord[Bytes, Bytes]]:
        """Yield the records of a list decoded. Raises SchemaRegistryError."""
        self.passed = 0
        for record in records:
            key = self._text(record, "key", self._key, record.key)
            value = self._text(record, "value", self._value, record.value)
            if self.is_ended:
                return
            self.passed += 1
            yield record._replace(key=key, value=value)

    def _text(self, record: ConsumerRecord[Bytes, Bytes], name: str, decode: Decode | None, data: Bytes) -> Bytes:
        if decode is None or data is None or self.is_ended:
            return data
        try:
            return decode(data)
        except UndecodableError as problem:
            self.is_ended = not self._on_failure(record, name, str(problem))
            return data
