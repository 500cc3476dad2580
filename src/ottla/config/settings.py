"""All settings of brokers, topics and clients: name, type, default, valid values, scope, effect, documentation.

`settings.tsv` declares each once: a line of tab-separated fields, those of `Setting` after the section. Names, types,
defaults and valid values are those of Apache Kafka 3.9, those of the high-level consumer those of 0.8.2.2 (see
`zkconsumer.highlevel_config`). Settings of our own start with `ottla.`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_NO_DEFAULT: Final = "\\N"

HONOURED = "honoured"
NO_EFFECT = "no_effect"
REFUSED = "refused"


class Setting(NamedTuple):
    """One setting.

    `type` is Kafka's: boolean, string, int, short, long, double, list, class or password. `default` is text as it
    would stand in a properties file, None where there is none. `valid` is the set of values as Kafka's documentation
    writes it (`[1,...]`, `[a, b]`). `update_mode` is read-only, per-broker, cluster-wide or topic. `effect` says what
    becomes of it here: honoured, no_effect (accepted, a warning) or refused (when set to anything but its default).
    """

    name: str
    type: str
    default: str | None
    valid: str
    importance: str
    update_mode: str
    effect: str
    documentation: str

    @property
    def read_only(self) -> bool:
        """Whether it can only be changed by a restart."""
        return self.update_mode == "read-only"

    @property
    def is_sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type == "password"


def _declared() -> dict[str, dict[str, Setting]]:
    assert __spec__ is not None
    path = f"{__file__.rpartition('settings.')[0]}settings.tsv"
    # The loader reads it out of an archive, too, and importing importlib.resources takes milliseconds.
    lines = __spec__.loader.get_data(path).decode().splitlines()  # type: ignore[union-attr]
    sections: dict[str, dict[str, Setting]] = {}
    for line in lines[1:]:
        section, name, kind, default, *rest = line.split("\t")
        setting = Setting(name, kind, None if default == _NO_DEFAULT else default, *rest)
        sections.setdefault(section, {})[name] = setting
    return sections


SECTIONS: Final = _declared()
"""The settings of each section of `settings.tsv`, by name."""

BROKER_SECTIONS: Final = ("server", "log", "groups", "replication", "coordination", "security", "ottla")

BROKER_SETTINGS: dict[str, Setting] = {
    name: setting for section in BROKER_SECTIONS for name, setting in SECTIONS[section].items()
}
"""Every setting of a broker, by name."""

_PASSWORDS: Final = tuple(name for name, setting in BROKER_SETTINGS.items() if setting.is_sensitive)

AUTHORIZER_SETTINGS: Final = frozenset(("allow.everyone.if.no.acl.found", "authorizer.zookeeper.url", "super.users"))
"""Settings of a broker that in Kafka are those of its authorizer: described only where they are set."""

RUN_TIME_SETTINGS: dict[str, Setting] = SECTIONS["run time"]
"""Settings of a broker that are given while it runs, and in no file, by name."""


_OF_LISTENER: Final = "listener.name."
LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
"""Limits of connections that a listener may have beside those of all listeners."""

OAUTH_SETTINGS: Final = frozenset(
    name
    for name, setting in BROKER_SETTINGS.items()
    if name.startswith(("sasl.oauthbearer.", "sasl.login.")) and setting.type != "class"
)
"""Settings of OAUTHBEARER, of all listeners, of one, or of the mechanism of one, the last before the others."""
KERBEROS_SETTINGS: Final = frozenset(name for name in BROKER_SETTINGS if name.startswith("sasl.kerberos."))
"""The same of GSSAPI."""
_LOGINS_OF_LISTENER: Final = (
    OAUTH_SETTINGS | KERBEROS_SETTINGS | {"connections.max.reauth.ms", "sasl.enabled.mechanisms"}
)
_LOGINS_OF_MECHANISM: Final = frozenset(
    (
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.server.callback.handler.class",
    )
)


def listener_prefix(listener_name: str) -> str:
    """The beginning of the names of settings of this listener."""
    return f"{_OF_LISTENER}{listener_name.lower()}."


def broker_setting(name: str) -> Setting | None:
    """A broker's setting, given in a file or while it runs, perhaps for one listener; None for an unknown name."""
    return BROKER_SETTINGS.get(name) or RUN_TIME_SETTINGS.get(name) or _setting_of_one_listener(name)


def is_password(name: str) -> bool:
    """Whether a broker's setting of this name is a password, also one for a listener or a mechanism; Kafka's rule."""
    return name.endswith(_PASSWORDS)


def setting_of_listener(name: str) -> str:
    """The name without the listener that it is for; empty where it is for none."""
    return name[len(_OF_LISTENER) :].partition(".")[2] if name.startswith(_OF_LISTENER) else ""


def is_login_setting(name: str) -> bool:
    """Whether it is a setting of SASL for one listener, or for one mechanism of it."""
    return bool(_base_of_login(setting_of_listener(name)))


def _base_of_login(of_listener: str) -> str:
    """The setting of logins without its mechanism; empty for any other."""
    if of_listener in _LOGINS_OF_LISTENER:
        return of_listener
    mechanism, _, base = of_listener.partition(".")
    of_mechanism = {"oauthbearer": OAUTH_SETTINGS, "gssapi": KERBEROS_SETTINGS}.get(mechanism, frozenset())
    return base if base in _LOGINS_OF_MECHANISM or base in of_mechanism else ""


def _setting_of_one_listener(name: str) -> Setting | None:
    base = setting_of_listener(name)
    if login := _base_of_login(base):
        effect = NO_EFFECT if BROKER_SETTINGS[login].effect == NO_EFFECT else HONOURED
        return BROKER_SETTINGS[login]._replace(name=name, update_mode="per-broker", effect=effect)
    setting = BROKER_SETTINGS.get(base) if base.startswith("ssl.") or base in LISTENER_LIMITS else None
    return None if setting is None else setting._replace(name=name)


TOPIC_SETTINGS: dict[str, Setting] = SECTIONS["topic"]
"""Every setting of a topic, by name."""

TOPIC_SYNONYMS: dict[str, tuple[str, ...]] = {
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "max.message.bytes": ("message.max.bytes",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "cleanup.policy": ("log.cleanup.policy",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "min.insync.replicas": ("min.insync.replicas",),
    "compression.type": ("compression.type",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.zstd.level": ("compression.zstd.level",),
    "preallocate": ("log.preallocate",),
    "message.format.version": ("log.message.format.version",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "local.retention.ms": ("log.local.retention.ms",),
    "local.retention.bytes": ("log.local.retention.bytes",),
}
"""The broker's settings that give a topic's setting its default, the strongest first."""

SYNONYM_GROUPS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Settings of a broker that say the same thing in several units, the strongest first."""

INTERNAL_SETTINGS = frozenset(
    (
        "group.consumer.migration.policy",
        "group.coordinator.new.enable",
        "group.share.enable",
        "log.initial.task.delay.ms",
        "metadata.log.segment.min.bytes",
        "producer.id.expiration.check.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "zookeeper.metadata.migration.min.batch.size",
    )
)
"""Settings that Apache Kafka declares but does not document; DescribeConfigs leaves them out unless they are set."""


LONGEST_NAME = 200
"""Longer names are not compared with known ones."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, or None where none is like it."""
    from difflib import get_close_matches

    if len(name) > LONGEST_NAME:
        return None
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return close[0] if close else None
