"""`ottla user`: users made, shown and deleted by brokers and in ZooKeeper, and passwords that are never arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.sync import Admin
from ottla.testing import Broker
from support.command_line import ottla, ottla_at
from support.sasl_broker import login, sasl_broker
from support.waiting import wait_until

pytestmark = [pytest.mark.spec("S2"), pytest.mark.spec("S6"), pytest.mark.spec("U2")]
VARIABLE = "OTTLA_USER_PASSWORD"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
SERVED = {"ottla.zookeeper.port": "0", "ottla.zookeeper.server.jaas.config": f'{_MODULE} user_super="s";'}


@pytest.fixture(autouse=True)
def super_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands log in to the znodes."""
    file = tmp_path / "zookeeper.properties"
    file.write_text(f'ottla.zookeeper.jaas.config={_MODULE} username="super" password="s";\n')
    monkeypatch.setenv("OTTLA_ZOOKEEPER_CONFIG", str(file))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Its znodes are served to others, too."""
    with Broker(settings=SERVED) as started:
        yield started


@pytest.fixture(params=["brokers", "znodes"])
def where(request: pytest.FixtureRequest, broker: Broker) -> list[str]:
    """The options that say where users are."""
    return ["-z", f"127.0.0.1:{broker.server.zookeeper_port}"] if request.param == "znodes" else []


def test_made_shown_and_deleted(broker: Broker, where: list[str], tmp_path: Path, monkeypatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("of-a-file\n")
    assert ottla_at(broker, "user", "list", *where).output == "no users\n"
    done = ottla_at(broker, "user", "create", "amy", "--password-file", str(secret), "--iterations", "8192", *where)
    assert (done.exit_code, done.output) == (0, "created: user amy (SCRAM-SHA-256, SCRAM-SHA-512)\n")
    monkeypatch.setenv(VARIABLE, "of-the-environment")
    assert ottla_at(broker, "user", "create", "zoë, x", "-m", "SCRAM-SHA-512", *where).exit_code == 0
    table = ottla_at(broker, "user", "list", *where).output.splitlines()
    assert [line.split() for line in table] == [
        ["USER", "SCRAM-SHA-256", "SCRAM-SHA-512"],
        ["amy", "8192", "8192"],
        ["zoë,", "x", "-", "4096"],
    ]
    rows = ottla_at(broker, "user", "list", "--json", *where).output.splitlines()
    assert json.loads(rows[1]) == {"user": "zoë, x", "credentials": {"SCRAM-SHA-512": 4096}}
    unsaid = ottla_at(broker, "user", "delete", "amy", *where)
    assert (unsaid.exit_code, "yes" in unsaid.output) == (1, True)
    assert ottla_at(broker, "user", "delete", "amy", "-m", "SCRAM-SHA-256", "--yes", *where).exit_code == 0
    for user, held in (("amy", "SCRAM-SHA-512"), ("zoë, x", "SCRAM-SHA-512")):
        done = ottla_at(broker, "user", "delete", user, "--yes", *where)
        assert done.output == f"deleted: user {user} ({held})\n"
    gone = ottla_at(broker, "user", "delete", "amy", "--yes", *where)
    assert gone.exit_code == 2
    assert "user 'amy' has no credential for SCRAM" in gone.output


def test_passwords_that_cannot_be(broker: Broker, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    none = ottla_at(broker, "user", "create", "amy")
    assert (none.exit_code, VARIABLE in none.output) == (2, True)
    missing = ottla_at(broker, "user", "create", "amy", "--password-file", str(tmp_path / "none"))
    assert (missing.exit_code, "cannot read the password" in missing.output) == (2, True)
    large = tmp_path / "large"
    large.write_bytes(b"x" * 5000)
    assert "more than 4096 bytes" in ottla_at(broker, "user", "create", "amy", "--password-file", str(large)).output
    monkeypatch.setenv(VARIABLE, "")
    assert "the password is empty in OTTLA_USER_PASSWORD" in ottla_at(broker, "user", "create", "amy").output
    assert ottla_at(broker, "user", "create", "").exit_code == 2


def test_a_user_made_in_the_znodes_logs_in_and_commands_do_by_a_named_cluster(tmp_path: Path, monkeypatch) -> None:
    """Brokers that run follow the change; the first start of others reads it."""
    with sasl_broker(**SERVED) as broker:
        monkeypatch.setenv(VARIABLE, "her-secret")
        znodes = f"127.0.0.1:{broker.server.zookeeper_port}"
        done = ottla("user", "create", "amy", "-z", znodes, "-m", "SCRAM-SHA-512")
        assert done.exit_code == 0, done.output
        known = broker.server.authentication.scram["SCRAM-SHA-512"]
        wait_until(lambda: "amy" in known, "the broker knows amy")
        with Admin(login(broker, "SCRAM-SHA-512", "amy", "her-secret")) as admin:
            assert admin.list_topics() == ["t"]
        clusters = tmp_path / "clusters.toml"
        clusters.write_text(
            f'[mine]\nbootstrap.servers = "{broker.bootstrap_servers}"\nsecurity.protocol = "SASL_PLAINTEXT"\n'
            f'sasl.mechanism = "SCRAM-SHA-512"\nsasl.username = "amy"\nsasl.password = "${{env:{VARIABLE}}}"\n'
        )
        monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(clusters))
        shown = ottla("user", "list", "--cluster", "mine")
        assert (shown.exit_code, "amy" in shown.output) == (0, True), shown.output
        monkeypatch.setenv(VARIABLE, "another")
        refused = ottla("topic", "list", "--cluster", "mine")
        assert refused.exit_code == 2
        assert "refuses the login of user 'amy'" in refused.output
