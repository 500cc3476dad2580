"""Delegation tokens (KIP-48, KIP-373): what brokers keep of one, and who may do what with it. Pure.

Source: Apache Kafka 3.9, DelegationTokenManager.
"""

from __future__ import annotations

from typing import NamedTuple


class TokenInformation(NamedTuple):
    """A token as brokers share it; principals are text as in `User:alice`, times milliseconds since 1970.

    It has no HMAC: brokers make that of the id and their secret.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def is_of(self, principal: str) -> bool:
        """Whether the principal sees it without an ACL: as its owner, requester or renewer."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether the principal may renew it and let it expire."""
        return principal in (self.owner, *self.renewers)


def hmac_of(secret: str, token_id: str) -> bytes:
    """The HMAC of a token, by which its holder logs in and names it in requests."""
    import hmac  # a broker without tokens does not load OpenSSL

    return hmac.digest(secret.encode(), token_id.encode(), "sha512")
