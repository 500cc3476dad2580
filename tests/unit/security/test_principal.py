"""Names of principals, as Java 17's X500Principal and Kafka's SslPrincipalMapper make them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID

from ottla.security.errors import SecurityError
from ottla.security.principal import PrincipalMapper, principal_name
from support.certificates import authority, issue

CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
Attribute = x509.NameAttribute


def certificate(*sets: list[x509.NameAttribute]) -> bytes:
    name, key = x509.Name([x509.RelativeDistinguishedName(each) for each in sets]), generate_private_key(SECP256R1())
    begin, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2051))
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.spec("S1")
@pytest.mark.parametrize(
    ("sets", "name"),
    [
        (
            [
                [Attribute(CN, "alice")],
                [Attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x")],
                [Attribute(ORG, "y")],
            ],
            "O=y,OU=x,CN=alice",
        ),
        (
            [[Attribute(CN, 'a,b+c"d\\e<f>g;h=i#j')], [Attribute(ORG, " #lead and trail  ")]],
            r"O=\ \#lead and trail\ \ ,CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j",
        ),
        (
            [
                [Attribute(NameOID.EMAIL_ADDRESS, "a@b.c", _type=Kind.IA5String)],
                [Attribute(CN, "ä€😀\r\n\t\0z")],
                [Attribute(NameOID.SERIAL_NUMBER, "12", _type=Kind.PrintableString)],
            ],
            "2.5.4.5=#13023132,CN=ä€😀\r\n\t\\00z,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                [Attribute(CN, "a"), Attribute(NameOID.USER_ID, "u")],
                [Attribute(NameOID.DOMAIN_COMPONENT, "org", _type=Kind.IA5String)],
                [Attribute(NameOID.STREET_ADDRESS, "s 1")],
                [Attribute(NameOID.STATE_OR_PROVINCE_NAME, "st")],
                [Attribute(NameOID.LOCALITY_NAME, "l")],
                [Attribute(NameOID.COUNTRY_NAME, "DE")],
            ],
            "C=DE,L=l,ST=st,STREET=s 1,DC=org,CN=a+UID=u",
        ),
        ([[Attribute(CN, "univ", _type=Kind.UniversalString)]], "CN=#1c10000000750000006e0000006900000076"),
        (
            [[Attribute(CN, "  x")], [Attribute(ORG, "#")], [Attribute(ORG, " ")]],
            r"O=\ ,O=\#,CN=\ \ x",
        ),
    ],
)
def test_the_name_is_the_one_that_java_prints(sets: list[list[x509.NameAttribute]], name: str) -> None:
    assert principal_name(certificate(*sets)) == name


@pytest.mark.spec("S1")
def test_bytes_that_are_no_certificate_get_a_sentence() -> None:
    der = issue(authority(), "alice").der
    assert principal_name(der) == "CN=alice,O=ottla"
    for bad in (b"", b"\x30", der[:40], b"\x30\x84\xff\xff\xff\xff", b"\x02\x01\x00"):
        with pytest.raises(SecurityError, match="cannot be read"):
            principal_name(bad)


DUKE = "CN=Duke, OU=ServiceUsers, O=Org, C=US"


@pytest.mark.spec("S1")
@pytest.mark.parametrize(
    ("rules", "distinguished_name", "name"),
    [
        (None, DUKE, DUKE),
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1@$2/ , DEFAULT".replace("@$2", ""), DUKE, "Duke"),
        ("RULE:^CN=(.*?), OU=(.*?), O=(.*?), C=(.*?)$/$1@$2/L", DUKE, "duke@serviceusers"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=a,ou=b,dc=c,dc=d", "A@B"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "C=US,CN=Some.Name,O=o", "some.name"),
        (r"RULE:CN=(a\/b).*/x\/$1\$/,DEFAULT", "CN=a/b,O=o", "x/a/b$"),
        ("RULE:^CN=(.*)$/$11/", "CN=a", "a1"),
        ("RULE:^CN=(x)?(.*)$/[$1]$2/", "CN=a", "[]a"),
        ("RULE:^no$/x/,DEFAULT", DUKE, DUKE),
        ("RULE:.*/x/", "abc", "xx"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str | None, distinguished_name: str, name: str) -> None:
    assert PrincipalMapper(rules).name(distinguished_name) == name


@pytest.mark.spec("S1")
def test_a_name_that_no_rule_matches_has_no_principal() -> None:
    with pytest.raises(SecurityError, match=r"no rule of ssl.principal.mapping.rules matches CN=a; add one"):
        PrincipalMapper("RULE:^no$/x/").name("CN=a")


@pytest.mark.spec("S1")
@pytest.mark.parametrize(
    "rules",
    ["default", "DEFAUL", "RULE:a/b", "RULE:a/b/LU", "RULE:(/b/", "RULE:(a)/$2/", "RULE:a/${x}/", "DEFAULT/L", "A/L/"],
)
def test_a_rule_that_cannot_be_is_refused(rules: str) -> None:
    with pytest.raises(SecurityError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)
