"""Serializers and deserializers of keys and values.

The formats are those of Apache Kafka 3.9's `org.apache.kafka.common.serialization`, compatible with Java in both
directions. None stays None.
"""

from ottla.client.serialization.basic import ByteBufferDeserializer as ByteBufferDeserializer
from ottla.client.serialization.basic import ByteBufferSerializer as ByteBufferSerializer
from ottla.client.serialization.basic import BytesDeserializer as BytesDeserializer
from ottla.client.serialization.basic import BytesSerializer as BytesSerializer
from ottla.client.serialization.basic import CallableDeserializer as CallableDeserializer
from ottla.client.serialization.basic import CallableSerializer as CallableSerializer
from ottla.client.serialization.basic import StringDeserializer as StringDeserializer
from ottla.client.serialization.basic import StringSerializer as StringSerializer
from ottla.client.serialization.interfaces import Deserializer as Deserializer
from ottla.client.serialization.interfaces import Serializer as Serializer
from ottla.client.serialization.lists import ListDeserializer as ListDeserializer
from ottla.client.serialization.lists import ListSerializer as ListSerializer
from ottla.client.serialization.making import close_each as close_each
from ottla.client.serialization.making import deserialize_function as deserialize_function
from ottla.client.serialization.making import make_deserializer as make_deserializer
from ottla.client.serialization.making import make_deserializers as make_deserializers
from ottla.client.serialization.making import make_serializer as make_serializer
from ottla.client.serialization.scalars import BooleanDeserializer as BooleanDeserializer
from ottla.client.serialization.scalars import BooleanSerializer as BooleanSerializer
from ottla.client.serialization.scalars import DoubleDeserializer as DoubleDeserializer
from ottla.client.serialization.scalars import DoubleSerializer as DoubleSerializer
from ottla.client.serialization.scalars import FloatDeserializer as FloatDeserializer
from ottla.client.serialization.scalars import FloatSerializer as FloatSerializer
from ottla.client.serialization.scalars import IntegerDeserializer as IntegerDeserializer
from ottla.client.serialization.scalars import IntegerSerializer as IntegerSerializer
from ottla.client.serialization.scalars import LongDeserializer as LongDeserializer
from ottla.client.serialization.scalars import LongSerializer as LongSerializer
from ottla.client.serialization.scalars import ShortDeserializer as ShortDeserializer
from ottla.client.serialization.scalars import ShortSerializer as ShortSerializer
from ottla.client.serialization.scalars import UUIDDeserializer as UUIDDeserializer
from ottla.client.serialization.scalars import UUIDSerializer as UUIDSerializer
from ottla.client.serialization.scalars import VoidDeserializer as VoidDeserializer
from ottla.client.serialization.scalars import VoidSerializer as VoidSerializer
