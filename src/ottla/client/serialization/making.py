"""Creates and configures the serializers that settings name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.client.configs.consumer import ConsumerConfig
from ottla.client.configs.instances import configure, make_instance
from ottla.client.configs.settings import CONSUMER, PRODUCER
from ottla.client.errors import InvalidConfigError
from ottla.client.serialization import basic, scalars
from ottla.client.serialization.interfaces import Deserializer, Serializer, shown
from ottla.records.headers import Headers

logger = logging.getLogger(__name__)

SERIALIZERS: dict[str, type] = {
    "StringSerializer": basic.StringSerializer,
    "ByteArraySerializer": basic.BytesSerializer,
    "BytesSerializer": basic.BytesSerializer,
    "ByteBufferSerializer": basic.ByteBufferSerializer,
    "ShortSerializer": scalars.ShortSerializer,
    "IntegerSerializer": scalars.IntegerSerializer,
    "LongSerializer": scalars.LongSerializer,
    "FloatSerializer": scalars.FloatSerializer,
    "DoubleSerializer": scalars.DoubleSerializer,
    "BooleanSerializer": scalars.BooleanSerializer,
    "UUIDSerializer": scalars.UUIDSerializer,
    "VoidSerializer": scalars.VoidSerializer,
}
"""By Java class name."""

DESERIALIZERS: dict[str, type] = {
    "StringDeserializer": basic.StringDeserializer,
    "ByteArrayDeserializer": basic.BytesDeserializer,
    "BytesDeserializer": basic.BytesDeserializer,
    "ByteBufferDeserializer": basic.ByteBufferDeserializer,
    "ShortDeserializer": scalars.ShortDeserializer,
    "IntegerDeserializer": scalars.IntegerDeserializer,
    "LongDeserializer": scalars.LongDeserializer,
    "FloatDeserializer": scalars.FloatDeserializer,
    "DoubleDeserializer": scalars.DoubleDeserializer,
    "BooleanDeserializer": scalars.BooleanDeserializer,
    "UUIDDeserializer": scalars.UUIDDeserializer,
    "VoidDeserializer": scalars.VoidDeserializer,
}
"""By Java class name."""


def make_serializer(value: object, config: Mapping[str, Any], *, is_key: bool) -> Serializer[Any]:
    """Return the serializer for `key.serializer` or `value.serializer`; for None one that passes bytes through.

    Instances created here, from a class or name, are configured with the client's settings; a given object is not.
    Raises InvalidConfigError, SerializationError for an unknown encoding.
    """
    setting = f"{'key' if is_key else 'value'}.serializer"
    made = _make(PRODUCER, setting, value, config, "serialize", is_key=is_key)
    if callable(getattr(made, "serialize", None)):
        return made  # type: ignore[no-any-return]
    return basic.CallableSerializer(_function(PRODUCER, setting, made, "serialize"))


def make_deserializer(value: object, config: Mapping[str, Any], *, is_key: bool) -> Deserializer[Any]:
    """Return the deserializer for `key.deserializer` or `value.deserializer`; see `make_serializer`."""
    setting = f"{'key' if is_key else 'value'}.deserializer"
    made = _make(CONSUMER, setting, value, config, "deserialize", is_key=is_key)
    if callable(getattr(made, "deserialize", None)):
        return made  # type: ignore[no-any-return]
    return basic.CallableDeserializer(_function(CONSUMER, setting, made, "deserialize"))


def make_deserializers(config: ConsumerConfig) -> list[Deserializer[Any]]:
    """Return the consumer's deserializers of keys and of values; see `make_serializer`."""
    return [
        make_deserializer(config.key_deserializer, config.originals, is_key=True),
        make_deserializer(config.value_deserializer, config.originals, is_key=False),
    ]


def close_each(made: Iterable[object]) -> None:
    """Close the serializers or deserializers that have `close`; errors are logged."""
    for each in made:
        close = getattr(each, "close", None)
        if callable(close):
            try:
                close()
            except Exception:  # user code: it must not keep the client from being closed
                logger.exception("close of %s failed", type(each).__qualname__)


def deserialize_function(deserializer: Deserializer[Any]) -> Callable[[str, Headers, bytes | None], Any] | None:
    """Return the function that decodes records; None if bytes are passed through, so that no call is needed."""
    return None if type(deserializer) is basic.BytesDeserializer else deserializer.deserialize


def _make(kind: str, setting: str, value: object, config: Mapping[str, Any], method: str, *, is_key: bool) -> Any:
    if value is None:
        value = basic.BytesSerializer if kind == PRODUCER else basic.BytesDeserializer
    if value is str:
        advice = "StringSerializer" if kind == PRODUCER else "StringDeserializer"
        raise InvalidConfigError(kind, [f"{setting}=str would give texts like \"b'...'\". Give {advice}."])
    made, is_new = make_instance(kind, setting, value, SERIALIZERS if kind == PRODUCER else DESERIALIZERS, method)
    if is_new:
        configure(kind, setting, made, config, is_key)
    return made


def _function(kind: str, setting: str, made: object, method: str) -> Callable[[Any], Any]:
    if callable(made):
        return made
    raise InvalidConfigError(
        kind,
        [f"{setting}: {shown(made)} has no {method}(topic, headers, data) and is not a function of one argument."],
    )
