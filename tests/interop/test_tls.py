"""Java's clients at a TLS listener that wants their certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.net.connection import Principal
from ottla.testing import Broker
from support.certificates import issue, the_authority
from support.java import java_tool

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("S1", "L2")]


def test_java_clients_produce_and_consume_with_a_certificate(tmp_path: Path) -> None:
    trust = the_authority().trust_settings(tmp_path / "ca.pem")
    settings = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.name.ssl.ssl.client.auth": "required",
        **issue(the_authority(), "localhost").key_settings(tmp_path / "broker.pem"),
        **trust,
    }
    client = {"security.protocol": "SSL", **issue(the_authority(), "ann").key_settings(tmp_path / "ann.pem"), **trust}
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    seen: list[Principal | str] = []
    with Broker({"t": 3}, settings=settings, data=tmp_path / "data") as broker:
        terms = broker.server.listener_tls.terms["SSL"]
        principal_of = terms.principal_of

        def note(certificate: bytes | None) -> Principal | str:
            seen.append(principal_of(certificate))
            return seen[-1]

        terms.principal_of = note
        lines = [f"{number} " + "x" * 5000 for number in range(500)]
        common = ("--bootstrap-server", f"localhost:{broker.port}", "--topic", "t")
        producer = ("kafka.tools.ConsoleProducer", *common, "--producer.config", str(config))
        java_tool(*producer, stdin="".join(f"{line}\n" for line in lines))
        consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", *common, "--consumer.config", str(config))
        read = java_tool(*consumer, "--from-beginning", "--max-messages", "500", "--timeout-ms", "60000").stdout
    assert sorted(read.splitlines()) == sorted(lines)
    assert set(map(str, seen)) == {"User:CN=ann,O=ottla"}
