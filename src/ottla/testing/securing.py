"""TLS and logins of test brokers: what `tls=` and `sasl=` mean for the brokers and for their clients."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.security.jaas import Login, jaas_text
from ottla.security.sasl import PLAIN
from ottla.security.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    credential_of_password,
)
from ottla.testing.errors import TestBrokerError

if TYPE_CHECKING:
    from ottla.broker.server import Broker

MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
#: Names of the certificate, besides the broker's address.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_TRUST_STORE: Final = "ssl.truststore."
_USER: Final = re.compile(r"[\w$.-]+")


class Securing:
    """The security of a broker, or of all brokers of a cluster. Raises `TestBrokerError` for wrong arguments.

    `authority` is the certificate that clients trust, in PEM, where it was made here; else None.
    """

    def __init__(self, tls: Any, sasl: Any, host: str) -> None:
        self.users = _users(sasl)
        self.authority: str | None = None
        self._broker: dict[str, str] = {}
        self._client: dict[str, str] = {}
        self._trust: dict[str, str] = {}
        if tls is True:
            self._make_certificates(host)
        elif tls is not None and tls is not False:
            self._broker = {"ssl.keystore.location": os.fspath(tls)}
            self._trust = {f"{_TRUST_STORE}location": os.fspath(tls)}

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        transport = "SSL" if self._broker else "PLAINTEXT"
        return f"SASL_{transport}" if self.users else transport

    def _make_certificates(self, host: str) -> None:
        from ottla.records.extras import MissingExtraError, require_extra

        try:
            require_extra("tls=True", "certificates", "trustme")
        except MissingExtraError as error:
            raise TestBrokerError(str(error)) from None
        from trustme import CA

        made = CA()
        self.authority = made.cert_pem.bytes().decode()
        self._broker = _key_store(made.issue_cert(*dict.fromkeys((host, *LOCAL_NAMES)), common_name="broker"))
        self._client = _key_store(made.issue_cert("client", common_name="client"))
        self._trust = {f"{_TRUST_STORE}type": "PEM", f"{_TRUST_STORE}certificates": self.authority}

    def broker_settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Settings of a broker, for which the test has `given` some; it logs in to others as the first user."""
        if self.protocol == "PLAINTEXT":
            return {}
        settings = {"security.inter.broker.protocol": self.protocol, **self._broker}
        if not any(name.startswith(_TRUST_STORE) for name in given):
            settings |= self._trust
        if self.users:
            settings["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            settings["sasl.mechanism.inter.broker.protocol"] = PLAIN
            own = Login(*next(iter(self.users.items())))
            settings[f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"] = jaas_text(
                PLAIN, own, self.users
            )
        return settings

    def client_settings(self, user: str | None, mechanism: str) -> dict[str, str]:
        """Settings of clients; `user` logs in, or the first one."""
        settings = {"security.protocol": self.protocol, **self._trust, **self._client}
        if not self.users:
            return settings
        if user is None:
            user = next(iter(self.users))
        if user not in self.users or mechanism not in MECHANISMS:
            raise TestBrokerError(
                f"{user} with {mechanism}: the users are {', '.join(self.users)}, by {', '.join(MECHANISMS)}"
            )
        return settings | {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self.users[user]}

    async def create_users(self, broker: Broker) -> None:
        """Give each user credentials of SCRAM."""
        from ottla.broker.control.scram_users import users_of

        users = users_of(broker.control)
        for user, password in self.users.items():
            salt = broker.randomness.secret_bytes(SALT_BYTES)
            made = {each: credential_of_password(each, password, salt, MIN_ITERATIONS) for each in SCRAM_MECHANISMS}
            refusal = await users.change(user, made)
            if refusal is not None:
                raise TestBrokerError(f"the user {user} cannot be made: {refusal.message}")


def _key_store(certificate: Any) -> dict[str, str]:
    """The settings of a key with its certificates, as trustme makes them."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": certificate.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": b"".join(each.bytes() for each in certificate.cert_chain_pems).decode(),
    }


def _users(sasl: Any) -> dict[str, str]:
    if sasl is None:
        return {}
    if not isinstance(sasl, Mapping) or not sasl:
        raise TestBrokerError('sasl=: give passwords by user, as in {"alice": "secret"}')
    for user, password in sasl.items():
        if not isinstance(user, str) or not _USER.fullmatch(user) or not isinstance(password, str) or not password:
            raise TestBrokerError(
                f"sasl=, user {user!r}: a name has letters, digits, _, $, . and -, and a password is text"
            )
    return dict(sasl)
