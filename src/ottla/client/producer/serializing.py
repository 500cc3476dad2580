"""Serialization of keys and values before a record is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.client.configs import ProducerConfig
from ottla.client.errors import SerializationError
from ottla.client.producer.futures import Callback
from ottla.client.producer.record import SendHeaders, checked_headers
from ottla.client.serialization import BytesSerializer, Serializer, close_each, make_serializer

Outcome = TypeVar("Outcome")


class SerializingAppend(Generic[Outcome]):
    """Serializes keys and values, then appends. `append` gets the bytes, and last the original key and value."""

    def __init__(self, config: ProducerConfig, append: Callable[..., Outcome]) -> None:
        self._append = append
        self._key = make_serializer(config.key_serializer, config.originals, is_key=True)
        self._value = make_serializer(config.value_serializer, config.originals, is_key=False)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to serialize: else keys and values are bytes, and `append` is enough."""
        return type(self._key) is not BytesSerializer or type(self._value) is not BytesSerializer

    def take(
        self,
        topic: str,
        partition: int | None,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: SendHeaders,
        callback: Callback | None = None,
    ) -> Outcome:
        """Serialize, then return the result of `append`. Raises SerializationError."""
        checked = checked_headers(headers) if headers else ()
        serialized = []
        for what, serializer, data in (("key", self._key, key), ("value", self._value, value)):
            try:
                serialized.append(serializer.serialize(topic, checked, data))
            except SerializationError:
                raise
            except Exception as error:  # user code
                raise _failed(what, serializer, data, topic, error) from error
        return self._append(topic, partition, timestamp, *serialized, checked, callback, (key, value))

    def close(self) -> None:
        """Close the serializers."""
        close_each((self._key, self._value))


def _failed(what: str, serializer: Serializer[Any], data: Any, topic: str, error: Exception) -> SerializationError:
    function = getattr(serializer, "function", type(serializer))
    name = getattr(function, "__qualname__", repr(function))
    return SerializationError(
        f"the {what} of a record for topic {topic} cannot be serialized by {name}, which got {type(data).__name__} "
        f"({type(error).__name__}: {error})"
    )
