"""SASL in the settings of a broker: the mechanisms of each listener, their users, and the broker's own login."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.config.settings import KERBEROS_SETTINGS, OAUTH_SETTINGS, listener_prefix
from ottla.security.errors import SecurityError
from ottla.security.gss_library import KerberosKey
from ottla.security.jaas import JaasConfig, JaasError, Login, parse_jaas
from ottla.security.kerberos import GSSAPI, RULES, SERVICE_NAME, KerberosLogin, kerberos_login
from ottla.security.oauth_login import (
    ENDPOINT,
    HANDLER,
    LOGIN_HANDLERS,
    OAUTHBEARER,
    UNSECURED_VALIDATOR,
    VALIDATORS,
    OauthLogin,
    oauth_login_of,
)
from ottla.security.sasl import MECHANISMS, PLAIN
from ottla.security.tokens import UNSECURED_LOGIN

if TYPE_CHECKING:
    from ottla.broker.oauth import TokenSettings
    from ottla.config.broker import BrokerConfig
    from ottla.config.values import Value

JAAS = "sasl.jaas.config"
REAUTH = "connections.max.reauth.ms"
SERVER_HANDLER = "sasl.server.callback.handler.class"


@dataclass(frozen=True, slots=True)
class MechanismLogins:
    """One mechanism of a listener. `users` are those of PLAIN, `tokens` are of OAUTHBEARER, `kerberos_key` of GSSAPI.

    `own` is the broker's own login towards others.
    """

    users: Mapping[str, str]
    own: Login | OauthLogin | KerberosLogin | None
    max_reauth_ms: int
    tokens: TokenSettings | None = None
    kerberos_key: KerberosKey | None = None

    def __repr__(self) -> str:
        return f"MechanismLogins(max_reauth_ms={self.max_reauth_ms})"


def logins_of(config: BrokerConfig, listener_name: str) -> tuple[dict[str, MechanismLogins], list[str]]:
    """The mechanisms of a listener with SASL, in their order, and what is wrong with its settings."""
    prefix = listener_prefix(listener_name)
    names = config.most_specific(f"{prefix}sasl.enabled.mechanisms", "sasl.enabled.mechanisms")
    wanted = [str(name) for name in names] if isinstance(names, list) else []
    unserved = [name for name in wanted if name not in MECHANISMS]
    if unserved or not wanted:
        what = f"has {', '.join(unserved)}, which cannot be served yet" if unserved else "has none"
        return {}, [f"sasl.enabled.mechanisms: listener {listener_name} {what}. Set it to some of {list(MECHANISMS)}."]
    found: dict[str, MechanismLogins] = {}
    problems = []
    for name in wanted:
        try:
            found[name] = _logins_of_mechanism(config, prefix, name)
        except (JaasError, ValueError) as error:
            problems.append(str(error))
        except ImportError as error:  # of an extra
            problems.append(f"{error}.")
    return found, problems


def _logins_of_mechanism(config: BrokerConfig, prefix: str, mechanism: str) -> MechanismLogins:
    """Raises ValueError that names the setting."""
    of_mechanism = f"{prefix}{mechanism.lower()}."
    lifetime_ms = config.most_specific(f"{of_mechanism}{REAUTH}", f"{prefix}{REAUTH}", REAUTH)
    assert isinstance(lifetime_ms, int), "it has a default"
    _check_handlers(config, of_mechanism, mechanism)
    setting = f"{of_mechanism}{JAAS}"
    text = config.get_string_or_none(setting)
    if mechanism == OAUTHBEARER:
        return _logins_by_token(config, prefix, text, lifetime_ms)
    if mechanism == GSSAPI:
        return _logins_by_ticket(config, prefix, text, lifetime_ms)
    if text is None:
        if mechanism == PLAIN:
            raise ValueError(
                f'{setting} is missing: PLAIN takes its users from there, as user_NAME="PASSWORD" of the '
                "PlainLoginModule. Set it, or leave PLAIN out of sasl.enabled.mechanisms."
            )
        return MechanismLogins({}, None, lifetime_ms)
    try:
        jaas: JaasConfig = parse_jaas(text, mechanism)
        return MechanismLogins(jaas.users if mechanism == PLAIN else {}, jaas.login, lifetime_ms)
    except JaasError as error:
        raise ValueError(f"{setting} cannot be read: {error}.") from None


def _check_handlers(config: BrokerConfig, of_mechanism: str, mechanism: str) -> None:
    """Kafka's own classes mean what is done here; any other is refused. Raises ValueError."""
    for name, known in ((SERVER_HANDLER, VALIDATORS), (HANDLER, LOGIN_HANDLERS)):
        text = config.get_string_or_none(f"{of_mechanism}{name}")
        if text is None or (mechanism == OAUTHBEARER and text in known):
            continue
        cure = f"Set it to {known[0]}, or remove it." if mechanism == OAUTHBEARER else "Remove it."
        raise ValueError(
            f"{of_mechanism}{name} cannot be honoured: {text} is a Java class, which cannot be loaded here. {cure}"
        )


def _logins_by_token(config: BrokerConfig, prefix: str, jaas: str | None, lifetime_ms: int) -> MechanismLogins:
    """The tokens that a listener takes, and the broker's own login by a token. Raises ValueError."""
    from ottla.broker.oauth import URL, token_settings

    of_mechanism = f"{prefix}oauthbearer."
    settings = _settings_of(config, OAUTH_SETTINGS, prefix, of_mechanism)
    handler = config.get_string_or_none(f"{of_mechanism}{SERVER_HANDLER}")
    if handler and (handler == UNSECURED_VALIDATOR) == bool(settings[URL]):
        cure = "it takes unsecured tokens; remove one of the two" if settings[URL] else "set it"
        raise ValueError(f"{of_mechanism}{SERVER_HANDLER} does not fit {URL}, which is {settings[URL]}: {cure}.")
    try:
        options = {} if jaas is None else parse_jaas(jaas, OAUTHBEARER).options
        tokens = token_settings(options, settings)
        has_login = settings[ENDPOINT] or any(name.startswith(UNSECURED_LOGIN) for name in options)
        own = oauth_login_of(options, settings) if has_login else None
    except (JaasError, SecurityError) as error:
        raise ValueError(f"{of_mechanism}{JAAS} and sasl.oauthbearer.*: {error}.") from None
    return MechanismLogins({}, own, lifetime_ms, tokens)


def _logins_by_ticket(config: BrokerConfig, prefix: str, jaas: str | None, lifetime_ms: int) -> MechanismLogins:
    """The key by which a listener takes tickets, and the broker gets its own. Raises ValueError, ImportError."""
    of_mechanism = f"{prefix}gssapi."
    setting = f"{of_mechanism}{JAAS}"
    if jaas is None:
        raise ValueError(
            f"{setting} is missing: GSSAPI takes the broker's principal and key from there, as useKeyTab=true, keyTab "
            "and principal of the Krb5LoginModule. Set it, or set sasl.enabled.mechanisms without GSSAPI."
        )
    settings = _settings_of(config, KERBEROS_SETTINGS, prefix, of_mechanism)
    rules, service_name = settings[RULES], settings[SERVICE_NAME]
    try:
        login = kerberos_login(parse_jaas(jaas, GSSAPI).options, str(service_name) if service_name else None)
        if login.key_tab is None:
            raise JaasError("a broker needs useKeyTab=true, keyTab and principal")
        key = KerberosKey(login, [str(rule) for rule in rules] if isinstance(rules, list) else [])
    except (JaasError, SecurityError) as error:
        raise ValueError(f"{setting} and sasl.kerberos.*: {error}.") from None
    return MechanismLogins({}, login, lifetime_ms, kerberos_key=key)


def _settings_of(config: BrokerConfig, names: Iterable[str], prefix: str, of_mechanism: str) -> dict[str, Value]:
    """Settings for one mechanism of a listener: its own, else the listener's, else those of all."""
    return {name: config.most_specific(f"{of_mechanism}{name}", f"{prefix}{name}", name) for name in names}


def inter_broker_login(config: BrokerConfig) -> tuple[str, Login | OauthLogin | KerberosLogin] | str | None:
    """Mechanism and login towards other brokers; None where their listener has no SASL, else the problem."""
    name = config.inter_broker_listener_name
    if not any(endpoint.uses_sasl for endpoint in config.listeners if endpoint.listener_name == name):
        return None
    mechanism = config.get_string("sasl.mechanism.inter.broker.protocol")
    found, _ = logins_of(config, name)
    if mechanism not in found:
        return (
            "requirement failed: sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
            "when SASL is used for inter-broker communication"
        )
    own = found[mechanism].own
    if own is None:
        setting = f"{listener_prefix(name)}{mechanism.lower()}.{JAAS}"
        if mechanism == OAUTHBEARER:
            return f"{ENDPOINT} is missing, where this broker gets its tokens for others. Set it, with {setting}."
        return f"{setting} has no username and password, by which this broker logs in to others. Give it both."
    return mechanism, own


def login_problems(config: BrokerConfig) -> list[str]:
    """Problems of the settings of SASL; none where no listener has it."""
    problems: list[str] = []
    for endpoint in config.listeners:
        if endpoint.uses_sasl:
            problems += logins_of(config, endpoint.listener_name)[1]
    if not problems:
        between = inter_broker_login(config)
        if isinstance(between, str):
            problems.append(between)
    return problems
