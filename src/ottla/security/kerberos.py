"""SASL GSSAPI (RFC 4752) with Kerberos: logins, short names, and both sides of the exchange. Pure.

Source: Apache Kafka 3.9, `KerberosName`, `KerberosRule`, `KerberosShortNamer`, `KerberosLogin`,
`SaslServerCallbackHandler`, and the JDK's `GssKrb5Server`. Security contexts come from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.security.errors import SecurityError
from ottla.security.jaas import JaasError
from ottla.security.principal import replaced, substitution
from ottla.security.scram import SaslError

GSSAPI: Final = "GSSAPI"
SERVICE_NAME: Final = "sasl.kerberos.service.name"
RULES: Final = "sasl.kerberos.principal.to.local.rules"
MAX_KERBEROS_TOKEN_BYTES: Final = 128 * 1024
"""Longest token that is read: tickets of Active Directory name all groups of a user."""
NO_LAYER: Final = 1
"""The bit of what a side offers or chooses: authentication alone, and nothing is wrapped after it."""
_NO_LAYER_MESSAGE: Final = bytes((NO_LAYER, 0, 0, 0))
"""With the longest message of a layer, which is 0 where there is none."""

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<components>[0-9]*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?P<change>s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE = re.compile("[/@]")


class KerberosLogin(NamedTuple):
    """A login by a key tab, or by a cache of tickets (the default one where `ticket_cache` is None)."""

    principal: str
    """Empty for the principal of the cache."""
    key_tab: str | None
    ticket_cache: str | None
    service_name: str
    """The first part of the brokers' principals."""

    @property
    def user(self) -> str:
        """For messages."""
        return self.principal or "of the ticket cache"


def kerberos_login(options: Mapping[str, str], service_name: str | None) -> KerberosLogin:
    """The login that the options of the Krb5LoginModule describe. Raises JaasError."""
    named = options.get("serviceName")
    if named and service_name and named != service_name:
        raise JaasError(f"serviceName is {named}, and {SERVICE_NAME} is {service_name}; give one of them")
    service = named or service_name
    if not service:
        raise JaasError(f"{SERVICE_NAME} is missing, the first part of the brokers' principals: kafka of kafka/host")
    principal = options.get("principal", "")
    if options.get("useKeyTab", "").lower() == "true":
        for option in ("keyTab", "principal"):
            if not options.get(option):
                raise JaasError(f"useKeyTab=true of the Krb5LoginModule needs {option}")
        return KerberosLogin(principal, options["keyTab"], None, service)
    if options.get("useTicketCache", "").lower() == "true":
        return KerberosLogin(principal, None, options.get("ticketCache") or None, service)
    raise JaasError("the Krb5LoginModule needs useKeyTab=true, keyTab and principal, or useTicketCache=true")


class _Rule(NamedTuple):
    """`sasl.kerberos.principal.to.local.rules`: one rule but for DEFAULT, which is None in the list of them."""

    components: int
    format: str
    match: re.Pattern[str] | None
    change: tuple[re.Pattern[str], Sequence[str | int]] | None
    changes: int
    """How many times at most; 0 is without a limit."""
    case: str

    def name(self, parts: Sequence[str]) -> str | None:
        """The name by this rule, None where it is for others. The realm is the first part."""
        if len(parts) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and not self.match.fullmatch(base):
            return None
        if self.change is not None:
            pattern, text = self.change
            base = pattern.sub(lambda found: replaced(text, found), base, self.changes)
        return base


class ShortNames:
    """The names of users by their principals."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises SecurityError for a rule that cannot be read."""
        self._text = rules
        self._default_realm = default_realm
        self._rules = [_parse_rule(rule.strip()) for rule in rules]

    def name(self, principal: str) -> str:
        """The name of a principal. Raises SecurityError where no rule gives one."""
        match = _NAME.fullmatch(principal)
        if match is None:
            if "@" in principal:
                raise SecurityError(f"{principal} is a malformed name of Kerberos")
            return principal
        service, host, realm = match.groups()
        parts = [realm, service] if host is None else [realm, service, host]
        for rule in self._rules:
            if rule is None:
                name = service if realm == self._default_realm else None
            else:
                name = rule.name(parts)
            if name is None:
                continue
            if _NOT_SIMPLE.search(name):
                raise SecurityError(f"a rule of {RULES} makes {name} of {principal}, which is not a simple name")
            case = "" if rule is None else rule.case
            return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise SecurityError(
            f"no rules apply to {principal}, rules {', '.join(self._text)}; add one to {RULES} for its realm"
        )


def _parse_rule(rule: str) -> _Rule | None:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise SecurityError(
            f"{RULES}: {rule!r} is not a rule; write DEFAULT or RULE:[n:string](regexp)s/pattern/replacement/g/L"
        )
    if match["format"] is None:
        return None
    components = int(match["components"] or 0)
    for number in _PARAMETER.findall(match["format"]):
        if not number or int(number) > components:
            raise SecurityError(f"{RULES}: ${number} in {rule!r} is not one of $0 to ${components}")
    wanted = None if match["match"] is None else substitution(RULES, match["match"], "")[0]
    change = substitution(RULES, match["from"], match["to"]) if match["change"] else None
    return _Rule(components, match["format"], wanted, change, 0 if match["repeat"] else 1, match["case"] or "")


class SecurityContext(Protocol):
    """One side of a context of the system's library. Each method raises SaslError."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other."""

    @property
    def peer(self) -> str:
        """The principal of the other side."""

    def step(self, token: bytes) -> bytes:
        """The next token, empty for none."""

    def wrap(self, message: bytes) -> bytes:
        """A message with its signature."""

    def unwrap(self, token: bytes) -> bytes:
        """The message of `wrap`."""


class GssapiServer:
    """The server's side. As in Kafka, an authorization id has no effect: the user is the principal's."""

    expires_ms: int | None = None

    def __init__(self, context: SecurityContext, names: ShortNames) -> None:
        self._context = context
        self._names = names
        self._has_offered = False
        self.user = ""
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """The answer to a token of the client. Raises SaslError."""
        if len(token) > MAX_KERBEROS_TOKEN_BYTES:
            raise SaslError(f"the token is longer than {MAX_KERBEROS_TOKEN_BYTES} bytes")
        if self._has_offered:
            return self._end(token)
        was_complete = self._context.is_complete
        if not was_complete:
            answer = self._context.step(token)
            if self._context.is_complete:
                self.user = self._context.peer
            if answer or not self._context.is_complete:
                return answer
        elif token:
            raise SaslError("a token comes where the client has none")
        self._has_offered = True
        return self._context.wrap(_NO_LAYER_MESSAGE)

    def _end(self, token: bytes) -> bytes:
        if self.is_complete:
            raise SaslError("the exchange is over")
        chosen = self._context.unwrap(token)
        if len(chosen) < len(_NO_LAYER_MESSAGE) or chosen[0] != NO_LAYER:
            raise SaslError("the client wants a security layer, and there is none but TLS")
        try:
            self.user = self._names.name(self._context.peer)
        except SecurityError as error:
            raise SaslError(str(error)) from None
        self.is_complete = True
        return b""


class GssapiClient:
    """The client's side; `begin` makes its context, and that and `first` may wait for the network."""

    def __init__(self, begin: Callable[[], SecurityContext]) -> None:
        self._begin = begin
        self._context: SecurityContext | None = None
        self._has_chosen = False

    def first(self) -> bytes:
        """The ticket for the service. Raises SaslError."""
        self._context = self._begin()
        return self._context.step(b"")

    def step(self, token: bytes) -> bytes | None:
        """The token that follows; None at the end. Raises SaslError."""
        assert self._context is not None
        if self._has_chosen:
            return None
        if not self._context.is_complete:
            return self._context.step(token)
        offer = self._context.unwrap(token)
        if len(offer) < len(_NO_LAYER_MESSAGE) or not offer[0] & NO_LAYER:
            raise SaslError("the broker wants a security layer, which Kafka's clients do not have")
        self._has_chosen = True
        return self._context.wrap(_NO_LAYER_MESSAGE)
