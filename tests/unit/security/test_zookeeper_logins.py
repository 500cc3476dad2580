"""Login configurations of ZooKeeper's clients and servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.jaas import JaasError, Login
from ottla.security.zookeeper_logins import login_to_zookeeper, users_of_zookeeper

pytestmark = pytest.mark.spec("S1")

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
FILE = f"""
// Both sides.
Server {{
  {MODULE}
  user_super="}}admin; {{"
  user_kafka="k\\"afka";
}};
Client {{ {MODULE} username="kafka" password="k\\"afka"; }};
"""


def test_a_module_a_file_and_its_text(tmp_path: Path) -> None:
    assert login_to_zookeeper(f'{MODULE} username="kafka" password="secret";') == Login("kafka", "secret")
    assert login_to_zookeeper(f'{MODULE} username="kafka" password="se{{cret";') == Login("kafka", "se{cret")
    file = tmp_path / "jaas.conf"
    file.write_text(FILE)
    for value in (FILE, str(file)):
        assert login_to_zookeeper(value) == Login("kafka", 'k"afka')
        assert users_of_zookeeper(value) == {"super": "}admin; {", "kafka": 'k"afka'}


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("/nowhere/jaas.conf", "the file /nowhere/jaas.conf cannot be read"),
        (f"{MODULE};", "has no username and password"),
        (f'Server {{ {MODULE} user_a="secret"; }};', "it has no section Client"),
        ('org.apache.kafka.common.security.plain.PlainLoginModule required username="a";', "needs the DigestLoginMod"),
        (f'Client {{ {MODULE} username="a" }};', "does not end with a semicolon"),
        (f'{MODULE} username="a" password="secret"', "does not end with a semicolon"),
        (f"{MODULE} username=a password=secret", "does not end with a semicolon"),
    ],
)
def test_logins_that_cannot_be_read(value: str, cause: str) -> None:
    with pytest.raises(JaasError, match=cause) as refused:
        login_to_zookeeper(value)
    assert "secret" not in str(refused.value)


def test_a_server_needs_users() -> None:
    with pytest.raises(JaasError, match="has no users"):
        users_of_zookeeper(f'{MODULE} username="a" password="b";')
