"""Settings of a broker that change while it runs (KIP-226): which may, and what they must obey.

The checks and their words are Apache Kafka 3.9's (`DynamicBrokerConfig.scala`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config.broker import BrokerConfig, log_dirs_of
from ottla.config.refusals import refusal_of, refusal_of_listener_override
from ottla.config.rules import broken_rules
from ottla.config.settings import (
    BROKER_SETTINGS,
    LISTENER_LIMITS,
    RUN_TIME_SETTINGS,
    broker_setting,
    setting_of_listener,
)
from ottla.config.values import ConfigError, parse_value

#: Settings of the listeners, which ottla opens once, at its start.
FIXED_AT_START = frozenset(
    ("advertised.listeners", "listener.security.protocol.map", "listeners", "principal.builder.class")
)
#: Numbers of threads may grow or shrink to twice or half of what they are.
THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
)
BYTES_PER_CLEANER_THREAD = 1024 * 1024
#: Settings of the stores of keys, which Kafka takes for single listeners only.
STORES = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
LISTENER_PREFIX = "listener.name."
#: Sets of up to this many elements print as `Set(…)` in Scala, larger ones as `HashSet(…)`.
SMALL_SET = 4


def dynamic_problem(properties: Mapping[str, str], config: BrokerConfig, *, per_broker: bool) -> str | None:
    """Why these settings cannot be those of one broker (`per_broker`) or the default of all; None where they can.

    `properties` is everything that would be set there, `config` the broker as it is now. Unknown names are accepted, as
    in Kafka.
    """
    problem = _names_problem(properties) or _types_problem(properties)
    if problem is None and not per_broker:
        problem = _level_problem(properties)
    if problem is None:
        problem = _refused_here(properties)
    if problem is not None:
        return problem
    trial = config.copy()
    own, default = (properties, config.dynamic_default) if per_broker else (config.dynamic_own, properties)
    trial.set_dynamic(default, own)
    # A generated broker id breaks a rule for those that are chosen.
    already = broken_rules(config, log_dirs_of(config))
    broken = [rule for rule in broken_rules(trial, log_dirs_of(trial)) if rule not in already]
    if broken:
        return f"requirement failed: {broken[0]}"
    return _threads_problem(trial, config)


def _names_problem(properties: Mapping[str, str]) -> str | None:
    known = [BROKER_SETTINGS[name] for name in properties if name in BROKER_SETTINGS]
    fixed = [setting.name for setting in known if setting.read_only]
    if fixed:
        return f"Cannot update these configs dynamically: {_scala_set(fixed)}"
    security = [setting.name for setting in known if setting.name.startswith(STORES)]
    if security:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"HashSet({', '.join(security)})"
        )
    return None


def _types_problem(properties: Mapping[str, str]) -> str | None:
    for name, text in properties.items():
        setting = broker_setting(name)
        if setting is not None:
            try:
                parse_value(setting, text)
            except ConfigError as error:
                return str(error)
    return None


def _level_problem(properties: Mapping[str, str]) -> str | None:
    """The problem with settings that only a single broker may have."""
    known = [BROKER_SETTINGS[name] for name in properties if name in BROKER_SETTINGS]
    single = [setting.name for setting in known if setting.update_mode == "per-broker"]
    single += [
        name
        for name in properties
        if name.startswith(LISTENER_PREFIX) and setting_of_listener(name) not in LISTENER_LIMITS
    ]
    if single:
        return (
            f"Cannot update these configs at default cluster level, broker id must be specified: {_scala_set(single)}"
        )
    return None


def _refused_here(properties: Mapping[str, str]) -> str | None:
    """Settings, all of readable values, that Kafka accepts and this broker cannot honour."""
    for name, text in properties.items():
        if name in FIXED_AT_START:
            return f"{name} cannot be changed while this broker runs. Set it in server.properties and restart"
        setting = None if name in RUN_TIME_SETTINGS else broker_setting(name)
        refusal = refusal_of_listener_override(name) if setting is None else None
        if name.startswith(LISTENER_PREFIX) and setting is not None and setting.read_only:
            return f"Cannot update these configs dynamically: {_scala_set([name])}"
        if refusal is None and setting is not None:
            refusal = refusal_of(setting, parse_value(setting, text), parse_value(setting, setting.default))
        if refusal is not None:
            return refusal
    return None


def _threads_problem(trial: BrokerConfig, config: BrokerConfig) -> str | None:
    cleaners = trial.get_int("log.cleaner.threads")
    if cleaners == 0:
        return "log.cleaner.threads=0 leaves no thread to compact. Set it to 1 or more"
    if trial.get_long("log.cleaner.dedupe.buffer.size") // cleaners <= BYTES_PER_CLEANER_THREAD:
        return "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    for name in ("max.connections", "max.connection.creation.rate"):
        if trial.get_int(name) <= 0:
            return _failed(f"Invalid {name} {trial.get_int(name)}")
    for name in THREAD_COUNTS:
        old, new = config.get_int_or_none(name), trial.get_int_or_none(name)
        if old is None or new is None or old == new:
            continue
        failed = f"Dynamic thread count update validation failed for {name}={new}"
        if new <= 0:
            return _failed(f"{failed}, value should be at least 1")
        if new < old // 2:
            return _failed(f"{failed}, value should be at least half the current value {old}")
        if new > old * 2:
            return _failed(f"{failed}, value should not be greater than double the current value {old}")
    return None


def _failed(message: str) -> str:
    """Kafka's message where a part of the broker refuses a change."""
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {message} for configuration "
        "Invalid dynamic configuration"
    )


def _scala_set(names: list[str]) -> str:
    return f"{'Set' if len(names) <= SMALL_SET else 'HashSet'}({', '.join(names)})"
