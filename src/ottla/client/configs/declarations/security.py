"""Settings of TLS and SASL, which are not supported yet: those shared with brokers, and those of clients only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.declarations import security

if TYPE_CHECKING:
    from ottla.client.configs.settings import ClientRow

_OF_BROKERS_ONLY = (
    "sasl.enabled.mechanisms",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.mechanism.",
    "sasl.server.",
    "ssl.allow.",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)
_DEFAULTS_OF_CLIENTS: dict[str, str | None] = {"ssl.cipher.suites": None}


def _shared() -> tuple[ClientRow, ...]:
    return tuple(
        (name, kind, _DEFAULTS_OF_CLIENTS.get(name, default), "", importance, "refused", documentation)
        for name, kind, default, _valid, importance, _mode, _effect, documentation in security.ROWS
        if name.startswith(("sasl.", "ssl.", "security.providers")) and not name.startswith(_OF_BROKERS_ONLY)
    )


# fmt: off
ROWS: tuple[ClientRow, ...] = (
    (
        "security.protocol", "string", "PLAINTEXT", "[PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL]", "medium", "refused",
        "How to speak with brokers. Only PLAINTEXT is there.",
    ),
    (
        "sasl.mechanism", "string", "GSSAPI", "", "medium", "refused",
        "SASL: the mechanism to log in by.",
    ),
    (
        "sasl.oauthbearer.header.urlencode", "boolean", "false", "", "low", "refused",
        "OAuth: whether client id and secret are URL-encoded in the header.",
    ),
    *_shared(),
)
