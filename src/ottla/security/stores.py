"""Keys and certificates from Kafka's settings: PEM in files or settings, PKCS12 and JKS stores.

The bytes of a file decide what it is, not the type in the settings, as in Java.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ottla.env.outgoing import reason_of
from ottla.env.secret_files import read_whole
from ottla.records.extras import require_extra
from ottla.security import jks
from ottla.security.der import DerError, certificate
from ottla.security.errors import SecurityError

Settings = Mapping[str, Any]
"""Values by Kafka's name; what is absent, None or an empty text is not set."""

MAX_STORE_BYTES = 8 * 1024 * 1024
TYPES = ("JKS", "PKCS12", "PEM")
_PEM, _BEGIN, _END = b"-----BEGIN", b"-----BEGIN ", b"-----END "
_LINE = 64


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key with its certificates, the key's own first."""

    origin: str
    """The setting that they come from, for messages."""
    certificates: tuple[bytes, ...]
    """In DER."""
    key: bytes = field(repr=False)
    """In PEM, perhaps encrypted."""
    password: str | None = field(default=None, repr=False)
    path: str | None = None
    """The file, where it is one in PEM."""

    @property
    def expires(self) -> datetime:
        """The moment when the first of the certificates expires."""
        return min(certificate(each).expires for each in self.certificates)


def key_material(settings: Settings) -> KeyMaterial | None:
    """The key that the settings of the key store name; None where they name none. Raises SecurityError."""
    path, password = _store(settings, "keystore")
    chain, key = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.key")
    key_password = settings.get("ssl.key.password")
    if not key and not chain:
        return None if path is None else _key_in_file(path, password, key_password)
    _check_text(settings, "keystore", "ssl.keystore.key" if key else "ssl.keystore.certificate.chain")
    if not key:
        raise SecurityError("ssl.keystore.certificate.chain is set without a key; set ssl.keystore.key")
    if not chain:
        raise SecurityError("ssl.keystore.key is set without certificates; set ssl.keystore.certificate.chain")
    certificates = _pem_certificates("ssl.keystore.certificate.chain", str(chain).encode())
    return KeyMaterial("ssl.keystore.key", certificates, _pem_key("ssl.keystore.key", str(key).encode()), key_password)


def trusted_certificates(settings: Settings) -> tuple[bytes, ...] | None:
    """The certificates to trust, in DER; None where no trust store is set: those of the system. Raises SecurityError.

    Of a JKS store these are its trusted certificates and the own one of each key, as in Java; of a PKCS12 store all.
    """
    path, password = _store(settings, "truststore")
    if text := settings.get("ssl.truststore.certificates"):
        _check_text(settings, "truststore", "ssl.truststore.certificates")
        return _pem_certificates("ssl.truststore.certificates", str(text).encode())
    if path is None:
        return None
    origin = f"ssl.truststore.location={path}"
    data, kind = _read(origin, path)
    if kind == "PEM":
        _check_no_password("truststore", password)
        return _pem_certificates(origin, data)
    if kind == "JKS":
        found = [entry.certificates[0] for entry in _jks("truststore", origin, data, password) if entry.certificates]
    else:
        _, found = _pkcs12("truststore", origin, data, password)
    if not found:
        raise SecurityError(f"{origin} has no certificates; import that of the certificate authority")
    return _checked(origin, found)


Store = Literal["keystore", "truststore"]


def _store(settings: Settings, store: Store) -> tuple[str | None, str | None]:
    """Path and password of a store, as far as they are set."""
    kind = str(settings.get(f"ssl.{store}.type") or TYPES[0]).upper()
    if kind not in TYPES:
        raise SecurityError(f"ssl.{store}.type={kind} is not supported; use PEM, PKCS12 or JKS")
    path, password = settings.get(f"ssl.{store}.location") or None, settings.get(f"ssl.{store}.password")
    if path is None and password:
        raise SecurityError(f"ssl.{store}.password is set without a store; set ssl.{store}.location")
    return path, password


def _check_text(settings: Settings, store: Store, setting: str) -> None:
    if str(settings.get(f"ssl.{store}.type")).upper() != "PEM":
        raise SecurityError(f"{setting} has PEM; set ssl.{store}.type=PEM beside it")
    if settings.get(f"ssl.{store}.location"):
        raise SecurityError(f"{setting} and ssl.{store}.location are both set; set one of them")


def _check_no_password(store: Store, password: str | None) -> None:
    if password:
        cure = "its key has one, which is ssl.key.password" if store == "keystore" else "remove the setting"
        raise SecurityError(f"ssl.{store}.password is set, but a file in PEM has no password; {cure}")


def _read(origin: str, path: str) -> tuple[bytes, str]:
    """The bytes of a store and its type."""
    try:
        data = read_whole(path, MAX_STORE_BYTES)
    except OSError as error:
        raise SecurityError(f"{origin} cannot be read ({reason_of(error)}); check the path and its mode") from None
    if data.startswith(jks.MAGIC):
        return data, "JKS"
    if data.startswith(jks.MAGIC_OF_JCEKS):
        raise SecurityError(f"{origin} is a store of the type JCEKS; convert it with keytool -importkeystore to PKCS12")
    if data.startswith(b"\x30"):
        return data, "PKCS12"
    if _PEM in data:
        return data, "PEM"
    raise SecurityError(f"{origin} is neither PEM nor a PKCS12 or JKS store, or it is damaged; make the file again")


def _key_in_file(path: str, password: str | None, key_password: str | None) -> KeyMaterial:
    origin = f"ssl.keystore.location={path}"
    data, kind = _read(origin, path)
    if kind == "PEM":
        _check_no_password("keystore", password)
        return KeyMaterial(origin, _pem_certificates(origin, data), _pem_key(origin, data), key_password, path)
    if password is None:
        raise SecurityError(f"{origin} is set without its password; set ssl.keystore.password")
    if kind == "JKS":
        key, found = _jks_key(origin, data, password, key_password)
    else:
        key, found = _pkcs12("keystore", origin, data, password)
    if key is None:
        raise SecurityError(f"{origin} has no private key; import the key with its certificates, not these alone")
    return KeyMaterial(origin, _checked(origin, found), key)


def _jks(store: Store, origin: str, data: bytes, password: str | None) -> list[jks.Entry]:
    try:
        return jks.read_store(data, password)
    except jks.WrongPasswordError:
        raise _wrong_password(store, origin) from None
    except jks.DamagedStoreError as error:
        raise _damaged(origin, error) from None


def _jks_key(origin: str, data: bytes, password: str, key_password: str | None) -> tuple[bytes | None, Sequence[bytes]]:
    for entry in _jks("keystore", origin, data, password):
        if entry.encrypted_key is not None:
            try:
                key = jks.decrypt_key(entry.encrypted_key, password if key_password is None else key_password)
            except jks.WrongPasswordError:
                raise SecurityError(
                    f"{origin}: the password of the key is wrong; set ssl.key.password to the right one"
                ) from None
            except jks.DamagedStoreError as error:
                raise _damaged(origin, error) from None
            return _as_pem("PRIVATE KEY", key), entry.certificates
    return None, ()


def _pkcs12(store: Store, origin: str, data: bytes, password: str | None) -> tuple[bytes | None, list[bytes]]:
    """Key and certificates, those of the key first and in order."""
    require_extra("a PKCS12 store", "tls", "cryptography")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        found = load_pkcs12(data, None if password is None else password.encode())
        others = [each.certificate.public_bytes(Encoding.DER) for each in found.additional_certs]
        own = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.DER)]
        key = None
        if found.key is not None:
            key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key, _ordered(own, others) if store == "keystore" else own + others
    except ValueError as error:
        if "password" in str(error).lower():
            raise _wrong_password(store, origin) from None
        raise _damaged(origin, error) from None


def _ordered(chain: list[bytes], others: list[bytes]) -> list[bytes]:
    """The chain, each certificate followed by its issuer's as far as they are there."""
    by_subject = {certificate(each).subject: each for each in others}
    while chain and (issuer := by_subject.pop(certificate(chain[-1]).issuer, None)) is not None:
        chain.append(issuer)
    return chain


def _wrong_password(store: Store, origin: str) -> SecurityError:
    return SecurityError(f"{origin}: the password is wrong, or the file is damaged; check ssl.{store}.password")


def _damaged(origin: str, error: Exception) -> SecurityError:
    return SecurityError(f"{origin} is damaged ({error}); make the file again")


def _blocks(data: bytes) -> list[tuple[str, bytes]]:
    """Label and body of each block in PEM; one without an end is left out."""
    found = []
    for piece in data.split(_BEGIN)[1:]:
        label, _, rest = piece.partition(b"-----")
        body, end, _ = rest.partition(_END + label + b"-----")
        if end:
            found.append((label.decode("ascii", "replace"), body))
    return found


def _pem_certificates(origin: str, data: bytes) -> tuple[bytes, ...]:
    bodies = [body for label, body in _blocks(data) if label in ("CERTIFICATE", "X509 CERTIFICATE")]
    if not bodies:
        raise SecurityError(f"{origin} has no certificate in PEM; it begins with -----BEGIN CERTIFICATE-----")
    try:
        return _checked(origin, [base64.b64decode(b"".join(body.split()), validate=True) for body in bodies])
    except binascii.Error as error:
        raise _damaged(origin, error) from None


def _pem_key(origin: str, data: bytes) -> bytes:
    for label, body in _blocks(data):
        if label.endswith("PRIVATE KEY"):
            if b":" in body:  # headers of OpenSSL's older format
                return f"-----BEGIN {label}-----".encode() + body + f"-----END {label}-----\n".encode()
            try:
                return _as_pem(label, base64.b64decode(b"".join(body.split()), validate=True))
            except binascii.Error as error:
                raise _damaged(origin, error) from None
    raise SecurityError(f"{origin} has no private key in PEM; it begins with -----BEGIN PRIVATE KEY-----")


def _as_pem(label: str, der: bytes) -> bytes:
    text = base64.b64encode(der).decode()
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", "")).encode()


def as_pem(certificates: Sequence[bytes]) -> bytes:
    """Certificates in PEM."""
    return b"".join(_as_pem("CERTIFICATE", each) for each in certificates)


def _checked(origin: str, certificates: Sequence[bytes]) -> tuple[bytes, ...]:
    try:
        for each in certificates:
            certificate(each)
    except DerError as error:
        raise _damaged(origin, error) from None
    return tuple(certificates)
