"""Certificates for tests: an authority, and what it signs, with keys of the curve P-256, which are made fast."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "changeit"
NAMES = ("localhost", "127.0.0.1")
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate, its key, and the authority that signed it (None: itself)."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey
    authority: Issued | None = None

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem + ("" if self.authority is None else self.authority.certificate_pem)

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS#8, encrypted where there is a password."""
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str = PASSWORD) -> bytes:
        """A key store with the key and its chain."""
        others = [] if self.authority is None else [self.authority.certificate]
        return pkcs12.serialize_key_and_certificates(
            b"key", self.key, self.certificate, others, BestAvailableEncryption(password.encode())
        )

    def trust_pkcs12(self, password: str = PASSWORD) -> bytes:
        """A trust store of Java's with the certificate."""
        trusted = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))

    def key_settings(self, path: Path) -> dict[str, str]:
        """The settings of a key store in PEM that is written to `path`."""
        path.write_text(self.key_pem() + self.chain_pem)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}

    def trust_settings(self, path: Path) -> dict[str, str]:
        """The settings of a trust store in PEM with this certificate, which is written to `path`."""
        path.write_text(self.certificate_pem)
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def authority(name: str = "test authority") -> Issued:
    """A certificate authority."""
    return _issued(_name(name), None, (), is_authority=True)


def issue(
    signer: Issued, common_name: str, names: tuple[str, ...] = NAMES, *, expired: bool = False, of: str = "ottla"
) -> Issued:
    """A certificate for a server of these names, or for a client."""
    return _issued(_name(common_name, of), signer, names, expired=expired)


@cache
def the_authority() -> Issued:
    """The authority of this process, for tests that need no other."""
    return authority()


def _name(common_name: str, organization: str = "ottla") -> x509.Name:
    attributes = {NameOID.ORGANIZATION_NAME: organization, NameOID.COMMON_NAME: common_name}
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes.items()])


def _issued(
    subject: x509.Name,
    signer: Issued | None,
    names: tuple[str, ...],
    *,
    is_authority: bool = False,
    expired: bool = False,
) -> Issued:
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC).replace(microsecond=0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * DAY)
        .not_valid_after(now - DAY if expired else now + (20 if is_authority else 10) * DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), False)
    return Issued(builder.sign(key if signer is None else signer.key, SHA256()), key, signer)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
