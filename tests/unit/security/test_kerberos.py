"""Kerberos without a KDC: short names, logins, and the bytes of the exchange (RFC 4752)."""

from __future__ import annotations

import pytest

from ottla.security.errors import SecurityError
from ottla.security.jaas import JaasError, parse_jaas
from ottla.security.kerberos import (
    GSSAPI,
    MAX_KERBEROS_TOKEN_BYTES,
    GssapiClient,
    GssapiServer,
    KerberosLogin,
    ShortNames,
    kerberos_login,
)
from ottla.security.scram import SaslError

pytestmark = pytest.mark.spec("S2")
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


class Context:
    """Of a library that signs nothing: a client's ticket is its principal, and the answer to it is `welcome`."""

    def __init__(self, own: str = "", *, answers: bool = True) -> None:
        self._own = own
        self._answers = answers
        self.is_complete = False
        self.peer = ""

    def step(self, token: bytes) -> bytes:
        if self._own and not token:
            return self._own.encode()
        self.is_complete = True
        if self._own:
            assert token == b"welcome"
            return b""
        if token == b"forged":
            raise SaslError("Kerberos: the ticket is not for this service")
        self.peer = token.decode()
        return b"welcome" if self._answers else b""

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped " + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"wrapped "):
            raise SaslError("Kerberos: a token had an invalid signature")
        return token.removeprefix(b"wrapped ")


def server(*, answers: bool = True) -> GssapiServer:
    return GssapiServer(Context(answers=answers), ShortNames(["DEFAULT"], "EXAMPLE.ORG"))


def test_the_exchange() -> None:
    """Ticket and answer, then the offer of no layer (1, and a size of 0) and the same as the choice."""
    broker, client = server(), GssapiClient(lambda: Context("ann@EXAMPLE.ORG"))
    answer = broker.step(client.first())
    assert answer == b"welcome"
    following = client.step(answer)
    assert following == b""
    offer = broker.step(following)
    assert offer == b"wrapped \x01\x00\x00\x00"
    choice = client.step(offer)
    assert choice == b"wrapped \x01\x00\x00\x00"
    assert not broker.is_complete
    assert broker.step(choice) == b""
    assert (broker.is_complete, broker.user) == (True, "ann")
    assert client.step(b"") is None


def test_without_mutual_authentication_the_offer_comes_at_once() -> None:
    broker = server(answers=False)
    assert broker.step(b"ann@EXAMPLE.ORG") == b"wrapped \x01\x00\x00\x00"


def test_an_authorization_id_has_no_effect() -> None:
    """As in Kafka: also where it names another user."""
    broker = server(answers=False)
    broker.step(b"ann@EXAMPLE.ORG")
    broker.step(b"wrapped \x01\x00\x00\x00admin")
    assert broker.user == "ann"


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([b"forged"], "not for this service"),
        ([b"x" * (MAX_KERBEROS_TOKEN_BYTES + 1)], "longer than 131072 bytes"),
        ([b"ann@EXAMPLE.ORG", b"more"], "a token comes where the client has none"),
        ([b"ann@EXAMPLE.ORG", b"", b"\x01\0\0\0"], "invalid signature"),
        ([b"ann@EXAMPLE.ORG", b"", b"wrapped \x04\0\0\0"], "wants a security layer"),
        ([b"ann@EXAMPLE.ORG", b"", b"wrapped \x01"], "wants a security layer"),
        ([b"ann@OTHER.ORG", b"", b"wrapped \x01\0\0\0"], "no rules apply to ann@OTHER.ORG, rules DEFAULT"),
        ([b"ann@EXAMPLE.ORG", b"", b"wrapped \x01\0\0\0", b""], "the exchange is over"),
    ],
)
def test_what_a_broker_refuses(tokens: list[bytes], said: str) -> None:
    broker = server()
    for token in tokens[:-1]:
        broker.step(token)
    with pytest.raises(SaslError, match=said):
        broker.step(tokens[-1])


def test_a_client_wants_no_layer() -> None:
    client = GssapiClient(lambda: Context("ann@EXAMPLE.ORG"))
    client.first()
    client.step(b"welcome")
    with pytest.raises(SaslError, match="the broker wants a security layer"):
        client.step(b"wrapped \x06\0\0\0")


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        ("DEFAULT", "ann@EXAMPLE.ORG", "ann"),
        ("DEFAULT", "kafka/host@EXAMPLE.ORG", "kafka"),
        ("DEFAULT", "ann", "ann"),
        ("RULE:[1:$1]", "ann@OTHER.ORG", "ann"),
        ("RULE:[1:$1](bob),DEFAULT", "ann@EXAMPLE.ORG", "ann"),
        ("RULE:[2:$1-$2]", "kafka/host@OTHER.ORG", "kafka-host"),
        ("RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//", "ann@OTHER.ORG", "ann"),
        ("RULE:[1:$1@$0](.*@OTHER.ORG)s/(.*)@.*/other-$1/U", "ann@OTHER.ORG", "OTHER-ANN"),
        ("RULE:[1:$1]s/a/b/", "anna@OTHER.ORG", "bnna"),
        ("RULE:[1:$1]s/a/b/g", "anna@OTHER.ORG", "bnnb"),
        ("RULE:[1:$1]/L", "ANN@OTHER.ORG", "ann"),
        ("RULE:[2:$1],RULE:[1:$1]s/x/y/g/U", "axx@OTHER.ORG", "AYY"),
    ],
)
def test_short_names(rules: str, principal: str, name: str) -> None:
    assert ShortNames(rules.split(","), "EXAMPLE.ORG").name(principal) == name


@pytest.mark.parametrize(
    ("rules", "principal", "said"),
    [
        ("DEFAULT", "ann@OTHER.ORG", "no rules apply to ann@OTHER.ORG, rules DEFAULT; add one"),
        ("RULE:[2:$1]", "ann@EXAMPLE.ORG", "no rules apply to ann@EXAMPLE.ORG"),
        ("RULE:[1:$1@$0]", "ann@EXAMPLE.ORG", "makes ann@EXAMPLE.ORG of ann@EXAMPLE.ORG, which is not a simple name"),
        ("DEFAULT", "a/b/c@EXAMPLE.ORG", "malformed"),
    ],
)
def test_principals_without_a_name(rules: str, principal: str, said: str) -> None:
    with pytest.raises(SecurityError, match=said):
        ShortNames([rules], "EXAMPLE.ORG").name(principal)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("default", "'default' is not a rule; write DEFAULT or RULE:"),
        ("RULE:[1:$1]x", "is not a rule"),
        ("RULE:[1:$2]", r"\$2 in .* is not one of \$0 to \$1"),
        ("RULE:[1:$]", "is not one of"),
        ("RULE:[1:$1](()", "cannot be read"),
        ("RULE:[1:$1]s/a/$1/", r"\$1 in '\$1' is not a group of 'a'"),
    ],
)
def test_rules_that_cannot_be_read(rule: str, said: str) -> None:
    with pytest.raises(SecurityError, match=said) as caught:
        ShortNames([rule], "EXAMPLE.ORG")
    assert str(caught.value).startswith("sasl.kerberos.principal.to.local.rules: ")


def test_logins() -> None:
    by_key = f'{MODULE} required useKeyTab=true storeKey=true keyTab="/k" principal="ann@EXAMPLE.ORG";'
    assert kerberos_login(parse_jaas(by_key, GSSAPI).options, "kafka") == KerberosLogin(
        "ann@EXAMPLE.ORG", "/k", None, "kafka"
    )
    by_ticket = f'{MODULE} required useTicketCache=true ticketCache="/t" serviceName="broker";'
    assert kerberos_login(parse_jaas(by_ticket, GSSAPI).options, None) == KerberosLogin("", None, "/t", "broker")


@pytest.mark.parametrize(
    ("options", "service", "said"),
    [
        ({"useTicketCache": "true"}, None, "sasl.kerberos.service.name is missing"),
        ({"useTicketCache": "true", "serviceName": "a"}, "b", "serviceName is a, and sasl.kerberos.service.name is b"),
        ({"useKeyTab": "true", "keyTab": "/k"}, "kafka", "needs principal"),
        ({"useKeyTab": "true", "principal": "ann"}, "kafka", "needs keyTab"),
        ({"principal": "ann"}, "kafka", "needs useKeyTab=true, keyTab and principal, or useTicketCache=true"),
    ],
)
def test_logins_that_cannot_be(options: dict[str, str], service: str | None, said: str) -> None:
    with pytest.raises(JaasError, match=said):
        kerberos_login(options, service)
