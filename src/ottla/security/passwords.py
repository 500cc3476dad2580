"""Passwords in znodes, encrypted as Kafka's PasswordEncoder does (`password.encoder.*`)."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.records.extras import require_extra

SALT_BYTES: Final = 256
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS: Final = (CBC, GCM)
_IV_BYTES: Final = {CBC: 16, GCM: 12}
_TAG_BITS: Final = 128
KEY_BITS: Final = (128, 192, 256)
DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
KEY_FACTORIES: Final = {f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in (1, 224, 256, 384, 512)}
MAX_ITERATIONS: Final = 1_000_000
"""More are not read from a znode: they would hold the broker for seconds."""


class PasswordError(ValueError):
    """A password that cannot be decoded; the message does not have it."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encodes with these parameters. Raises MissingExtraError without the package `cryptography`."""

    secret: str = field(repr=False)
    key_factory: str
    cipher: str
    key_bits: int
    iterations: int
    random_bytes: Callable[[int], bytes] = field(repr=False)

    def __post_init__(self) -> None:
        require_extra("password.encoder.secret", "tls", "cryptography")

    def encode(self, password: str) -> str:
        """The text that a znode has."""
        salt, iv = self.random_bytes(SALT_BYTES), self.random_bytes(_IV_BYTES[self.cipher])
        key = _key(self.secret, self.key_factory, self.key_bits, salt, self.iterations)
        encrypted = _encrypted(self.cipher, key, iv, password.encode())
        values = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_bits),
            "salt": b64encode(salt).decode(),
            "iterations": str(self.iterations),
            "encryptedPassword": b64encode(encrypted).decode(),
            "passwordLength": str(_java_length(password)),
            "initializationVector": b64encode(iv).decode(),
        }
        if self.cipher == GCM:
            values["authenticationTagLength"] = str(_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in values.items())

    def decode(self, text: str) -> str:
        """The password of a text, whose own parameters count. Raises PasswordError."""
        values = {name.strip(): value.strip() for name, _, value in (part.partition(":") for part in text.split(","))}
        try:
            iterations, key_bits = int(values["iterations"]), int(values["keyLength"])
            if not 0 < iterations <= MAX_ITERATIONS or key_bits not in KEY_BITS:
                raise ValueError
            salt, iv, encrypted = (
                b64decode(values[name], validate=True) for name in ("salt", "initializationVector", "encryptedPassword")
            )
            key = _key(self.secret, values["keyFactoryAlgorithm"], key_bits, salt, iterations)
            password = _decrypted(values["cipherAlgorithm"], key, iv, encrypted).decode()
            if _java_length(password) != int(values["passwordLength"]):
                raise ValueError
        except (KeyError, ValueError):
            raise PasswordError("Password could not be decoded") from None
        return password


def _key(secret: str, key_factory: str, key_bits: int, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(KEY_FACTORIES[key_factory], secret.encode(), salt, iterations, key_bits // 8)


def _java_length(text: str) -> int:
    """The length of a string in Java: units of UTF-16."""
    return len(text.encode("utf-16-be")) // 2


def _cbc(key: bytes, iv: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(iv))


def _encrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    if cipher == GCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(key).encrypt(iv, data, None)
    size = _IV_BYTES[CBC]
    padding = size - len(data) % size
    encryptor = _cbc(key, iv).encryptor()
    return bytes(encryptor.update(data + bytes([padding]) * padding) + encryptor.finalize())


def _decrypted(cipher: str, key: bytes, iv: bytes, data: bytes) -> bytes:
    """Raises ValueError, KeyError for an unknown cipher."""
    if cipher == GCM:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(key).decrypt(iv, data, None)
        except InvalidTag:
            raise ValueError("another key") from None
    if cipher != CBC:
        raise KeyError(cipher)
    decryptor = _cbc(key, iv).decryptor()
    padded = decryptor.update(data) + decryptor.finalize()
    padding = padded[-1] if padded else 0
    if not 1 <= padding <= _IV_BYTES[CBC] or padded[-padding:] != bytes([padding]) * padding:
        raise ValueError("another key")
    return bytes(padded[:-padding])
