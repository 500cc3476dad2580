"""All settings of clients, by kind of client and name.

Names, types, defaults and valid values are those of Apache Kafka 3.9's ProducerConfig, ConsumerConfig and
AdminClientConfig, except for those in `OTHER_DEFAULTS` (docs/decisions/0042).
"""

from __future__ import annotations

from ottla.config.settings import HONOURED, NO_EFFECT, REFUSED, SECTIONS, Setting

OWN_SETTINGS = frozenset(
    (
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.password",
        "sasl.tokenauth",
        "sasl.username",
    )
)
"""Settings that clients of Apache Kafka 3.9 do not have: 4.1's for OAUTHBEARER, librdkafka's, and `sasl.tokenauth`."""

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


_LOGIN_CLASS = "sasl.login.class"
_KERBEROS = "sasl.kerberos."
_OF_VALIDATORS = frozenset(
    f"sasl.oauthbearer.{name}"
    for name in (
        "clock.skew.seconds",
        "expected.audience",
        "expected.issuer",
        "jwks.endpoint.refresh.ms",
        "jwks.endpoint.retry.backoff.max.ms",
        "jwks.endpoint.retry.backoff.ms",
        "jwks.endpoint.url",
        "scope.claim.name",
    )
)
"""Settings by which brokers check tokens."""


def _effect(name: str) -> str:
    """The effect of a setting of TLS or SASL in clients."""
    if name in _OF_VALIDATORS:
        return NO_EFFECT
    if name.startswith(_KERBEROS):
        return HONOURED if name == f"{_KERBEROS}service.name" else NO_EFFECT
    if name == "sasl.jaas.config" or (name.startswith(("sasl.login.", "sasl.oauthbearer.")) and name != _LOGIN_CLASS):
        return HONOURED
    if name == "ssl.engine.factory.class" or not name.startswith("ssl."):
        return REFUSED
    return NO_EFFECT if name in _OF_JAVA_ONLY else HONOURED


_OF_JAVA_ONLY = frozenset(
    ("ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm")
)

SECURITY = SECTIONS["security of clients"] | {
    name: setting._replace(
        default=None if name == "ssl.cipher.suites" else setting.default,
        valid="",
        update_mode="read-only",
        effect=_effect(name),
    )
    for name, setting in SECTIONS["security"].items()
    if name.startswith(("sasl.", "ssl.", "security.providers")) and not name.startswith(_SECURITY_OF_BROKERS_ONLY)
}
"""Settings of TLS and SASL: those of clients only, and those shared with brokers."""


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
