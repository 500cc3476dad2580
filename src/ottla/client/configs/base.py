"""Shared by the configurations of all clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.configs.draft import ConfigDraft
from ottla.client.configs.instances import make_instance
from ottla.client.configs.settings import attribute_of
from ottla.client.configs.values import default_of
from ottla.client.errors import InvalidArgumentError, InvalidConfigError
from ottla.peer.settings import ConnectionSettings, SaslSettings, parse_bootstrap_servers
from ottla.peer.tls import TlsSettings
from ottla.records.extras import MissingExtraError, require_installed
from ottla.security.errors import SecurityError

if TYPE_CHECKING:
    from ottla.peer.tokens import TokenSource
    from ottla.security.kerberos import KerberosLogin

_log = logging.getLogger("ottla.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of all clients; docs/client-settings.md documents them. Made by the `parse_` functions.

    Times are in milliseconds, sizes in bytes. Settings accepted only with their default (other parts of SASL) have no
    attribute, those of TLS one for all, and those of OAUTHBEARER and Kerberos that of the login.
    `originals` has the settings as given, by Kafka's names, for the `configure` of serializers and the like.
    """

    auto_include_jmx_reporter: bool
    bootstrap_servers: tuple[str, ...]
    client_dns_lookup: str
    client_id: str
    connections_max_idle_ms: int
    enable_metrics_push: bool
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metric_reporters: tuple[Any, ...]
    metrics_num_samples: int
    metrics_recording_level: str
    metrics_sample_window_ms: int
    receive_buffer_bytes: int
    reconnect_backoff_max_ms: int
    reconnect_backoff_ms: int
    request_timeout_ms: int
    retry_backoff_max_ms: int
    retry_backoff_ms: int
    sasl: SaslSettings | None = field(repr=False)
    sasl_jaas_config: str | None = field(repr=False)
    sasl_mechanism: str
    sasl_password: str | None = field(repr=False)
    sasl_tokenauth: bool
    sasl_username: str | None
    security_protocol: str
    send_buffer_bytes: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    tls: TlsSettings | None = field(repr=False)
    originals: Mapping[str, Any] = field(repr=False)

    @property
    def client_settings(self) -> ConnectionSettings:
        """The settings for `Cluster`."""
        shared = {each.name for each in fields(ConnectionSettings)}
        settings = {name: getattr(self, name) for name in shared if hasattr(self, name)}
        settings["bootstrap_servers"] = ",".join(self.bootstrap_servers)
        return ConnectionSettings(**settings | self._limits())

    def _limits(self) -> dict[str, int]:
        """Limits of an operation with all its attempts, unless they are settings of that name."""
        return {}


C = TypeVar("C", bound=ClientConfig)


def settle_common(draft: ConfigDraft) -> None:
    """Validate and complete the settings that all clients share, in place."""
    servers = draft.values["bootstrap.servers"]
    if not servers:
        if not draft.problems:
            draft.problems.append(
                "bootstrap.servers is missing. Give it the address of a broker or more, as host:port."
            )
    else:
        try:
            parse_bootstrap_servers(",".join(servers))
        except InvalidArgumentError as error:
            draft.problems.append(f"bootstrap.servers: {error}")
    _settle_tls(draft)
    _settle_login(draft)
    for first, longest in (
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        _settle_longest(draft, first, longest)


def _settle_login(draft: ConfigDraft) -> None:
    """The login that `security.protocol` asks for; settings of SASL without it have no effect, as in Java."""
    values, problems = draft.values, draft.problems
    values["sasl"] = None
    if not values["security.protocol"].startswith("SASL_"):
        return
    from ottla.security.jaas import JaasError, login_of  # most clients need no login
    from ottla.security.kerberos import GSSAPI
    from ottla.security.oauth_login import HANDLER, OAUTHBEARER
    from ottla.security.sasl import MECHANISMS

    mechanism = values["sasl.mechanism"]
    if mechanism not in MECHANISMS:
        problems.append(f"sasl.mechanism={mechanism} is not supported yet. Set it to one of {', '.join(MECHANISMS)}.")
        return
    try:
        if mechanism == OAUTHBEARER:
            values["sasl"] = SaslSettings(mechanism, _tokens(draft))
            return
        if values[HANDLER] is not None:
            problems.append(f"{HANDLER} is for {OAUTHBEARER}, and sasl.mechanism is {mechanism}. Remove it.")
        if mechanism == GSSAPI:
            values["sasl"] = SaslSettings(mechanism, _kerberos_login(values))
            return
        names = ("sasl.jaas.config", "sasl.username", "sasl.password")
        login = login_of(mechanism, *(values[name] for name in names), is_token=values["sasl.tokenauth"])
        values["sasl"] = SaslSettings(mechanism, login)
    except (JaasError, SecurityError, MissingExtraError) as error:
        problems.append(f"{error}.")
    except InvalidConfigError as error:
        problems += error.problems


def _kerberos_login(values: Mapping[str, Any]) -> KerberosLogin:
    """The login by Kerberos. Raises JaasError, MissingExtraError."""
    from ottla.security.jaas import JaasError, parse_jaas
    from ottla.security.kerberos import GSSAPI, SERVICE_NAME, kerberos_login

    jaas = values["sasl.jaas.config"]
    if jaas is None or values["sasl.username"] is not None or values["sasl.password"] is not None:
        raise JaasError(
            f"sasl.mechanism={GSSAPI} (Kerberos, the default) logs in by sasl.jaas.config alone; give it, or set "
            "sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        )
    try:
        login = kerberos_login(parse_jaas(jaas, GSSAPI).options, values[SERVICE_NAME])
    except JaasError as error:
        raise JaasError(f"sasl.jaas.config cannot be used: {error}") from None
    require_installed("SASL by GSSAPI (Kerberos)", "kerberos", "gssapi")
    return login


def _tokens(draft: ConfigDraft) -> TokenSource:
    """The source of tokens for OAUTHBEARER. Raises JaasError, SecurityError, InvalidConfigError."""
    from ottla.peer.tokens import TokenSource
    from ottla.security.jaas import JaasError, parse_jaas
    from ottla.security.oauth_login import CLIENT_ID, CLIENT_SECRET, ENDPOINT, HANDLER, LOGIN_HANDLERS, oauth_login_of

    values = draft.values
    for name in ("sasl.username", "sasl.password"):
        if values[name] is not None:
            raise JaasError(f"{name} is not for OAUTHBEARER; give {CLIENT_ID} and {CLIENT_SECRET}")
    callback, _ = make_instance(
        draft.kind, HANDLER, values[HANDLER], {each.rpartition(".")[2]: type(None) for each in LOGIN_HANDLERS}
    )
    if callback is not None and not callable(callback):
        raise JaasError(f"{HANDLER} is {callback!r}; give a callable without arguments that returns a token")
    options = {}
    if values["sasl.jaas.config"] is not None:
        try:
            options = parse_jaas(values["sasl.jaas.config"], "OAUTHBEARER").options
        except JaasError as error:
            raise JaasError(f"sasl.jaas.config cannot be read: {error}") from None
    login = oauth_login_of(options, values, callback)
    if login.is_readable_by_others:
        draft.notes.append(f"{ENDPOINT} is without TLS: the client secret and tokens can be read on the network")
    return TokenSource(login)


def _settle_tls(draft: ConfigDraft) -> None:
    """The TLS that `security.protocol` asks for, with its files read, so that what is wrong with them shows at once."""
    protocol = draft.values["security.protocol"]
    of_tls = {name: value for name, value in draft.values.items() if name.startswith("ssl.")}
    draft.values["tls"] = None
    if protocol.endswith("SSL"):
        tls = draft.values["tls"] = TlsSettings(of_tls)
        try:
            tls.context  # noqa: B018
        except (SecurityError, MissingExtraError) as error:
            draft.problems.append(f"{error}.")
    elif unused := [name for name, value in of_tls.items() if value != default_of(draft.declared[name])]:
        draft.notes.append(f"{', '.join(unused)}: no effect with security.protocol={protocol}")


def _settle_longest(draft: ConfigDraft, first: str, longest: str) -> None:
    """A backoff above its maximum: Java uses the maximum; if both were given, it is a contradiction."""
    values = draft.values
    if values[first] <= values[longest]:
        if first == "reconnect.backoff.ms" and draft.is_set(first) and not draft.is_set(longest):
            values[longest] = values[first]
        return
    if draft.is_set(first) and draft.is_set(longest):
        draft.problems.append(
            f"{first}={values[first]} is longer than {longest}={values[longest]}. Raise {longest} or lower {first}."
        )
    elif draft.is_set(first):
        values[longest] = values[first]
    else:
        values[first] = values[longest]


#: Client ids generated in this process, by kind of client. As in Java they are counted per process, so that a broker's
#: log distinguishes its clients; a simulation, which must give equal histories, names its clients.
_numbers: dict[str, count[int]] = {}


def settle_client_id(draft: ConfigDraft, kind: str, *, group: str | None = None, instance: str | None = None) -> None:
    """Generate a `client.id` if none is given: `producer-1`, `consumer-GROUP-1`, or `consumer-GROUP-INSTANCE`.

    Consumers of all groups are counted together. Source: `ConsumerConfig.maybeOverrideClientId`, which names a consumer
    without group `consumer-null-1`; here it is `consumer-1`.
    """
    if not draft.values["client.id"] and not draft.problems:
        last = instance if instance is not None else next(_numbers.setdefault(kind, count(1)))
        draft.values["client.id"] = "-".join(str(part) for part in (kind, group, last) if part is not None)


def made(config: type[C], draft: ConfigDraft) -> C:
    """Build the configuration, and log settings without effect. Raises InvalidConfigError with all problems."""
    if draft.problems:
        raise InvalidConfigError(draft.kind, draft.problems)
    for note in draft.notes:
        _log.warning("%s", note)
    values = {attribute_of(name): value for name, value in draft.values.items()}
    declared = {one.name for one in fields(config)} & values.keys()
    return config(originals=draft.originals, **{name: values[name] for name in declared})
