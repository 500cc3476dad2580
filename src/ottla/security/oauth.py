"""OAUTHBEARER (RFC 7628): both sides of the exchange, with extensions (KIP-342). Pure.

Source: Apache Kafka 3.9, `OAuthBearerSaslServer`, `OAuthBearerSaslClient`, `OAuthBearerClientInitialResponse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.security.scram import SaslError
from ottla.security.tokens import MAX_TOKEN_CHARACTERS, BearerToken, TokenError

MAX_EXTENSIONS_BYTES: Final = 8192
AFTER_FAILURE: Final = b"\x01"
"""What a client sends after the answer that its token is refused; whatever it sends, the server ends the exchange."""
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY = re.compile("[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>.*)\x01", re.DOTALL)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class FirstMessage(NamedTuple):
    """The first message of a client, parsed."""

    authorization_id: str
    token: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return "FirstMessage()"


def parse_first(message: bytes) -> FirstMessage:
    """The first message of a client. Raises SaslError."""
    if len(message) > MAX_TOKEN_CHARACTERS + MAX_EXTENSIONS_BYTES:
        raise SaslError("the token is too long")
    try:
        match = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError("the first message is malformed")
    pairs: dict[str, str] = {}
    for pair in match["pairs"].removesuffix("\x01").split("\x01"):
        key, _, value = pair.partition("=")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise SaslError("the first message is malformed")
        pairs[key] = value
    auth = _AUTH.fullmatch(pairs.pop("auth", "").strip())
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslError("the first message has no bearer token")
    return FirstMessage((match["authzid"] or "").replace("=2C", ",").replace("=3D", "="), auth["token"], pairs)


class OauthServer:
    """The server's side; `check` raises TokenError for a token that does not hold."""

    def __init__(self, check: Callable[[str], BearerToken]) -> None:
        self._check = check
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None
        #: Why the token is refused, and what the client is answered.
        self.refusal: SaslError | None = None

    def step(self, token: bytes) -> bytes:
        """Check the token; the answer is empty, or why it is refused. Raises SaslError."""
        if self.refusal is not None:
            raise self.refusal
        first = parse_first(token)
        try:
            checked = self._check(first.token)
        except TokenError as error:
            answer = {"status": "invalid_token"}
            if error.scope is not None:
                answer = {"status": "insufficient_scope", "scope": error.scope}
            text = json.dumps(answer, separators=(", ", ":"))
            self.refusal = SaslError(str(error), text)
            return text.encode()
        self.user = checked.principal
        if first.authorization_id not in ("", checked.principal):
            raise SaslError(
                "an authorization id other than the user",
                f"Authentication failed: Client requested an authorization id ({first.authorization_id:.1000}) that "
                f"is different from the token's principal name ({checked.principal})",
            )
        self.expires_ms = checked.expires_ms
        self.is_complete = True
        return b""


class OauthClient:
    """The client's side."""

    def __init__(self, token: BearerToken) -> None:
        self._token = token
        self._refusal = ""

    def first(self) -> bytes:
        """The token and the extensions."""
        pairs = {"auth": f"Bearer {self._token.value}", **self._token.extensions}
        return "\x01".join(("n,,", *(f"{key}={value}" for key, value in pairs.items()), "", "")).encode()

    def step(self, token: bytes) -> bytes | None:
        """Nothing follows, but for the end of a refused exchange. Raises SaslError."""
        if self._refusal:
            raise SaslError(f"the broker refuses the token: {self._refusal}")
        if not token:
            return None
        self._refusal = ascii(token[:200].decode(errors="replace"))
        return AFTER_FAILURE


def extension_problem(name: str, value: str) -> str | None:
    """Why it cannot be an extension beside a token."""
    if name == "auth" or not _KEY.fullmatch(name):
        return f"extension {name!r} cannot be: names are letters, and not auth"
    return None if _VALUE.fullmatch(value) else f"the value of extension {name} has characters that cannot be"
