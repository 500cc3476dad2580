"""Java's key stores of the type JKS. Pure: no access to the outside.

The format is the one that the JDK's KeyStore of this type writes: big-endian numbers, a list of entries, and a SHA-1
digest of the password and all before it. A private key is encrypted by exclusive or with a chain of SHA-1 digests.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from ottla.security.der import DerError, object_id, sequence

MAGIC, MAGIC_OF_JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_KEY_PROTECTOR = "1.3.6.1.4.1.42.2.17.1.1"


class DamagedStoreError(ValueError):
    """The bytes are not a whole store of this format."""


class WrongPasswordError(ValueError):
    """The password does not fit, or the store was changed."""


class Entry(NamedTuple):
    """An entry: a trusted certificate, or an encrypted private key with its chain of certificates."""

    alias: str
    certificates: tuple[bytes, ...]
    encrypted_key: bytes | None


def read_store(data: bytes, password: str | None) -> list[Entry]:
    """The entries of a store in DER; without a password its integrity is not checked.

    Raises DamagedStoreError, WrongPasswordError.
    """
    reader = _Reader(data[:-_DIGEST_BYTES])
    if reader.take(4) != MAGIC:
        raise DamagedStoreError("the file does not begin as a store of the type JKS")
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise DamagedStoreError(f"version {version} of the format is not known")
    entries = [reader.entry(version) for _ in range(min(count, len(data)))]
    if not reader.is_at_end():
        raise DamagedStoreError("bytes follow the last entry")
    if password is not None:
        digest = hashlib.sha1(_password_bytes(password) + _WHITENER + data[:-_DIGEST_BYTES]).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise WrongPasswordError("the password is wrong, or the file was changed")
    return entries


def decrypt_key(encrypted: bytes, password: str) -> bytes:
    """The private key of an entry as PKCS#8. Raises DamagedStoreError, WrongPasswordError."""
    try:
        algorithm, content = sequence(encrypted)
        kind = object_id(sequence(algorithm.whole)[0].content)
    except (DerError, IndexError, ValueError) as error:
        raise DamagedStoreError("the encrypted key cannot be read") from error
    if kind != _KEY_PROTECTOR:
        raise DamagedStoreError(f"the key is encrypted by {kind}, which stores of the type JKS do not use")
    salt, check = content.content[:_DIGEST_BYTES], content.content[-_DIGEST_BYTES:]
    secret, hidden = _password_bytes(password), content.content[_DIGEST_BYTES:-_DIGEST_BYTES]
    stream, last = bytearray(), salt
    while len(stream) < len(hidden):
        last = hashlib.sha1(secret + last).digest()
        stream += last
    key = bytes(left ^ right for left, right in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise WrongPasswordError("the password of the key is wrong")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    """Reads from front to back; each number of entries or bytes is bounded by what is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise DamagedStoreError("the file ends in the middle of an entry")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2), "big")).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) != "X.509":
            raise DamagedStoreError(f"a certificate of the type {kind}, not X.509")
        return self.take(self.number())

    def entry(self, version: int) -> Entry:
        tag, alias, _created = self.number(), self.text(), self.take(8)
        if tag == _TRUSTED_ENTRY:
            return Entry(alias, (self.certificate(version),), None)
        if tag != _KEY_ENTRY:
            raise DamagedStoreError(f"an entry of the unknown kind {tag}")
        key = self.take(self.number())
        count = self.number()
        return Entry(alias, tuple(self.certificate(version) for _ in range(count)), key)
