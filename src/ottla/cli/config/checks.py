"""Checks of settings before they change: what the change risks, names that are mistyped, settings that are not set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.cli.config.views import SOURCES, entity_text
from ottla.client.admin.model import ConfigEntry, ConfigResource, ResourceType
from ottla.config.settings import BROKER_SETTINGS, RUN_TIME_SETTINGS, TOPIC_SETTINGS, broker_setting, nearest_name

_UNCLEAN: Final = "committed records are lost where a replica that was not in sync is elected"
_RETENTION: Final = "older records are deleted"
_LIMITS_OF_RECORDS: Final = frozenset(("max.message.bytes", "message.max.bytes"))
#: Less of these deletes records; a negative value stands for no limit.
_RETENTIONS: Final = frozenset(
    (
        "retention.ms",
        "retention.bytes",
        "log.retention.ms",
        "log.retention.bytes",
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
    )
)
_POLICIES: Final = frozenset(("cleanup.policy", "log.cleanup.policy"))
_POLICY_DOES: Final[Mapping[str, str]] = {
    "delete": "records beyond the retention are deleted",
    "compact": "of records with equal keys only the newest are kept, and records without keys are refused",
}
#: Settings of one listener have its name before theirs.
_OF_LISTENERS: Final = "listener.name."
_THROTTLES: Final = frozenset(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))


def risk_of_change(name: str, now: str | None, new: str | None) -> str | None:
    """Why this change of a setting needs care; None where it does not. A value is None where it is unknown."""
    if name == "unclean.leader.election.enable":
        return _UNCLEAN if _is_true(new) and not _is_true(now) else None
    if name in _RETENTIONS:
        if new is None:
            return None if now is None else "older records are deleted if what comes back is less"
        # Another setting, in minutes or hours, holds where this one has no value.
        return _RETENTION if _shrinks("-1" if now is None else now, new, unlimited=True) else None
    if name in _LIMITS_OF_RECORDS:
        return "larger batches of records are refused" if _shrinks(now, new) else None
    if name in _POLICIES:
        return _risk_of_policy(now, new)
    if name == "min.insync.replicas":
        if _shrinks(now, new):
            return "records are acknowledged when fewer replicas have them"
        return "producers with acks=all are refused where fewer replicas are in sync" if _shrinks(new, now) else None
    if name in _THROTTLES and new is not None and new.strip() == "0":
        return "throttled replicas are not copied at all"
    return None


def unknown_setting(name: str, *, of_topic: bool) -> str | None:
    """Why a setting's name may be mistyped, with the one that is most like it; None for a known one.

    Apache Kafka's brokers take settings of brokers by any name: a plugin may read them.
    """
    if name in TOPIC_SETTINGS if of_topic else broker_setting(name) or name.startswith(_OF_LISTENERS):
        return None
    near = nearest_name(name, TOPIC_SETTINGS if of_topic else [*BROKER_SETTINGS, *RUN_TIME_SETTINGS])
    return f"a {'topic' if of_topic else 'broker'} has no setting {name}{f' (is it {near}?)' if near else ''}"


def mistyped(refusal: str, names: Iterable[str]) -> str:
    """Guess the names of topic settings that a broker refuses as unknown, as a text to put before other advice."""
    refused = [name for name in names if refusal.partition(" (")[0].endswith(f"Unknown topic config name: {name}")]
    near = [nearest_name(name, TOPIC_SETTINGS) for name in refused]
    return "".join(f"is it {each}? " for each in near if each)


def _risk_of_policy(now: str | None, new: str | None) -> str | None:
    before = {word.strip() for word in (now or "").split(",")}
    added = [word for word in ((new or "").split(",")) if word.strip() not in before]
    found = [_POLICY_DOES[word.strip()] for word in added if word.strip() in _POLICY_DOES]
    return "; ".join(found) or None


def _is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _shrinks(now: str | None, new: str | None, *, unlimited: bool = False) -> bool:
    """Whether a number gets smaller; with `unlimited` negative ones are larger than any other."""
    try:
        before, after = int(now or ""), int(new or "")
    except ValueError:
        return False
    if unlimited:
        return after >= 0 and (before < 0 or after < before)
    return after < before


def why_not_unset(
    resource: ConfigResource, names: Iterable[str], present: Mapping[str, ConfigEntry], own: Iterable[str]
) -> str | None:
    """Why these settings cannot be taken back, as Apache Kafka's tool refuses it, with the cure; None where they can.

    Args:
        resource: whose settings they are.
        names: those to take back.
        present: what is in force there, by name.
        own: the names of those set there, not inherited.
    """
    known = set(own)
    absent = [name for name in dict.fromkeys(names) if name not in known]
    if not absent:
        return None
    whose = f"topic {resource.name}" if resource.type == ResourceType.TOPIC else entity_text(resource)
    reasons = [_reason(resource, name, present) for name in absent]
    return (
        f"{whose}: Invalid config(s): {','.join(absent)}: {'; '.join(reasons)}; nothing was changed, and "
        f"`ottla config describe {_option(resource)}` shows what is set"
    )


def own_names(entries: Mapping[str, ConfigEntry], resource: ConfigResource) -> set[str]:
    """The names of settings that are set for this topic, broker or all brokers, of what was described of it."""
    source = _own_source(resource)
    # Brokers before Apache Kafka 1.1 do not say where a value comes from.
    return {name for name, entry in entries.items() if entry.source in (source, "UNKNOWN")}


def _own_source(resource: ConfigResource) -> str:
    if resource.type == ResourceType.TOPIC:
        return "DYNAMIC_TOPIC_CONFIG"
    return "DYNAMIC_BROKER_CONFIG" if resource.name else "DYNAMIC_DEFAULT_BROKER_CONFIG"


def _option(resource: ConfigResource) -> str:
    if resource.type == ResourceType.TOPIC:
        return f"--topic {resource.name}"
    return f"--broker {resource.name}" if resource.name else "--broker-defaults"


def _reason(resource: ConfigResource, name: str, present: Mapping[str, ConfigEntry]) -> str:
    """Why there is nothing to take back, and where it can be."""
    is_topic = resource.type == ResourceType.TOPIC
    unknown = unknown_setting(name, of_topic=is_topic)
    if name not in present and unknown is not None:
        return unknown
    entry = present.get(name)
    if entry is None or entry.is_default:
        return f"{name} is not set there, and has its default"
    if is_topic:
        giver = entry.synonyms[0].name if entry.synonyms else name
        return f"{name} is not set there, and is what the brokers' {giver} says"
    if entry.source == "DYNAMIC_DEFAULT_BROKER_CONFIG":
        return f"{name} is not set there but for all brokers: `ottla config unset --broker-defaults` takes it back"
    if entry.source == "STATIC_BROKER_CONFIG":
        return f"{name} is not set there but in the broker's file: take it out, and restart the broker"
    return f"{name} is not set there, and is of {SOURCES.get(entry.source, entry.source)}"
