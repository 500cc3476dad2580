"""All settings of clients, by kind of client and name.

Names, types, defaults and valid values are those of Apache Kafka 3.9's ProducerConfig, ConsumerConfig and
AdminClientConfig, except for those in `OTHER_DEFAULTS` (docs/decisions/0042).
"""

from __future__ import annotations

from ottla.config.settings import NO_EFFECT, REFUSED, SECTIONS, Setting

OTHER_DEFAULTS = {"send.buffer.bytes": "-1", "receive.buffer.bytes": "-1"}
"""Defaults that differ from Java's: a fixed socket buffer size would disable the kernel's autotuning."""

PRODUCER = "producer"
CONSUMER = "consumer"
ADMIN = "admin"

WITHOUT_EFFECT = {ADMIN: frozenset(("metrics.num.samples", "metrics.sample.window.ms"))}
"""Settings that have an effect in other clients, but not in these: an admin client has no metrics."""


_SECURITY_OF_BROKERS_ONLY = (
    "sasl.enabled.mechanisms",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.mechanism.",
    "sasl.server.",
    "ssl.allow.",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)

SECURITY = SECTIONS["security of clients"] | {
    name: setting._replace(
        default=None if name == "ssl.cipher.suites" else setting.default,
        valid="",
        update_mode="read-only",
        effect=REFUSED,
    )
    for name, setting in SECTIONS["security"].items()
    if name.startswith(("sasl.", "ssl.", "security.providers")) and not name.startswith(_SECURITY_OF_BROKERS_ONLY)
}
"""Settings of TLS and SASL, which are not supported yet: those of clients only, and those shared with brokers."""


def _table(client: str) -> dict[str, Setting]:
    settings = SECTIONS[client] | SECTIONS["clients"] | SECURITY
    for name in WITHOUT_EFFECT.get(client, ()):
        settings[name] = settings[name]._replace(effect=NO_EFFECT)
    for name in OTHER_DEFAULTS.keys() & settings.keys():
        settings[name] = settings[name]._replace(default=OTHER_DEFAULTS[name])
    return settings


SETTINGS_OF: dict[str, dict[str, Setting]] = {client: _table(client) for client in (PRODUCER, CONSUMER, ADMIN)}
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
