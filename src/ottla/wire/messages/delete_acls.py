"""DeleteAcls (key 31): delete the ACLs that match filters.

Versions: 1 pattern type (KIP-290); 2 flexible; 3 ACLs of users (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable_since=0, default=None)  # None for any.
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable_since=0, default=None)
    host_filter: str | None = field(STRING, nullable_since=0, default=None)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(versions=(0, 3), flexible_since=2, api_key=31)
class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct
class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


@message(versions=(0, 3), flexible_since=2, api_key=31)
class DeleteAclsResponse(Message):
    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
