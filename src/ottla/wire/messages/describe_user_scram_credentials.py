"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554). Version 0 is flexible."""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class UserName(Struct):
    name: str = field(STRING)


@message(versions=(0, 0), flexible_since=0, api_key=50)
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = field(array(UserName), nullable_since=0)  # Null or none: all.


@struct
class CredentialInfo(Struct):
    mechanism: int = field(INT8)  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    iterations: int = field(INT32)


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


@message(versions=(0, 0), flexible_since=0, api_key=50)
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    results: list[DescribeUserScramCredentialsResult] = field(array(DescribeUserScramCredentialsResult))
