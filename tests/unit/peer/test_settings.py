from __future__ import annotations

import pytest

from ottla.client.errors import InvalidArgumentError
from ottla.peer.settings import format_servers, parse_bootstrap_servers


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://a.b.c:65535", [("a.b.c", 65535)]),
        ("[::1]:9092,[fe80::1]:1", [("::1", 9092), ("fe80::1", 1)]),
    ],
)
def test_servers(text, servers):
    assert parse_bootstrap_servers(text) == servers


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9092", "host:x", "host:0", "host:65536", "host:-1"])
def test_what_is_no_server(text):
    with pytest.raises(InvalidArgumentError):
        parse_bootstrap_servers(text)


def test_the_message_quotes_the_wrong_part():
    with pytest.raises(InvalidArgumentError, match="'b' is not of the form host:port"):
        parse_bootstrap_servers("a:1,b")
    with pytest.raises(InvalidArgumentError, match="TLS is not known; write one of PLAINTEXT, SSL, SASL"):
        parse_bootstrap_servers("TLS://a:1")
    with pytest.raises(InvalidArgumentError, match=r"IPv6 address as \[address\]:port"):
        parse_bootstrap_servers("::1:9092")


def test_a_password_is_not_quoted():
    with pytest.raises(
        InvalidArgumentError, match=r"^bootstrap server \.\.\.@b:1: leave out the user or password"
    ) as caught:
        parse_bootstrap_servers("a:1,anna:secret@b:1")
    assert "secret" not in str(caught.value)


def test_servers_in_messages():
    assert format_servers([("a", 1), ("::1", 2)]) == "a:1, [::1]:2"
