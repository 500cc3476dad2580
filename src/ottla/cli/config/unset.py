"""Refusals to unset settings that are not set, before anything is changed, as Apache Kafka's tool does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.cli.config.care import unknown_setting
from ottla.cli.config.views import SOURCES, entity_text
from ottla.client.admin.model import ConfigEntry, ConfigResource, ResourceType


def why_not_unset(
    resource: ConfigResource, names: Iterable[str], present: Mapping[str, ConfigEntry], own: Iterable[str]
) -> str | None:
    """Why these settings cannot be taken back, with the cure; None where each is set there.

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
