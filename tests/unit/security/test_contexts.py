"""Contexts from Kafka's settings, seen by handshakes in memory."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from ottla.security.contexts import client_context, server_context
from ottla.security.errors import SecurityError
from support.certificates import Issued, authority, issue, the_authority

pytestmark = pytest.mark.spec("S1")


def keys(issued: Issued) -> dict[str, Any]:
    chain = {"ssl.keystore.certificate.chain": issued.chain_pem, "ssl.keystore.key": issued.key_pem()}
    return {"ssl.keystore.type": "PEM", **chain}


def trust(*trusted: Issued) -> dict[str, Any]:
    certificates = "".join(each.certificate_pem for each in trusted)
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}


@pytest.fixture(scope="module")
def server() -> dict[str, Any]:
    return keys(issue(the_authority(), "server"))


TRUST = trust(the_authority())


class Shaken:
    """A handshake over buffers in memory, and a byte each way, since a client's certificate is judged after it."""

    def __init__(self, server: dict[str, Any], client: dict[str, Any], host: str = "127.0.0.1") -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client_context(client).wrap_bio(to_client, to_server, server_hostname=host)
        self.server = server_context(server).wrap_bio(to_server, to_client, server_side=True)
        for end in (self.client, self.server) * 3:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        self.server.write(b"x")
        self.client.read(1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_that_trusts_the_authority_connects(server: dict[str, Any], host: str) -> None:
    assert Shaken(server, TRUST, host).client.version() == "TLSv1.3"


def test_an_unknown_authority_is_refused(server: dict[str, Any]) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        Shaken(server, trust(authority("another")))


def test_the_host_name_is_checked_unless_the_algorithm_is_empty(server: dict[str, Any]) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        Shaken(server, TRUST, "broker.example")
    Shaken(server, TRUST | {"ssl.endpoint.identification.algorithm": ""}, "broker.example")


def test_the_own_certificate_of_a_server_can_be_trusted_as_in_java() -> None:
    own = issue(the_authority(), "server")
    assert Shaken(keys(own), trust(own)).client.version() == "TLSv1.3"


@pytest.mark.parametrize("auth", ["required", "REQUESTED", "none"])
def test_client_auth(server: dict[str, Any], auth: str) -> None:
    settings = server | TRUST | {"ssl.client.auth": auth}
    shaken = Shaken(settings, TRUST | keys(issue(the_authority(), "alice", ())))
    assert bool(shaken.server.getpeercert(binary_form=True)) == (auth != "none")
    if auth == "required":
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            Shaken(settings, TRUST)
    else:
        assert Shaken(settings, TRUST).server.getpeercert(binary_form=True) is None


@pytest.mark.parametrize(
    ("settings", "version", "suite"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl.enabled.protocols": ["TLSv1.1", "TLSv1.2"]}, "TLSv1.2", None),
        ({"ssl.enabled.protocols": "", "ssl.protocol": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl.enabled.protocols": [], "ssl.protocol": "TLS"}, "TLSv1.3", None),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (
            {"ssl.cipher.suites": ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"]},
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256"},
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_versions_and_suites(server: dict[str, Any], settings: dict[str, Any], version: str, suite: str | None) -> None:
    shaken = Shaken(server, TRUST | settings)
    assert shaken.client.version() == version
    if suite is not None:
        assert (shaken.client.cipher() or ("",))[0] == suite


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ssl.client.auth", "maybe", "ssl.client.auth=maybe is not known; use none, requested, required"),
        ("ssl.endpoint.identification.algorithm", "LDAPS", "use https, or nothing"),
        ("ssl.enabled.protocols", "TLSv1.4", "TLSv1.4 is not known; use TLSv1.2, TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1,TLSv1.1", "leave no version of TLS that is safe"),
        ("ssl.protocol", "x", "x is not known"),
        ("ssl.cipher.suites", "TLS_NO_WITH_SUCH_SUITE", "TLS_NO_WITH_SUCH_SUITE is not known here"),
    ],
)
def test_a_value_that_cannot_be_gets_a_sentence(server: dict[str, Any], name: str, value: str, message: str) -> None:
    make = server_context if name == "ssl.client.auth" else client_context
    with pytest.raises(SecurityError, match=message):
        make(server | {name: value})


def test_a_server_without_a_certificate_says_so() -> None:
    with pytest.raises(SecurityError, match=r"has no certificate; set ssl\.keystore\.location"):
        server_context({})


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can")
def test_some_suites_of_tls_1_3_cannot_be_left_out(server: dict[str, Any]) -> None:
    with pytest.raises(SecurityError, match="name all three"):
        client_context({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})
