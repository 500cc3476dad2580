"""`/delegation_token/…`: delegation tokens, and notifications of their changes."""

from __future__ import annotations

from typing import Final

from ottla.cluster.delegation_tokens import TokenInformation
from ottla.zk.layout.codec import ZnodeDataError, dump, expected, load
from ottla.zk.layout.configs import entity_name, named_entity

_VERSION: Final = 3
_FIRST_WITH_REQUESTER: Final = 3


class DelegationTokenZnode:
    """`/delegation_token/tokens/<token id>`: a token without its HMAC."""

    ROOT: Final = "/delegation_token/tokens"

    @staticmethod
    def path(token_id: str) -> str:
        """The token of this id."""
        return f"{DelegationTokenZnode.ROOT}/{token_id}"

    @staticmethod
    def encode(token: TokenInformation) -> bytes:
        """The JSON as Kafka writes it (version 3)."""
        return dump(
            {
                "issueTimestamp": token.issue_ms,
                "renewers": [entity_name(each) for each in token.renewers],
                "tokenRequester": entity_name(token.requester),
                "tokenId": token.token_id,
                "owner": entity_name(token.owner),
                "expiryTimestamp": token.expiry_ms,
                "maxTimestamp": token.max_ms,
                "version": _VERSION,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes | None) -> TokenInformation:
        """Raises `ZnodeDataError`."""
        value = load(path, data)
        with expected(path, "holds no delegation token"):
            version = int(value["version"])
            if not 0 < version <= _VERSION:
                raise ValueError(f"version {version}")
            requester = value["tokenRequester" if version >= _FIRST_WITH_REQUESTER else "owner"]
            token_id = str(value["tokenId"])
            if path != DelegationTokenZnode.path(token_id):
                raise ValueError(f"the token {token_id}")
            return TokenInformation(
                token_id,
                _principal(value["owner"]),
                _principal(requester),
                tuple(_principal(each) for each in value["renewers"]),
                int(value["issueTimestamp"]),
                int(value["maxTimestamp"]),
                int(value["expiryTimestamp"]),
            )


def _principal(part: str) -> str:
    text = named_entity(part)
    if text is None or ":" not in text:
        raise ValueError(f"{part!r} is not a principal")
    return text


class DelegationTokenChangeZnode:
    """`/delegation_token/token_changes/token_change_<sequence>`: a token was made, changed or removed."""

    ROOT: Final = "/delegation_token/token_changes"
    PREFIX: Final = "token_change_"
    #: Kafka removes older ones when it handles a newer one.
    EXPIRATION_MS: Final = 15 * 60 * 1000

    @staticmethod
    def encode(token_id: str) -> bytes:
        """The token's id."""
        return token_id.encode()

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The id of the changed token. Raises `ZnodeDataError`."""
        token_id = (data or b"").decode(errors="replace")
        if not token_id or "/" in token_id:
            raise ZnodeDataError(f"{path} names no delegation token")
        return token_id
