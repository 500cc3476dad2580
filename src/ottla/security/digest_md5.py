"""DIGEST-MD5 (RFC 2831), by which clients log in to ZooKeeper: pure, with authentication alone (`qop=auth`).

Server and client hold the password itself, so what is sent is worth as much as MD5 is: use TLS under it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from ottla.security.jaas import Login
from ottla.security.scram import MAX_TOKEN_BYTES, SaslError

MECHANISM: Final = "DIGEST-MD5"
ZOOKEEPER_SERVICE: Final = "zookeeper"
ZOOKEEPER_HOST: Final = "zk-sasl-md5"
"""In place of the server's name and the realm, as ZooKeeper's clients and servers have it."""

_NONCE_COUNT: Final = "00000001"
_DIRECTIVE = re.compile(rb'[\s,]*([a-zA-Z\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|\Z)', re.DOTALL)


def directives(token: bytes) -> dict[str, str]:
    """The values of a challenge or response, by name. Raises SaslError."""
    if len(token) > MAX_TOKEN_BYTES:
        raise SaslError(f"a token of {MECHANISM} is longer than {MAX_TOKEN_BYTES} bytes")
    found: dict[str, str] = {}
    position = 0
    while position < len(token):
        match = _DIRECTIVE.match(token, position)
        if match is None:
            raise SaslError(f"a token of {MECHANISM} is malformed")
        position = match.end()
        value = match[3] if match[2] is None else re.sub(rb"\\(.)", rb"\1", match[2], flags=re.DOTALL)
        try:
            found.setdefault(match[1].decode().lower(), value.decode())
        except UnicodeDecodeError:
            raise SaslError(f"a token of {MECHANISM} is not UTF-8") from None
    return found


def _response(given: Mapping[str, str], login: Login, method: str) -> str:
    """The digest of a password for these directives; `method` is empty in the server's own."""
    session = [given["nonce"], given["cnonce"], *([given["authzid"]] if "authzid" in given else [])]
    secret = _md5(b":".join(_narrow(each) for each in (login.user, given["realm"], login.password)))
    first = b":".join((secret.digest(), *(each.encode() for each in session)))
    parts = (
        _md5(first).hexdigest(), given["nonce"], given["nc"], given["cnonce"], "auth",
        _md5(f"{method}:{given['digest-uri']}".encode()).hexdigest(),
    )  # fmt: skip
    return _md5(":".join(parts).encode()).hexdigest()


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)


def _narrow(text: str) -> bytes:
    """In ISO 8859-1 where that has all characters, as the RFC says."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class DigestMd5Client:
    """The client's side. `cnonce` is new for each exchange."""

    def __init__(self, login: Login, cnonce: str, service: str = ZOOKEEPER_SERVICE, host: str = ZOOKEEPER_HOST) -> None:
        self._login = login
        self._cnonce = cnonce
        self._uri = f"{service}/{host}"
        self._host = host
        self._expected: str | None = None

    def first(self) -> bytes:
        """Nothing: the server begins."""
        return b""

    def step(self, token: bytes) -> bytes | None:
        """The response to the challenge, then None for the server's proof. Raises SaslError."""
        given = directives(token)
        if self._expected is not None:
            if not hmac.compare_digest(given.get("rspauth", "").encode(), self._expected.encode()):
                raise SaslError("the server does not know the password")
            return None
        if not given.get("nonce") or given.get("algorithm", "md5-sess") != "md5-sess":
            raise SaslError(f"the server's challenge is not one of {MECHANISM}")
        if "auth" not in given.get("qop", "auth").replace(",", " ").split():
            raise SaslError("the server wants more than authentication (qop)")
        sent = {
            "realm": given.get("realm", self._host), "nonce": given["nonce"], "nc": _NONCE_COUNT,
            "cnonce": self._cnonce, "digest-uri": self._uri,
        }  # fmt: skip
        response = _response(sent, self._login, "AUTHENTICATE")
        self._expected = _response(sent, self._login, "")
        return (
            f"charset=utf-8,username={_quoted(self._login.user)},realm={_quoted(sent['realm'])},"
            f"nonce={_quoted(sent['nonce'])},nc={_NONCE_COUNT},cnonce={_quoted(self._cnonce)},"
            f"digest-uri={_quoted(self._uri)},maxbuf=65536,response={response},qop=auth"
        ).encode()


class DigestMd5Server:
    """The server's side, with the passwords of its users. `nonce` is new for each exchange."""

    expires_ms: int | None = None

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        self._users = users
        self._nonce = nonce
        self._is_asked = False
        self.user = ""
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """The challenge, then the proof that the server knows the password. Raises SaslError."""
        if not self._is_asked:
            self._is_asked = True
            challenge = f'realm="{ZOOKEEPER_HOST}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'
            return challenge.encode()
        given = directives(token)
        missing = {"username", "nonce", "cnonce", "nc", "digest-uri", "response"} - given.keys()
        if self.is_complete or missing or given.get("qop", "auth") != "auth":
            raise SaslError(f"the response is not one of {MECHANISM}")
        self.user = given["username"]
        given.setdefault("realm", "")
        password = self._users.get(self.user)
        expected = _response(given, Login(self.user, password or ""), "AUTHENTICATE")
        is_right = hmac.compare_digest(expected.encode(), given["response"].lower().encode())
        is_this_one = (given["nonce"], given["nc"], given["digest-uri"], given["realm"]) == (
            self._nonce, _NONCE_COUNT, f"{ZOOKEEPER_SERVICE}/{ZOOKEEPER_HOST}", ZOOKEEPER_HOST,
        )  # fmt: skip
        if not is_right or not is_this_one or not password or given.get("authzid", self.user) != self.user:
            raise SaslError("invalid credentials")
        self.is_complete = True
        return f"rspauth={_response(given, Login(self.user, password), '')}".encode()
