"""DescribeAcls (key 29): the ACLs that match a filter.

Versions: 1 pattern type (KIP-290); 2 flexible; 3 ACLs of users (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 3), flexible_since=2, api_key=29)
class DescribeAclsRequest(Message):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable_since=0, default=None)  # None for any.
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable_since=0, default=None)
    host_filter: str | None = field(STRING, nullable_since=0, default=None)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct
class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct
class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    acls: list[AclDescription] = field(array(AclDescription))


@message(versions=(0, 3), flexible_since=2, api_key=29)
class DescribeAclsResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))
