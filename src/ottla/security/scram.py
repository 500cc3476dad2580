"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, and both sides of the exchange. Pure.

Where the RFC leaves a choice, it is Apache Kafka 3.9's (ScramFormatter, ScramMessages, ScramSaslServer): passwords and
names are taken as UTF-8 without SASLprep, channel binding is left out, and extensions are ignored but for `tokenauth`.
Salts and nonces come from the caller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Bounds of a credential that brokers store, those of Kafka's ScramMechanism."""
MAX_CLIENT_ITERATIONS: Final = 200_000
"""A client refuses a server that asks for more: they hold its event loop."""
MAX_TOKEN_BYTES: Final = 8192
"""Longest message of an exchange that is read."""
NONCE_BYTES: Final = 24
SALT_BYTES: Final = 20

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SCRAM_MECHANISMS: Final = tuple(_HASHES)
MECHANISM_OF: Final = dict(enumerate(SCRAM_MECHANISMS, 1))
"""The mechanism of each number that requests have (KIP-554)."""

_TEXT_SALT: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Of such letters Apache Kafka's tools make salts."""

_NAME = r"[^=,\x00]|=2C|=3D"
_VALUE = r"[^,\x00]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>(?:{_NAME})+))?,)(?P<bare>n=(?P<user>(?:{_NAME})+),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[\x20-\x2b\x2d-\x7e]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")
_TOKEN_AUTH = re.compile(r",tokenauth=(?i:true)(?:,|\Z)")
_CREDENTIAL_KEYS = ("salt", "stored_key", "server_key", "iterations")


class SaslError(Exception):
    """A failed exchange. `shown` is what the other side may know of it; None for no more than that it failed."""

    def __init__(self, message: str, shown: str | None = None) -> None:
        super().__init__(message)
        self.shown = shown


class ScramCredential(NamedTuple):
    """Made of a password, in place of which a server keeps it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def to_text(self) -> str:
        """The text that Kafka keeps in the user's znode (ScramCredentialUtils)."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def from_text(cls, text: str) -> ScramCredential:
        """Parse `to_text`. Raises ValueError, whose message does not have the text."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if sorted(parts) != sorted(_CREDENTIAL_KEYS) or not re.fullmatch("[0-9]{1,9}", parts["iterations"]):
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations")
        try:
            salt, stored, server = (b64decode(parts[key], validate=True) for key in _CREDENTIAL_KEYS[:3])
        except Base64Error:
            raise ValueError("a SCRAM credential has salt and keys in base64") from None
        return cls(salt, stored, server, int(parts["iterations"]))


class TokenLogin(NamedTuple):
    """A delegation token that a client logs in by, as its server knows it; the owner is a name."""

    owner: str
    credential: ScramCredential
    lifetime_ms: int


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """`Hi` of the RFC: the password as AlterUserScramCredentials carries it."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(_HASHES[mechanism], client_key).digest()
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def credential_of_password(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def escaped_name(name: str) -> str:
    """A user's name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, _HASHES[mechanism])


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _matched(pattern: re.Pattern[str], token: bytes, what: str) -> re.Match[str]:
    try:
        text = token.decode() if len(token) <= MAX_TOKEN_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    match = pattern.fullmatch(text)
    if match is None:
        raise SaslError(f"the {what} of SCRAM is malformed")
    return match


class ScramServer:
    """The server's side of one exchange.

    `credentials` maps users to their credentials. An unknown user gets a salt, derived from `secret`, and fails only at
    the end as with a wrong password, after the same work. `token_login` looks up a delegation token, which a client
    names in place of a user.
    """

    expires_ms: int | None = None

    def __init__(
        self,
        mechanism: str,
        credentials: dict[str, ScramCredential],
        nonce: str,
        secret: bytes,
        token_login: Callable[[str], TokenLogin | None] = lambda _: None,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._secret = secret
        self._token_login = token_login
        #: The delegation token that the client logs in by.
        self.token: TokenLogin | None = None
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._begun = ""
        self._gs2 = ""
        #: The user, or the id of a delegation token; authenticated only when `is_complete`.
        self.user = ""
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        """The answer to a message of the client. Raises SaslError."""
        if self.is_complete:
            raise SaslError("the exchange is over")
        return self._first(token) if self._credential is None else self._final(token, self._credential)

    def _first(self, token: bytes) -> bytes:
        first = _matched(_CLIENT_FIRST, token, "first message")
        self.user = _unescaped(first["user"])
        if first["authzid"] is not None and _unescaped(first["authzid"]) != self.user:
            raise SaslError(
                "an authorization id other than the user",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        if _TOKEN_AUTH.search(first["extensions"]):
            self.token = self._token_login(self.user)
            known = None if self.token is None else self.token.credential
        else:
            known = self._credentials.get(self.user)
        self._is_known = known is not None
        self._credential = known or self._unknown_user()
        self._nonce = first["nonce"] + self._nonce
        self._gs2 = first["gs2"]
        answer = f"r={self._nonce},s={_base64(self._credential.salt)},i={self._credential.iterations}"
        self._begun = f"{first['bare']},{answer}"
        return answer.encode()

    def _unknown_user(self) -> ScramCredential:
        """A credential that no password fits, the same for each question about this user.

        Its salt and iterations are of a kind that a known user has.
        """
        made = _hmac(self._mechanism, self._secret, self.user.encode())
        kinds = {(len(each.salt), each.salt.isalnum(), each.iterations) for each in self._credentials.values()}
        length, is_text, iterations = sorted(kinds or {(SALT_BYTES, False, MIN_ITERATIONS)})[
            made[-1] % (len(kinds) or 1)
        ]
        salt = hashlib.shake_256(made).digest(length)
        if is_text:
            salt = bytes(_TEXT_SALT[byte % len(_TEXT_SALT)] for byte in salt)
        return ScramCredential(salt, made, made, iterations)

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        final = _matched(_CLIENT_FINAL, token, "final message")
        if final["nonce"] != self._nonce:
            raise SaslError("the nonce is not the one of this exchange")
        if b64decode(final["binding"]).decode(errors="replace") not in (self._gs2, "n,,"):
            raise SaslError("channel binding is not supported")
        proof = b64decode(final["proof"])
        signed = f"{self._begun},{final['without_proof']}".encode()
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        if len(proof) != len(signature):
            raise SaslError("the proof has the wrong length")
        stored_key = hashlib.new(_HASHES[self._mechanism], _xor(proof, signature)).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key) or not self._is_known:
            raise SaslError("invalid credentials")
        self.is_complete = True
        return f"v={_base64(_hmac(self._mechanism, credential.server_key, signed))}".encode()


class ScramClient:
    """The client's side of one exchange; the user may be a delegation token (`is_token`)."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escaped_name(user)},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._expected: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        """The next message, None when the server has proved that it knows the user. Raises SaslError."""
        if self._expected is None:
            return self._final(token)
        final = _matched(_SERVER_FINAL, token, "final message of the server")
        if final["error"] is not None:
            raise SaslError(f"the broker says {final['error']}")
        if not hmac.compare_digest(b64decode(final["signature"]), self._expected):
            raise SaslError("the broker cannot prove that it knows this user")
        self.is_complete = True
        return None

    def _final(self, token: bytes) -> bytes:
        first = _matched(_SERVER_FIRST, token, "first message of the server")
        if not first["nonce"].startswith(self._nonce) or first["nonce"] == self._nonce:
            raise SaslError("the broker's nonce does not continue that of this client")
        iterations = int(first["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslError(
                f"the broker asks for {iterations} iterations, not {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}"
            )
        salt = b64decode(first["salt"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        without_proof = f"c=biws,r={first['nonce']}"
        signed = f"{self._bare},{token.decode()},{without_proof}".encode()
        self._expected = _hmac(self._mechanism, credential.server_key, signed)
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        proof = _xor(_hmac(self._mechanism, salted, b"Client Key"), signature)
        return f"{without_proof},p={_base64(proof)}".encode()
