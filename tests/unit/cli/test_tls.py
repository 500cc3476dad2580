"""Commands over TLS: settings of a named cluster, and of a properties file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.peer import diagnosis
from ottla.security.contexts import server_context
from support.certificates import PASSWORD, authority, issue, the_authority
from support.command_line import ottla
from support.fake_cluster import FakeCluster

pytestmark = [pytest.mark.spec("S1"), pytest.mark.slow]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeCluster]:
    """A broker that wants certificates of clients."""
    trust = the_authority().trust_settings(tmp_path / "trust.pem")
    keys = issue(the_authority(), "server").key_settings(tmp_path / "server.pem")
    cluster = FakeCluster(1, server_context(keys | trust | {"ssl.client.auth": "required"}))
    cluster.topic("orders", 0)
    yield cluster
    cluster.close()


def written(settings: dict[str, str], path: Path) -> str:
    """A properties file."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def test_a_named_cluster_and_a_properties_file(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alice.p12").write_bytes(issue(the_authority(), "alice", ()).pkcs12())
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "trust.pem"),
        "ssl.keystore.location": str(tmp_path / "alice.p12"),
        "ssl.keystore.password": PASSWORD,
    }
    named = settings | {"bootstrap.servers": fake.bootstrap, "ssl.keystore.password": "${env:STORE_PASSWORD}"}
    clusters = tmp_path / "clusters.toml"
    clusters.write_text("[prod]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in named.items()))
    monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
    monkeypatch.setenv("STORE_PASSWORD", PASSWORD)
    assert ottla("produce", "orders", "--cluster", "prod", stdin="one\n").exit_code == 0
    assert "orders" in ottla("topic", "list", "--cluster", "prod").stdout
    properties = written(settings, tmp_path / "client.properties")
    read = ottla("consume", "orders", "--from", "beginning", "-e", "-b", fake.bootstrap, "--properties", properties)
    assert (read.stdout, read.stderr, read.exit_code) == ("one\n", "", 0)


def test_doctor_says_what_is_wrong_with_tls(fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "PROBE_TIMEOUT_S", 60)
    other = authority("another").trust_settings(tmp_path / "other.pem") | {"security.protocol": "SSL"}
    clusters = tmp_path / "clusters.toml"
    named = other | {"bootstrap.servers": fake.bootstrap}
    clusters.write_text("[prod]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in named.items()))
    monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
    done = ottla("doctor", "--cluster", "prod", "--json")
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert row["fault"] == "untrusted-certificate"
    assert row["what"].endswith("is not signed by an authority that this client trusts")
    assert row["cure"].startswith("Set ssl.truststore.location to a store with the authority's certificate")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.truststore.location": "/no/such.pem"}, "ssl.truststore.location=/no/such.pem cannot be read"),
        ({"ssl.engine.factory.class": "com.example.Engine"}, "Java classes cannot be loaded here. Remove it."),
        ({"ssl.enabled.protocols": "TLSv1.9"}, "TLSv1.9 is not known; use TLSv1.2, TLSv1.3"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    properties = written({"security.protocol": "SSL"} | settings, tmp_path / "client.properties")
    done = ottla("consume", "orders", "-e", "--properties", properties)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
