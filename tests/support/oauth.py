"""Tokens for tests, and a server with their keys (`/jwks`) and a token endpoint (`/token`)."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

from joserfc import jws
from joserfc.jwk import ECKey

from ottla.testing import Broker

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LISTENER = "listener.name.sasl_plaintext.oauthbearer."
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
}
CLIENT_ID, CLIENT_SECRET = "payments", "a secret: of theirs"


class AnyHeader(jws.JWSRegistry):
    """Signs what other issuers may sign."""

    def check_header(self, header: dict[str, Any]) -> None:
        """Nothing is wrong."""


class Signer:
    """A key with its id."""

    def __init__(self, key_id: str = "first") -> None:
        self.key_id = key_id
        self._key = ECKey.generate_key("P-256")

    def public(self) -> dict[str, Any]:
        """The public key as a set has it."""
        return {**self._key.as_dict(private=False), "kid": self.key_id, "use": "sig"}

    def token(
        self,
        subject: str = "alice",
        life_s: float = 60,
        key_id: str | None = None,
        header: Mapping[str, Any] = MappingProxyType({}),
        **claims: Any,
    ) -> str:
        """A signed token; a claim of None is left out."""
        all_claims = {"sub": subject, "iat": time.time(), "exp": time.time() + life_s} | claims
        payload = json.dumps({name: value for name, value in all_claims.items() if value is not None})
        registry = AnyHeader(algorithms=["ES256"])
        return jws.serialize_compact(
            {"alg": "ES256", "kid": key_id or self.key_id, **header}, payload, self._key, registry=registry
        )


class Provider:
    """A server of keys and tokens. `failures` are the statuses of its next answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.signers = [Signer()]
        self.failures: list[int] = []
        self.paths: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.life_s = 60.0

    def answer(self, path: str, login: str, body: str) -> tuple[int, Any]:
        self.paths.append(path)
        if self.failures:
            return self.failures.pop(0), {"error": "server_error"}
        if path == "/jwks":
            return 200, {"keys": [each.public() for each in self.signers]}
        self.forms.append(parse_qs(body))
        if b64decode(login.removeprefix("Basic ")).decode() != f"{CLIENT_ID}:{CLIENT_SECRET}":
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": self.signers[0].token(CLIENT_ID, self.life_s), "token_type": "Bearer"}


@contextmanager
def provider(context: SSLContext | None = None) -> Iterator[Provider]:
    """A server on 127.0.0.1, with TLS where there is a context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, found = made.answer(
                self.path, self.headers.get("Authorization", ""), self.rfile.read(length).decode()
            )
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        made = Provider(f"http{'' if context is None else 's'}://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def unsecured_broker(validator: str = "", **settings: str) -> Broker:
    """A broker that takes unsecured tokens; not started. Its topic `t` has one partition."""
    jaas = {f"{LISTENER}sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="admin" {validator};'}
    given = {name.replace("_", "."): text for name, text in settings.items()}
    return Broker(topics={"t": 1}, settings=SETTINGS | jaas | given)


def jwks_broker(url: str, **settings: str) -> Broker:
    """A broker that takes tokens signed by the keys at an address, and gets its own at the token endpoint there."""
    address = url.rpartition("/")[0]
    jaas = f'{MODULE} clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}";'
    more = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.token.endpoint.url": f"{address}/token",
        f"{LISTENER}sasl.jaas.config": jaas,
    }
    return Broker(
        topics={"t": 1}, settings=SETTINGS | more | {name.replace("_", "."): each for name, each in settings.items()}
    )


def login(broker: Broker, **settings: Any) -> dict[str, Any]:
    """Settings of our clients; names with underscores."""
    shared = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    return shared | {name.replace("_", "."): each for name, each in settings.items()}


def with_token(broker: Broker, token: str) -> dict[str, Any]:
    """Settings of a client that shows this token."""
    return login(broker, sasl_login_callback_handler_class=lambda: (token, (time.time() + 60) * 1000))
