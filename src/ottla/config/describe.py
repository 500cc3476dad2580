"""Settings as DescribeConfigs reports them: value, source, synonyms, type. The rules are Kafka's (ConfigHelper)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.settings import (
    AUTHORIZER_SETTINGS,
    BROKER_SETTINGS,
    INTERNAL_SETTINGS,
    RUN_TIME_SETTINGS,
    SYNONYM_GROUPS,
    TOPIC_SETTINGS,
    TOPIC_SYNONYMS,
    Setting,
    broker_setting,
)
from ottla.config.topic import LogConfig
from ottla.config.values import format_value, parse_value

TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6

_TYPES = {
    "boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9,
}  # fmt: skip
UNKNOWN_TYPE = 0


class Synonym(NamedTuple):
    """One possible source of a value."""

    name: str
    value: str | None
    source: int


class DescribedConfig(NamedTuple):
    """A setting of one topic or broker. `value` is None where there is none and where it must not be shown."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: int
    documentation: str


def describe_topic(log_config: LogConfig, broker: BrokerConfig) -> list[DescribedConfig]:
    """Every setting of a topic."""
    return [_topic_entry(setting, log_config, broker) for setting in TOPIC_SETTINGS.values()]


def describe_broker(broker: BrokerConfig) -> list[DescribedConfig]:
    """Every setting of a broker, unknown ones that were set included."""
    entries = [
        _broker_entry(setting, broker)
        for name, setting in BROKER_SETTINGS.items()
        if name not in INTERNAL_SETTINGS | AUTHORIZER_SETTINGS or name in broker.overridden
    ]
    default, own = broker.dynamic_default, broker.dynamic_own
    entries += [_broker_entry(each, broker) for name, each in RUN_TIME_SETTINGS.items() if name in {**default, **own}]
    of_listeners = [
        name for name in {**broker.overridden, **own} if name not in {**BROKER_SETTINGS, **RUN_TIME_SETTINGS}
    ]
    entries += [_broker_entry(each, broker) for each in map(broker_setting, of_listeners) if each is not None]
    unknown = dict.fromkeys(broker.unknown, STATIC_BROKER_CONFIG)
    unknown |= {name: DYNAMIC_DEFAULT_BROKER_CONFIG for name in default if broker_setting(name) is None}
    unknown |= {name: DYNAMIC_BROKER_CONFIG for name in own if broker_setting(name) is None}
    entries.extend(_unknown_entry(name, source) for name, source in unknown.items())
    return entries


def describe_broker_defaults(broker: BrokerConfig) -> list[DescribedConfig]:
    """The settings that were given to all brokers while they run."""
    source = DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in broker.dynamic_default.items():
        setting = broker_setting(name)
        if setting is None:
            entries.append(_unknown_entry(name, source))
            continue
        shown = None if setting.is_sensitive else text
        entries.append(_entry(setting, text, (Synonym(name, shown, source),), setting.read_only))
    return entries


def describe_loggers(levels: Mapping[str, str]) -> list[DescribedConfig]:
    """The levels of a broker's loggers, by name."""
    source = DYNAMIC_BROKER_LOGGER_CONFIG
    return [DescribedConfig(name, level, source, False, False, (), UNKNOWN_TYPE, "") for name, level in levels.items()]


def _unknown_entry(name: str, source: int) -> DescribedConfig:
    """An unknown setting may be a plug-in's secret."""
    return DescribedConfig(name, None, source, True, source == STATIC_BROKER_CONFIG, (), UNKNOWN_TYPE, "")


def _topic_entry(setting: Setting, log_config: LogConfig, broker: BrokerConfig) -> DescribedConfig:
    name = setting.name
    value = format_value(log_config.values[name])
    inherited = TOPIC_SYNONYMS.get(name)
    synonyms = _broker_synonyms(inherited[0], broker) if inherited is not None else ()
    if name in log_config.overrides:
        synonyms = (Synonym(name, value, TOPIC_CONFIG), *synonyms)
    return _entry(setting, value, synonyms, read_only=False)


def _broker_entry(setting: Setting, broker: BrokerConfig) -> DescribedConfig:
    name = setting.name
    overridden = {**broker.overridden, **broker.dynamic_default, **broker.dynamic_own}
    value = overridden.get(name, format_value(broker.value(name)))
    return _entry(setting, value, _broker_synonyms(name, broker), setting.read_only)


def _entry(setting: Setting, value: str | None, synonyms: tuple[Synonym, ...], read_only: bool) -> DescribedConfig:
    return DescribedConfig(
        setting.name,
        None if setting.is_sensitive else value,
        synonyms[0].source if synonyms else DEFAULT_CONFIG,
        setting.is_sensitive,
        read_only,
        synonyms,
        _TYPES[setting.type],
        setting.documentation,
    )


def _broker_synonyms(name: str, broker: BrokerConfig) -> tuple[Synonym, ...]:
    """The sources of a broker's setting. As in Kafka, those before its own name in the order are left out."""
    names = next((group for group in SYNONYM_GROUPS if name in group), (name,))
    found = [
        *_present(names, broker.dynamic_own, DYNAMIC_BROKER_CONFIG),
        *_present(names, broker.dynamic_default, DYNAMIC_DEFAULT_BROKER_CONFIG),
        *_present(names, broker.overridden, STATIC_BROKER_CONFIG),
        *([] if name not in BROKER_SETTINGS else _present(names, _defaults(names), DEFAULT_CONFIG)),
    ]
    places = [place for place, synonym in enumerate(found) if synonym.name == name]
    return tuple(found[places[0] :]) if places else ()


def _present(names: tuple[str, ...], values: Mapping[str, str], source: int) -> list[Synonym]:
    return [Synonym(name, None if _is_sensitive(name) else values[name], source) for name in names if name in values]


def _is_sensitive(name: str) -> bool:
    setting = broker_setting(name)
    return setting is not None and setting.is_sensitive


def _defaults(names: tuple[str, ...]) -> dict[str, str]:
    defaults = {}
    for name in names:
        setting = BROKER_SETTINGS[name]
        text = format_value(parse_value(setting, setting.default))
        if text is not None:
            defaults[name] = text
    return defaults
