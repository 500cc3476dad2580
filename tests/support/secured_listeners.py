"""The ways to a broker: each protocol of Kafka's listeners, with and without a client's certificate, by each login."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client import TopicPartition
from ottla.security.scram import SCRAM_MECHANISMS
from support.apache import ApacheKafka
from support.certificates import issue, the_authority
from support.sasl_broker import MECHANISMS, PASSWORD, SETTINGS, USER

PLAIN_JAAS = SETTINGS["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
AUTHORITY_FILE, CERTIFICATE_FILE = "authority.pem", "ann.pem"
#: Listeners by name, with their protocols.
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "CERTIFIED": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
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
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        return found


WAYS = [
    Way("PLAINTEXT"),
    Way("SSL"),
    Way("CERTIFIED"),
    *(Way(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


def broker_settings(folder: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """The settings of a broker with all listeners; its logins are those of `sasl_broker`.

    The authority and what clients show are written into the folder, as PEM and as PKCS12.
    """
    ann = issue(the_authority(), "ann", ())
    ann.key_settings(folder / CERTIFICATE_FILE)
    (folder / CERTIFICATE_FILE).with_suffix(".p12").write_bytes(ann.pkcs12())
    (folder / AUTHORITY_FILE).with_suffix(".p12").write_bytes(the_authority().trust_pkcs12())
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports.get(name, 0)}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
        "listener.name.certified.ssl.client.auth": "required",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = PLAIN_JAAS
        for mechanism in SCRAM_MECHANISMS:
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = SCRAM_JAAS
    keys = issue(the_authority(), "localhost").key_settings(folder / "broker.pem")
    return settings | keys | the_authority().trust_settings(folder / AUTHORITY_FILE)


def round_trip(facade: Any, settings: Mapping[str, Any], topic: str, value: bytes) -> bytes | None:
    """What a client of ours reads where one has written the value."""
    with facade.producer(settings) as producer:
        sent = producer.send(topic, value).result(60)
    with facade.consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, sent.partition)])
        consumer.seek(TopicPartition(topic, sent.partition), sent.offset)
        read: bytes | None = next(iter(consumer.poll(60_000))).value
        return read
