"""All settings of clients, by kind of client and name.

Names, types, defaults and valid values are those of Apache Kafka 3.9's ProducerConfig, ConsumerConfig and
AdminClientConfig, except for those in `OTHER_DEFAULTS` (docs/decisions/0042).
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.client.configs.declarations import admin, consumer, producer, security, shared
from ottla.config.settings import NO_EFFECT, Setting

ClientRow: TypeAlias = tuple[str, str, str | None, str, str, str, str]
"""Name, type, default, valid values, importance, effect, documentation."""

OTHER_DEFAULTS = {"send.buffer.bytes": "-1", "receive.buffer.bytes": "-1"}
"""Defaults that differ from Java's: a fixed socket buffer size would disable the kernel's autotuning."""

PRODUCER = "producer"
CONSUMER = "consumer"
ADMIN = "admin"

WITHOUT_EFFECT = {ADMIN: frozenset(("metrics.num.samples", "metrics.sample.window.ms"))}
"""Settings that have an effect in other clients, but not in these: an admin client has no metrics."""


def _table(client: str, *groups: tuple[ClientRow, ...]) -> dict[str, Setting]:
    without_effect = WITHOUT_EFFECT.get(client, frozenset())
    return {
        name: Setting(
            name,
            kind,
            OTHER_DEFAULTS.get(name, default),
            valid,
            importance,
            "read-only",
            NO_EFFECT if name in without_effect else effect,
            documentation,
        )
        for rows in groups
        for name, kind, default, valid, importance, effect, documentation in rows
    }


SETTINGS_OF: dict[str, dict[str, Setting]] = {
    PRODUCER: _table(PRODUCER, producer.ROWS, shared.ROWS, security.ROWS),
    CONSUMER: _table(CONSUMER, consumer.ROWS, shared.ROWS, security.ROWS),
    ADMIN: _table(ADMIN, admin.ROWS, shared.ROWS, security.ROWS),
}
"""The settings of each kind of client, by name."""

OF_BUILT_IN_CLASSES: dict[str, frozenset[str]] = {
    PRODUCER: frozenset(("key.serializer.encoding", "value.serializer.encoding", "serializer.encoding")),
    CONSUMER: frozenset(("key.deserializer.encoding", "value.deserializer.encoding", "deserializer.encoding")),
    ADMIN: frozenset(),
}
"""Settings that Kafka does not declare, since its serializers read them themselves."""

CLASS_LISTS = frozenset(("interceptor.classes", "metric.reporters", "partition.assignment.strategy"))
"""Lists of classes, objects or their names."""

CASE_INSENSITIVE = frozenset(("group.protocol", "metadata.recovery.strategy"))
"""Compared in lower case."""

_SIZES_IN_BYTES = frozenset(("batch.size", "buffer.memory", "max.request.size"))


def unit_of(setting: Setting) -> str:
    """The unit of a number: `ms`, `s`, `bytes`, or nothing."""
    if setting.name.endswith(".bytes") or setting.name in _SIZES_IN_BYTES:
        return "bytes"
    if setting.name.endswith(".ms"):
        return "ms"
    return "s" if setting.name.endswith(".seconds") else ""


def attribute_of(name: str) -> str:
    """The Python name of a setting: `linger.ms` is `linger_ms`."""
    return name.replace(".", "_")
