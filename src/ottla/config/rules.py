"""Rules between the settings of a broker, in Apache Kafka's words (KafkaConfig.validateValues)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.config.listeners import connections_of_hosts

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_COMPRESSION_CODECS = 5
OVERRIDES = "max.connections.per.ip.overrides"
_TLS_LISTENERS = ("ottla.metrics.tls.listener", "ottla.zookeeper.tls.listener")


def retention_ms(config: BrokerConfig) -> int:
    """Retention time in milliseconds out of the three settings for it; -1 for ever."""
    milliseconds = config.get_int_or_none("log.retention.ms")
    if milliseconds is None:
        minutes = config.get_int_or_none("log.retention.minutes")
        milliseconds = config.get_int("log.retention.hours") * 3_600_000 if minutes is None else minutes * 60_000
    return -1 if milliseconds < 0 else milliseconds


def roll_ms(config: BrokerConfig) -> int:
    """Roll time of a segment in milliseconds."""
    milliseconds = config.get_int_or_none("log.roll.ms")
    return config.get_int("log.roll.hours") * 3_600_000 if milliseconds is None else milliseconds


def roll_jitter_ms(config: BrokerConfig) -> int:
    """Largest jitter of the roll time in milliseconds."""
    milliseconds = config.get_int_or_none("log.roll.jitter.ms")
    return config.get_int("log.roll.jitter.hours") * 3_600_000 if milliseconds is None else milliseconds


def flush_ms(config: BrokerConfig) -> int:
    """Flush time in milliseconds."""
    milliseconds = config.get_int_or_none("log.flush.interval.ms")
    return config.get_int("log.flush.scheduler.interval.ms") if milliseconds is None else milliseconds


def _has_addresses(config: BrokerConfig) -> bool:
    try:
        return all(number >= 0 for number in connections_of_hosts(config.get_string(OVERRIDES)).values())
    except ValueError:
        return False


def super_users(text: str) -> list[str]:
    """The principals in `super.users`, each as in `User:admin`."""
    return [each for part in text.split(";") if (each := part.strip())]


def broken_rules(config: BrokerConfig, log_dirs: Sequence[str]) -> list[str]:
    """Every rule that the settings break, in Kafka's words."""
    rules = _broker_id_rules(config) + _log_rules(config, log_dirs) + _replica_rules(config) + _other_rules(config)
    return [message for holds, message in rules if not holds]


def _broker_id_rules(config: BrokerConfig) -> list[tuple[bool, str]]:
    broker_id = config.get_int("broker.id")
    if config.get_boolean("broker.id.generation.enable"):
        return [
            (
                -1 <= broker_id <= config.get_int("reserved.broker.max.id"),
                "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
            )
        ]
    return [(broker_id >= 0, "broker.id must be greater than or equal to 0")]


def _log_rules(config: BrokerConfig, log_dirs: Sequence[str]) -> list[tuple[bool, str]]:
    return [
        (roll_ms(config) >= 1, "log.roll.ms must be greater than or equal to 1"),
        (roll_jitter_ms(config) >= 0, "log.roll.jitter.ms must be greater than or equal to 0"),
        (retention_ms(config) != 0, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (bool(log_dirs), "At least one log directory must be defined via log.dirs or log.dir."),
    ]


def _replica_rules(config: BrokerConfig) -> list[tuple[bool, str]]:
    wait = config.get_int("replica.fetch.wait.max.ms")
    return [
        (
            wait <= config.get_int("replica.socket.timeout.ms"),
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts",
        ),
        (
            wait <= config.get_int("replica.lag.time.max.ms"),
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR",
        ),
    ]


def _other_rules(config: BrokerConfig) -> list[tuple[bool, str]]:
    acks = config.get_int("offsets.commit.required.acks")
    codec = config.get_int("offsets.topic.compression.codec")
    queued_bytes = config.get_int("queued.max.request.bytes")
    delay = config.get_int("connection.failed.authentication.delay.ms")
    idle = config.get_int("connections.max.idle.ms")
    return [
        (
            -1 <= acks <= config.get_int("offsets.topic.replication.factor"),
            "offsets.commit.required.acks must be greater or equal to -1 and less or equal to "
            "offsets.topic.replication.factor",
        ),
        (0 <= codec < _COMPRESSION_CODECS, f"Unknown compression type id: {codec}"),
        (
            queued_bytes <= 0 or queued_bytes >= config.get_int("socket.request.max.bytes"),
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (
            config.get_int("max.connections.per.ip") > 0 or config.get_string("max.connections.per.ip.overrides") != "",
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ),
        (
            all(":" in each for each in super_users(config.get_string("super.users"))),
            "super.users has to name principals apart by semicolons, as in User:admin;User:kafka",
        ),
        (
            _has_addresses(config),
            "max.connections.per.ip.overrides has to name addresses, as in 127.0.0.1:100,10.0.0.7:5",
        ),
        (
            idle <= 0 or delay < idle,
            f"connection.failed.authentication.delay.ms={delay} should always be less than "
            f"connections.max.idle.ms={idle} to prevent failed authentication responses from timing out",
        ),
        (
            not config.get_string_or_none("zookeeper.connect") or config.get_int("ottla.zookeeper.port") < 0,
            "ottla.zookeeper.port (--zookeeper-port) serves the embedded coordination metadata, and "
            "zookeeper.connect (--zookeeper) names another; give one of them",
        ),
        *(_names_tls(config, name) for name in _TLS_LISTENERS),
    ]


def _names_tls(config: BrokerConfig, name: str) -> tuple[bool, str]:
    listener = config.get_string_or_none(name)
    secured = ", ".join(each.listener_name for each in config.listeners if each.uses_tls) or "none"
    return (
        listener is None or config.has_tls(listener),
        f"{name}={listener} names no listener with TLS; those of this broker are: {secured}",
    )
