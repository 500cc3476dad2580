"""`sasl.jaas.config`: one login module with its options, in the format of Java's login configurations. Pure.

No message has a value of it: they may be passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "PlainLoginModule"
SCRAM_MODULE: Final = "ScramLoginModule"
DIGEST_MODULE: Final = "DigestLoginModule"
OAUTH_MODULE: Final = "OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "Krb5LoginModule"
_MODULE_OF: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "DIGEST-MD5": DIGEST_MODULE,
    "OAUTHBEARER": OAUTH_MODULE,
    "GSSAPI": KERBEROS_MODULE,
}
_CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
MAX_JAAS_CHARACTERS: Final = 1024 * 1024

_TOKEN = re.compile(
    r"""(?>(?:\s|//[^\n]*|/\*.*?\*/)*)(?:(?P<word>[\w$.\-]+)|(?P<sign>[=;])|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<end>\Z))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """A login configuration that cannot be read; the message says why and has no value of it."""


class Login(NamedTuple):
    """A user's name and password, or the id of a delegation token and its HMAC in base64 (`is_token`)."""

    user: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Login({self.user!r})"


class JaasConfig(NamedTuple):
    """The options of a login module."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasConfig({self.module})"

    @property
    def login(self) -> Login | None:
        """The own user and password; None where there is none of the two."""
        user, password = self.options.get("username"), self.options.get("password")
        if user is None and password is None:
            return None
        if not user or password is None:
            raise JaasError(f"the {self.module} has no {'password' if user else 'username'}")
        return Login(user, password, self.options.get("tokenauth", "").lower() == "true")

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users that a server with PLAIN or DIGEST-MD5 knows (`user_NAME`)."""
        prefix = "user_"
        return {name.removeprefix(prefix): value for name, value in self.options.items() if name.startswith(prefix)}


def parse_jaas(text: str, mechanism: str) -> JaasConfig:
    """Parse the login module for a mechanism. Raises JaasError."""
    if len(text) > MAX_JAAS_CHARACTERS:
        raise JaasError(f"it is longer than {MAX_JAAS_CHARACTERS} characters")
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[0][1] or tokens[1][1]:
        raise JaasError('it needs a login module and a flag, as in `…ScramLoginModule required username="NAME" …;`')
    module = tokens[0][0].rpartition(".")[2]
    if module != _MODULE_OF[mechanism]:
        known = module if module in _MODULE_OF.values() else "another module"
        raise JaasError(f"{mechanism} needs the {_MODULE_OF[mechanism]}, and it names {known}")
    if tokens[1][0].lower() not in _CONTROL_FLAGS:
        raise JaasError(f"after the login module comes one of {', '.join(_CONTROL_FLAGS)}")
    if tokens[-1] != (";", False):
        raise JaasError("it does not end with a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for start in range(0, len(rest), 3):
        name, sign, value = (*rest[start : start + 3], ("", False), ("", False))[:3]
        if (";", False) in (name, sign, value):
            raise JaasError("it has more than one login module")
        if name[1] or sign != ("=", False) or value in (("=", False), ("", False)):
            raise JaasError('its options are not all of the form NAME="VALUE"')
        options[name[0]] = value[0]
    return JaasConfig(module, options)


def login_of(
    mechanism: str, jaas: str | None, user: str | None, password: str | None, *, is_token: bool = False
) -> Login:
    """The login of a client, of `sasl.username` and `sasl.password` or else of `sasl.jaas.config`. Raises JaasError.

    `is_token` (`sasl.tokenauth`) has the former be a delegation token.
    """
    login = _login_of(mechanism, jaas, user, password, is_token)
    if login.is_token and _MODULE_OF[mechanism] != SCRAM_MODULE:
        raise JaasError("a delegation token logs in by SCRAM; set sasl.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512")
    return login


def _login_of(mechanism: str, jaas: str | None, user: str | None, password: str | None, is_token: bool) -> Login:
    if user is not None or password is not None:
        if jaas is not None:
            raise JaasError("sasl.jaas.config and sasl.username both say who logs in; give one of them")
        if not user or password is None:
            raise JaasError(f"{'sasl.password' if user else 'sasl.username'} is missing; give both or none")
        return Login(user, password, is_token)
    if jaas is None:
        raise JaasError("the login is missing; give sasl.username and sasl.password, or sasl.jaas.config")
    try:
        login = parse_jaas(jaas, mechanism).login
    except JaasError as error:
        raise JaasError(f"sasl.jaas.config cannot be read: {error}") from None
    if login is None:
        raise JaasError("sasl.jaas.config has no username and password")
    return login


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words, and whether each was quoted."""
    tokens: list[tuple[str, bool]] = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(
                f"it cannot be read after {len(tokens)} words; put each value in quotes, and \\ before quotes in it"
            )
        position = match.end()
        if match["end"] is not None:
            return tokens
        plain = match["word"] or match["sign"]
        quoted = match["double"] if match["double"] is not None else match["single"]
        tokens.append((plain, False) if plain is not None else (_ESCAPE.sub(_unescaped, quoted), True))


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def jaas_text(mechanism: str, login: Login, users: Mapping[str, str] = MappingProxyType({})) -> str:
    """The login configuration of a user; that of a server with PLAIN has the passwords of its `users`, too."""
    package = "plain" if mechanism == "PLAIN" else "scram"
    options = {"username": login.user, "password": login.password}
    options |= {f"user_{user}": password for user, password in users.items()}
    written = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.{package}.{_MODULE_OF[mechanism]} required {written};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
