"""Login configurations: what is read of them, and what is said of those that cannot be read."""

from __future__ import annotations

import pytest

from ottla.security.jaas import JaasError, Login, login_of, parse_jaas

pytestmark = [pytest.mark.spec("S2"), pytest.mark.spec("S6")]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_servers_users_and_own_login() -> None:
    config = parse_jaas(
        f"""{PLAIN} required // a comment
        username='admin' password="a \\"quoted\\" \\\\ one" /* another */ user_alice=plain-word user_bob="b;=";""",
        "PLAIN",
    )
    assert config.login == Login("admin", 'a "quoted" \\ one')
    assert config.users == {"alice": "plain-word", "bob": "b;="}
    assert "quoted" not in repr(config) + repr(config.login)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it needs a login module and a flag"),
        (PLAIN, "it needs a login module and a flag"),
        (f'{PLAIN} sometimes password="hush";', "after the login module comes one of required"),
        (f'{PLAIN} required password="hush"', "does not end with a semicolon"),
        (f'{PLAIN} required password="hush', "put each value in quotes"),
        (f"{PLAIN} required password=hush!;", "put each value in quotes"),
        ("/**/" * 5000 + "!", "cannot be read after 0 words"),
        (f"{PLAIN} required password;", "not all of the form"),
        (f"{PLAIN} required password=;", "not all of the form"),
        (f'{PLAIN} required "hush"=x;', "not all of the form"),
        (f'{PLAIN} required a="hush"; {PLAIN} required;', "more than one login module"),
        ('org.apache.kafka.common.security.scram.ScramLoginModule required a="hush";', "names ScramLoginModule"),
        ('org.example.Hush required a="b";', "names another module"),
    ],
)
def test_what_cannot_be_read_is_told_without_a_value(text: str, said: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text, "PLAIN")
    assert said in str(caught.value)
    assert "hush" not in str(caught.value).lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((None, None, None), "the login is missing"),
        ((None, "alice", None), "sasl.password is missing"),
        ((None, None, "hush"), "sasl.username is missing"),
        ((f'{PLAIN} required username="a" password="hush";', "alice", "hush"), "both say who logs in"),
        ((f'{PLAIN} required username="a";', None, None), "has no password"),
        ((f"{PLAIN} required;", None, None), "has no username and password"),
    ],
)
def test_clients_without_a_whole_login(arguments: tuple[str | None, str | None, str | None], said: str) -> None:
    with pytest.raises(JaasError) as caught:
        login_of("PLAIN", *arguments)
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_login_of_either_form() -> None:
    assert login_of("PLAIN", None, "alice", "") == Login("alice", "")
    assert login_of("PLAIN", f'{PLAIN} required username="alice" password="s";', None, None) == Login("alice", "s")


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_delegation_token() -> None:
    token = Login("id", "hmac", is_token=True)
    jaas = f'{SCRAM} required username="id" password="hmac" tokenauth="true";'
    assert login_of("SCRAM-SHA-256", jaas, None, None) == token
    assert login_of("SCRAM-SHA-512", jaas.replace("true", "false"), None, None) == Login("id", "hmac")
    assert login_of("SCRAM-SHA-512", None, "id", "hmac", is_token=True) == token
    with pytest.raises(JaasError, match="a delegation token logs in by SCRAM"):
        login_of("PLAIN", None, "id", "hmac", is_token=True)
