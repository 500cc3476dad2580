"""The ways to a broker: each protocol of Kafka's listeners, with and without a client's certificate, by each login."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client import TopicPartition
from ottla.security.scram import SCRAM_MECHANISMS
from support.apache import ApacheKafka
from support.certificates import issue, the_authority
from support.kerberos import HOST, Realm, key_tab_jaas
from support.oauth import MODULE as TOKEN_MODULE
from support.oauth import Signer
from support.sasl_broker import MECHANISMS, PASSWORD, SETTINGS, USER

PLAIN_JAAS = SETTINGS["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
AUTHORITY_FILE, CERTIFICATE_FILE = "authority.pem", "ann.pem"
#: The token of the user, which lives longer than a test, and its key.
TOKEN_FILE, TOKEN_KEYS_FILE, TOKEN_LIFE_S = "token", "keys.json", 3600.0
#: Listeners by name, with their protocols.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "CERTIFIED": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
SASL_LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")
#: Who a client is to the broker, by the topic that nobody else may use.
PRINCIPALS = {"anonymous": "User:ANONYMOUS", "certified": "User:CN=ann,O=ottla", "logged-in": f"User:{USER}"}


class SecuredKafka(ApacheKafka):
    """With several listeners, or secured ones, of which the harness cannot ask: only the start is waited for.

    Its port is that of its listener without security, 1 where it has none.
    """

    def _port_when_started(self) -> int:
        if "started (kafka.server.KafkaServer)" not in self.server.stdout:
            return 0
        plain = re.search(r"(?<!_)PLAINTEXT://[^:]+:(\d+)", self.overrides["listeners"])
        return int(plain[1]) if plain else 1


class Way(NamedTuple):
    """A listener, and what a client shows there."""

    listener: str
    mechanism: str = ""

    @property
    def name(self) -> str:
        """As in `SASL_SSL-PLAIN`."""
        return "-".join(filter(None, self))

    @property
    def protocol(self) -> str:
        """The `security.protocol`."""
        return LISTENERS[self.listener]

    @property
    def certificate(self) -> str:
        """The file with the client's certificate; empty without one."""
        return CERTIFICATE_FILE if self.listener == "CERTIFIED" else ""

    @property
    def topic(self) -> str:
        """The topic of the client's principal."""
        return "logged-in" if self.mechanism else "certified" if self.certificate else "anonymous"

    def settings(self, folder: Path, address: str) -> dict[str, Any]:
        """The settings of a client of ours."""
        found = {"bootstrap.servers": address, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ssl.truststore.location"] = str(folder / AUTHORITY_FILE)
        if self.certificate:
            found["ssl.keystore.location"] = str(folder / self.certificate)
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism} | self._login(folder)
        return found

    def _login(self, folder: Path) -> dict[str, str]:
        if self.mechanism == "OAUTHBEARER":
            return {"sasl.oauthbearer.token.endpoint.url": (folder / TOKEN_FILE).as_uri()}
        if self.mechanism == "GSSAPI":
            jaas = key_tab_jaas(USER, folder / f"{USER}.keytab")
            return {"sasl.kerberos.service.name": "kafka", "sasl.jaas.config": jaas}
        return {"sasl.username": USER, "sasl.password": PASSWORD}


WAYS = [
    Way("PLAINTEXT"),
    Way("SSL"),
    Way("CERTIFIED"),
    *(Way(listener, mechanism) for listener in SASL_LISTENERS for mechanism in (*MECHANISMS, "OAUTHBEARER")),
]
#: To a broker that has `kerberos_settings`, too.
KERBEROS_WAYS = [Way(listener, "GSSAPI") for listener in SASL_LISTENERS]


def broker_settings(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """The settings of a broker with all listeners; its logins are those of `sasl_broker`, and by signed tokens.

    The authority and what clients show are written into the folder, certificates as PEM and as PKCS12.
    """
    signer = Signer()
    (folder / TOKEN_FILE).write_text(signer.token(USER, TOKEN_LIFE_S))
    (folder / TOKEN_KEYS_FILE).write_text(json.dumps({"keys": [signer.public()]}))
    ann = issue(the_authority(), "ann", ())
    ann.key_settings(folder / CERTIFICATE_FILE)
    (folder / CERTIFICATE_FILE).with_suffix(".p12").write_bytes(ann.pkcs12())
    (folder / AUTHORITY_FILE).with_suffix(".p12").write_bytes(the_authority().trust_pkcs12())
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports.get(name, 0)}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
        "listener.name.certified.ssl.client.auth": "required",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": (folder / TOKEN_KEYS_FILE).as_uri(),
    }
    for listener in SASL_LISTENERS:
        prefix = f"listener.name.{listener.lower()}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = PLAIN_JAAS
        for mechanism in SCRAM_MECHANISMS:
            settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = SCRAM_JAAS
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{TOKEN_MODULE};"
        settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = TOKEN_VALIDATOR
    keys = issue(the_authority(), "localhost").key_settings(folder / "broker.pem")
    return settings | keys | the_authority().trust_settings(folder / AUTHORITY_FILE)


def kerberos_settings(realm: Realm) -> dict[str, str]:
    """The settings, beside those, of a broker that takes tickets of a realm; clients connect to its host by name."""
    jaas = realm.jaas(f"kafka/{HOST}")
    return {
        "advertised.listeners": ",".join(f"{name}://{HOST}:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "GSSAPI")),
        "sasl.kerberos.service.name": "kafka",
        **{f"listener.name.{listener.lower()}.gssapi.sasl.jaas.config": jaas for listener in SASL_LISTENERS},
    }


def round_trip(facade: Any, settings: Mapping[str, Any], topic: str, value: bytes) -> bytes | None:
    """What a client of ours reads where one has written the value."""
    with facade.producer(settings) as producer:
        sent = producer.send(topic, value).result(60)
    with facade.consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, sent.partition)])
        consumer.seek(TopicPartition(topic, sent.partition), sent.offset)
        read: bytes | None = next(iter(consumer.poll(60_000))).value
        return read
