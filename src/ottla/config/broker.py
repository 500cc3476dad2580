"""The configuration of a broker: parsed, checked, with warnings for what has no effect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.config import listeners as listener_parsing
from ottla.config.listeners import Endpoint, ListenerError
from ottla.config.refusals import refusal_of, refusal_of_listener_override
from ottla.config.rules import broken_rules
from ottla.config.settings import (
    BROKER_SETTINGS,
    NO_EFFECT,
    RUN_TIME_SETTINGS,
    Setting,
    broker_setting,
    listener_prefix,
    nearest_name,
)
from ottla.config.values import ConfigError, Value, parse_value

if TYPE_CHECKING:
    from ottla.config.topic import LogConfig

T = TypeVar("T")

TLS_SETTINGS: Final = (
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.protocol",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""Settings of a TLS listener, and of connections to that of another broker.

The listener's own (`listener.name.<listener>.ssl.*`) come before those of all listeners.
"""


class ConfigRefusal:
    """A configuration that a broker must not start with: every problem found, each with its setting's name."""

    __slots__ = ("problems",)

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def __repr__(self) -> str:
        return f"ConfigRefusal({self.problems!r})"


class BrokerConfig:
    """The settings of one broker. Make it with `parse_broker_config`.

    The getters are named as those of Kafka's AbstractConfig; a getter of another type than the setting's raises
    TypeError. `overridden` holds the static settings as text; `dynamic_own` and `dynamic_default` the dynamic ones of
    this broker and of all brokers (`set_dynamic`), which take precedence in this order. `warnings` holds messages for
    the user; `listeners` and `advertised` the endpoints. An advertised endpoint with an empty host
    stands for this machine's canonical name, which `advertised_endpoints` fills in.
    """

    __slots__ = (
        "_static",
        "_values",
        "advertised",
        "dynamic_default",
        "dynamic_own",
        "inter_broker_listener_name",
        "listeners",
        "overridden",
        "topic_defaults",
        "unknown",
        "warnings",
    )

    def __init__(self, values: dict[str, Value], overridden: dict[str, str], unknown: dict[str, str]) -> None:
        self._static = values
        #: The static values, over them the dynamic ones, and the defaults that were read.
        self._values = dict(values)
        self.overridden = overridden
        self.unknown = unknown
        self.dynamic_default: dict[str, str] = {}
        self.dynamic_own: dict[str, str] = {}
        #: What topics inherit (`LogConfig`), cached until the settings change; None before the first use.
        self.topic_defaults: LogConfig | None = None
        self.warnings: list[str] = []
        self.listeners: list[Endpoint] = []
        self.advertised: list[Endpoint] = []
        self.inter_broker_listener_name = ""

    def value(self, name: str) -> Value:
        """The parsed value of a setting, its default where it was not set."""
        value = self._values.get(name)
        if value is None and name not in self._values:
            setting = broker_setting(name)
            if setting is None:
                raise KeyError(name)
            value = self._values[name] = parse_value(setting, setting.default)
        return value

    def most_specific(self, *names: str) -> Value:
        """The value of the first of these settings that is set, else that of the last."""
        return self.value(next((name for name in names[:-1] if name in self._values), names[-1]))

    def _typed(self, name: str, kind: type[T], what: str) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} is not {what} but {value!r}")
        return value

    def get_int(self, name: str) -> int:
        """The value of a setting of type int or short."""
        return self._typed(name, int, "an int")

    def get_long(self, name: str) -> int:
        """The value of a setting of type long."""
        return self.get_int(name)

    def get_int_or_none(self, name: str) -> int | None:
        """The value of a setting of type int, short or long, None where it has none."""
        return None if self.value(name) is None else self.get_int(name)

    def get_double(self, name: str) -> float:
        """The value of a setting of type double."""
        return self._typed(name, float, "a double")

    def get_boolean(self, name: str) -> bool:
        """The value of a setting of type boolean."""
        return self._typed(name, bool, "a boolean")

    def get_string(self, name: str) -> str:
        """The value of a setting of type string that always has one."""
        return self._typed(name, str, "a string")

    def get_string_or_none(self, name: str) -> str | None:
        """The value of a setting of type string, None where it has none."""
        return None if self.value(name) is None else self.get_string(name)

    @property
    def delegation_token_secret(self) -> str:
        """The secret of delegation tokens; empty where there are none."""
        names = ("delegation.token.secret.key", "delegation.token.master.key")
        return next((text for name in names if (text := self.get_string_or_none(name))), "")

    def has_tls(self, listener_name: str) -> bool:
        """Whether this listener speaks TLS."""
        return any(each.uses_tls for each in self.listeners if each.listener_name == listener_name)

    def tls_settings(self, listener_name: str) -> dict[str, Value]:
        """The settings of a TLS listener, its own before those of all listeners.

        Clients that log in (SASL_SSL) need certificates only by the listener's own `ssl.client.auth`, as in Kafka.
        """
        prefix = listener_prefix(listener_name)
        names = {name: prefix + name for name in TLS_SETTINGS}
        found = {name: self.most_specific(own, name) for name, own in names.items()}
        uses_sasl = any(each.uses_sasl for each in self.listeners if each.listener_name == listener_name)
        if uses_sasl and names["ssl.client.auth"] not in self._values:
            found["ssl.client.auth"] = "none"
        return found

    @property
    def broker_id(self) -> int:
        """`broker.id` or, where only that is set, `node.id`; -1 to have one generated."""
        return self.get_int("broker.id")

    @property
    def log_dirs(self) -> list[str]:
        """The log directories: `log.dirs`, else `log.dir`."""
        return log_dirs_of(self)

    def with_broker_id(self, broker_id: int) -> BrokerConfig:
        """The same configuration with the id that was generated or found."""
        copy = self.copy()
        for name in ("broker.id", "node.id"):
            copy._static[name] = copy._values[name] = broker_id
            copy.overridden[name] = str(broker_id)
        return copy

    def set_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
        """Replace all dynamic settings; returns the problems of values that are left out. Unknown names are kept
        without effect.
        """
        problems = []
        self.dynamic_default, self.dynamic_own = dict(default), dict(own)
        self._values = dict(self._static)
        self.topic_defaults = None
        for name, text in [*default.items(), *own.items()]:
            setting = broker_setting(name)
            if setting is None:
                continue
            try:
                self._values[name] = parse_value(setting, text)
            except ConfigError as error:
                problems.append(str(error))
        return problems

    def copy(self) -> BrokerConfig:
        """The same configuration, to be changed apart from this one."""
        copy = BrokerConfig(dict(self._static), dict(self.overridden), self.unknown)
        copy.set_dynamic(self.dynamic_default, self.dynamic_own)
        copy.warnings = self.warnings
        copy.listeners = self.listeners
        copy.advertised = self.advertised
        copy.inter_broker_listener_name = self.inter_broker_listener_name
        return copy

    def advertised_endpoints(self, bound_ports: Mapping[str, int], canonical_host: str) -> list[Endpoint]:
        """The endpoints announced to clients: ports resolved, never an address that means every interface.

        `bound_ports` gives the port that each listener name really got; an advertised port of 0 takes it.
        `canonical_host` replaces an empty host (and 0.0.0.0 or :: of a listener that is not advertised otherwise).
        """
        endpoints = []
        for endpoint in self.advertised:
            if endpoint.port == 0:
                endpoint = endpoint.with_port(bound_ports[endpoint.listener_name])
            if endpoint.is_any_address:
                endpoint = endpoint.with_host(canonical_host)
            endpoints.append(endpoint)
        return endpoints


def log_dirs_of(config: BrokerConfig) -> list[str]:
    """The log directories: `log.dirs`, else `log.dir`; empty ones left out."""
    text = config.get_string_or_none("log.dirs")
    if text is None:
        text = config.get_string("log.dir")
    return [path for path in (part.strip() for part in text.split(",")) if path]


def parse_broker_config(properties: Mapping[str, str], *, strict: Collection[str] = ()) -> BrokerConfig | ConfigRefusal:
    """Parse and check the settings of a broker.

    `strict` names those that must be known, as they were given on the command line: an unknown one among them is a
    refusal, any other is a warning, as in Kafka; both name the nearest known setting. A known setting without effect
    here is a warning, unless it is set to its default. All problems are reported at once.
    """
    problems: list[str] = []
    warnings: list[str] = []
    values: dict[str, Value] = {}
    overridden: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for name, text in properties.items():
        setting = None if name in RUN_TIME_SETTINGS else broker_setting(name)
        if setting is None:
            refusal = refusal_of_listener_override(name)
            if refusal is not None:
                problems.append(refusal)
            elif name in strict:
                problems.append(_unknown(name))
            else:
                unknown[name] = text
                warnings.append(_unknown(name))
            continue
        overridden[name] = text
        try:
            value = values[name] = parse_value(setting, text)
        except ConfigError as error:
            problems.append(str(error))
            continue
        refusal = refusal_of(setting, value, parse_value(setting, setting.default))
        warning = warning_of(name, text)
        if refusal is not None:
            problems.append(refusal)
        elif warning is not None:
            warnings.append(warning)
    config = BrokerConfig(values, overridden, unknown)
    config.warnings = warnings
    if not problems:
        problems = _settle_ids(config) + _settle_listeners(config) + broken_rules(config, log_dirs_of(config))
    return ConfigRefusal(problems) if problems else config


def warning_of(name: str, text: str) -> str | None:
    """The warning for a setting that is unknown or has no effect; None for any other."""
    setting = broker_setting(name)
    if setting is None:
        return _unknown(name)
    without = setting.effect == NO_EFFECT and parse_value(setting, text) != parse_value(setting, setting.default)
    return _without_effect(setting, text) if without else None


def _unknown(name: str) -> str:
    if name in RUN_TIME_SETTINGS:
        return f"{name} has no effect in a file; set it while the brokers run, with `ottla config set`"
    nearest = nearest_name(name, BROKER_SETTINGS)
    hint = f"did you mean {nearest}?" if nearest is not None else "no setting has a name like it."
    return f"{name} is not a known setting; {hint}"


def _without_effect(setting: Setting, text: str) -> str:
    shown = "" if setting.is_sensitive else f"={text}"
    return f"{setting.name}{shown} has no effect here"


def _settle_ids(config: BrokerConfig) -> list[str]:
    """`node.id` and `broker.id` are one setting with two names."""
    values, overridden = config._static, config.overridden
    if "node.id" in values and "broker.id" in values and values["node.id"] != values["broker.id"]:
        return ["You must set `node.id` to the same value as `broker.id`."]
    for set_name, other_name in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if set_name in values and other_name not in values:
            values[other_name] = config._values[other_name] = values[set_name]
            overridden[other_name] = overridden[set_name]
    return []


def _settle_listeners(config: BrokerConfig) -> list[str]:
    """Parse and check everything about listeners, and keep the result in `config`."""
    try:
        protocols = listener_parsing.parse_protocol_map(config.get_string("listener.security.protocol.map"))
        config.listeners = listener_parsing.parse_endpoints(
            config.get_string("listeners"), protocols, require_distinct_ports=True
        )
        advertised_text = config.get_string_or_none("advertised.listeners")
        if advertised_text is None:
            # What is not advertised otherwise is announced under this machine's name, never as 0.0.0.0.
            config.advertised = [
                endpoint.with_host("") if endpoint.is_any_address else endpoint for endpoint in config.listeners
            ]
        else:
            config.advertised = listener_parsing.parse_endpoints(
                advertised_text, protocols, require_distinct_ports=False
            )
        config.inter_broker_listener_name = _inter_broker_listener_name(config, protocols)
        listener_parsing.check_advertised(config.listeners, config.advertised, config.inter_broker_listener_name)
    except ListenerError as error:
        return [str(error)]
    return []


def _inter_broker_listener_name(config: BrokerConfig, protocols: dict[str, str]) -> str:
    name = config.get_string_or_none("inter.broker.listener.name")
    if name is None:
        return config.get_string("security.inter.broker.protocol")
    if "security.inter.broker.protocol" in config.overridden:
        raise ListenerError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    if name.upper() not in protocols:
        raise ListenerError(
            f"Listener with name {name.upper()} defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map."
        )
    return name.upper()
