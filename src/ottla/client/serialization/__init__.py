"""Serializers and deserializers of keys and values.

The formats are those of Apache Kafka 3.9's `org.apache.kafka.common.serialization`, compatible with Java in both
directions. None stays None.
"""

from ottla.client.serialization.basic import (
    ByteBufferDeserializer,
    ByteBufferSerializer,
    BytesDeserializer,
    BytesSerializer,
    CallableDeserializer,
    CallableSerializer,
    StringDeserializer,
    StringSerializer,
)
from ottla.client.serialization.interfaces import Deserializer, Serializer
from ottla.client.serialization.lists import ListDeserializer, ListSerializer
from ottla.client.serialization.making import close_each, deserialize_function, make_deserializer, make_serializer
from ottla.client.serialization.scalars import (
    BooleanDeserializer,
    BooleanSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    FloatDeserializer,
    FloatSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    LongDeserializer,
    LongSerializer,
    ShortDeserializer,
    ShortSerializer,
    UUIDDeserializer,
    UUIDSerializer,
    VoidDeserializer,
    VoidSerializer,
)

__all__ = [
    "BooleanDeserializer",
    "BooleanSerializer",
    "ByteBufferDeserializer",
    "ByteBufferSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "CallableDeserializer",
    "CallableSerializer",
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FloatDeserializer",
    "FloatSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "ListDeserializer",
    "ListSerializer",
    "LongDeserializer",
    "LongSerializer",
    "Serializer",
    "ShortDeserializer",
    "ShortSerializer",
    "StringDeserializer",
    "StringSerializer",
    "UUIDDeserializer",
    "UUIDSerializer",
    "VoidDeserializer",
    "VoidSerializer",
    "close_each",
    "deserialize_function",
    "make_deserializer",
    "make_serializer",
]
