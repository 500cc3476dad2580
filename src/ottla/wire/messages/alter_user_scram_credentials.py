"""AlterUserScramCredentials (key 51): SCRAM credentials of users made, changed, deleted (KIP-554).

The password comes salted, never itself. Version 0 is flexible.
"""

from __future__ import annotations

from ottla.wire.schema import BYTES, INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


@struct
class ScramCredentialUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)


@message(versions=(0, 0), flexible_since=0, api_key=51)
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 0), flexible_since=0, api_key=51)
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
