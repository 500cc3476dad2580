"""SaslHandshake (key 17): the mechanism that a client chooses, and those that the listener has.

Versions: 1 tokens follow in SaslAuthenticate requests; after 0 they follow as bare frames (KIP-152).
"""

from __future__ import annotations

from ottla.wire.schema import INT16, STRING, Message, array, field, message


@message(versions=(0, 1), api_key=17)
class SaslHandshakeRequest(Message):
    mechanism: str = field(STRING)


@message(versions=(0, 1), api_key=17)
class SaslHandshakeResponse(Message):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
