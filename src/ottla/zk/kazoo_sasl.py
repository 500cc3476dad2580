"""The login by DIGEST-MD5 on a connection of kazoo, which needs another package for its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import AuthFailedError
from kazoo.protocol.serialization import SASL

from ottla.env.randomness import Randomness
from ottla.security.digest_md5 import DigestMd5Client
from ottla.security.jaas import Login
from ottla.security.scram import SaslError

NONCE_BYTES = 24


def log_in_with(client: Any, login: Login, ended: Callable[[str | None], object]) -> None:
    """Log in on each of the client's connections, before anything else is sent.

    `ended` is called in kazoo's thread after each login with the cause of a refusal, or None.
    """

    def log_in(_host: str, timeout_s: float) -> None:
        try:
            exchange(timeout_s)
        except AuthFailedError as error:
            ended(str(error))
            raise
        ended(None)

    def exchange(timeout_s: float) -> None:
        ours = DigestMd5Client(login, Randomness().secret_bytes(NONCE_BYTES).hex())
        token: bytes | None = ours.first()
        xid = 0
        while token is not None:
            xid += 1
            connection._submit(SASL(token), timeout_s, xid)
            # A connection that is lost here is made again.
            header, buffer, offset = connection._read_header(timeout_s)
            if header.err:
                raise AuthFailedError("check the user and the password, and whether it takes logins")
            answer, _ = SASL.deserialize(buffer, offset)
            if answer is None:
                raise AuthFailedError("it takes no logins")
            try:
                token = ours.step(answer)
            except SaslError as error:
                raise AuthFailedError(str(error)) from None

    connection = client._connection
    connection.sasl_options = {}  # what kazoo looks at
    connection._authenticate_with_sasl = log_in
