"""CreateAcls (key 30).

Versions: 1 pattern type (KIP-290); 2 flexible; 3 ACLs of users (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class AclCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(versions=(0, 3), flexible_since=2, api_key=30)
class CreateAclsRequest(Message):
    creations: list[AclCreation] = field(array(AclCreation))


@struct
class AclCreationResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


@message(versions=(0, 3), flexible_since=2, api_key=30)
class CreateAclsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(array(AclCreationResult))
