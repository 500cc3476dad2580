"""Passwords among the dynamic settings of a broker, which its znode has encrypted.

The rules and words are those of Apache Kafka 3.9's DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.config.settings import is_password

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.security.passwords import PasswordEncoder

NO_SECRET = "Password encoder secret not configured"

log = logging.getLogger("ottla.broker")


def encoder_problem(config: BrokerConfig) -> str | None:
    """Why passwords cannot be encoded with these settings; None where they can, or no secret is set."""
    if config.value("password.encoder.secret") is None:
        return None
    from ottla.records.extras import MissingExtraError, require_extra
    from ottla.security.passwords import CIPHERS, KEY_BITS, KEY_FACTORIES, MAX_ITERATIONS

    if config.get_int("password.encoder.iterations") > MAX_ITERATIONS:
        return f"password.encoder.iterations is more than {MAX_ITERATIONS:,}, which take seconds. Lower it."
    known: dict[str, tuple[object, ...]] = {
        "password.encoder.cipher.algorithm": CIPHERS,
        "password.encoder.key.length": KEY_BITS,
        "password.encoder.keyfactory.algorithm": (None, *KEY_FACTORIES),
    }
    for name, values in known.items():
        if config.value(name) not in values:
            choices = ", ".join(str(each) for each in values if each is not None)
            return f"{name}={config.value(name)} is not supported. Set it to one of {choices}."
    try:
        require_extra("password.encoder.secret", "tls", "cryptography")
    except MissingExtraError as error:
        return str(error)
    return None


class EncodedPasswords:
    """Encodes and decodes the passwords of settings by their names."""

    def __init__(self, config: BrokerConfig, random_bytes: Callable[[int], bytes]) -> None:
        self._encoder = _encoder(config, "password.encoder.secret", random_bytes)
        self._old = None if self._encoder is None else _encoder(config, "password.encoder.old.secret", random_bytes)

    def encoded(self, settings: Mapping[str, str], *, per_broker: bool) -> dict[str, str] | str:
        """The settings for the znode of one broker or of all, or why they cannot be kept there."""
        passwords = list(filter(is_password, settings))
        if not passwords:
            return dict(settings)
        if not per_broker:
            return f"Password config can be defined only at broker level: {passwords[0]}"
        encoder = self._encoder
        if encoder is None:
            return NO_SECRET
        return {name: encoder.encode(text) if is_password(name) else text for name, text in settings.items()}

    def decoded(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of the znode; passwords that cannot be decoded are logged and left out."""
        found = dict(settings)
        for name in filter(is_password, settings):
            password = _decoded(self._encoder, settings[name])
            if password is None:
                log.error("Dynamic password config %s could not be decoded, ignoring.", name)
                del found[name]
            else:
                found[name] = password
        return found

    def encoded_again(self, settings: Mapping[str, str]) -> dict[str, str] | None:
        """The settings of the znode with passwords of the old secret encoded by the new one; None without any."""
        found = dict(settings)
        for name in filter(is_password, settings):
            password = _decoded(self._old, settings[name])
            if password is not None and self._encoder is not None:
                found[name] = self._encoder.encode(password)
        return None if found == settings else found


def _decoded(encoder: PasswordEncoder | None, text: str) -> str | None:
    if encoder is None:
        return None
    from ottla.security.passwords import PasswordError

    try:
        return encoder.decode(text)
    except PasswordError:
        return None


def _encoder(config: BrokerConfig, secret: str, random_bytes: Callable[[int], bytes]) -> PasswordEncoder | None:
    if config.value(secret) is None:
        return None
    from ottla.security.passwords import DEFAULT_KEY_FACTORY, PasswordEncoder

    return PasswordEncoder(
        config.get_string(secret),
        config.get_string_or_none("password.encoder.keyfactory.algorithm") or DEFAULT_KEY_FACTORY,
        config.get_string("password.encoder.cipher.algorithm"),
        config.get_int("password.encoder.key.length"),
        config.get_int("password.encoder.iterations"),
        random_bytes,
    )
