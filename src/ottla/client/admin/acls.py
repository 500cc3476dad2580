"""ACLs: who may do what with which resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.client.admin.model import AclBinding, AclBindingFilter
from ottla.client.admin.outcomes import AdminCalls, Outcomes
from ottla.client.errors import BrokerError, InvalidArgumentError
from ottla.cluster.acl_filters import ANY, MATCH
from ottla.cluster.acls import Code, Operation, PatternType, Permission, ResourceType
from ottla.peer.arguments import one_of, several, text
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

UNKNOWN = "UNKNOWN"
_FOR_FILTERS = {"ANY": ANY, "MATCH": MATCH}
_EVERY_ACL = AclBindingFilter()


class AclAdmin(AdminCalls):
    """Admin calls about ACLs."""

    async def describe_acls(
        self, acl_filter: AclBindingFilter = _EVERY_ACL, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match the filter. Raises BrokerError (SECURITY_DISABLED without an authorizer)."""
        request = DescribeAclsRequest(**_filter_fields(_checked_filter(acl_filter)))

        async def attempt() -> list[AclBinding]:
            answer: DescribeAclsResponse = await self._cluster.request_any(request)
            if answer.error_code != ErrorCode.NONE:
                raise BrokerError(answer.error_code, "ACLs cannot be described", answer.error_message)
            return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]

        return sorted(await self._cluster.retry("describing ACLs", attempt, timeout_ms))

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout_ms: int | None = None) -> None:
        """Create ACLs; one that exists is left as it is.

        Raises BrokerError with the broker's reason (INVALID_REQUEST, SECURITY_DISABLED), PartlyFailedError.
        """
        outcomes: Outcomes[AclBinding, None] = Outcomes(
            "creating ACLs", [_checked_acl(each) for each in several("acls", acls)]
        )

        async def attempt(pending: list[AclBinding]) -> None:
            answer: CreateAclsResponse = await self._cluster.request_any(
                CreateAclsRequest(creations=[_creation(acl) for acl in pending])
            )
            for acl, result in zip(pending, answer.results, strict=False):
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(acl, None)
                else:
                    what = f"the ACL is not created: {acl}"
                    outcomes.fail(acl, BrokerError(result.error_code, what, result.error_message))
            outcomes.check_answered(pending)

        await outcomes.work_off(self._cluster, attempt, timeout_ms)

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Delete the ACLs that match the filters; returns those deleted, each with the first filter that it matches.

        Raises BrokerError (SECURITY_DISABLED without an authorizer), PartlyFailedError for several filters.
        """
        outcomes: Outcomes[AclBindingFilter, list[AclBinding]] = Outcomes(
            "deleting ACLs", [_checked_filter(each) for each in several("filters", filters)]
        )

        async def attempt(pending: list[AclBindingFilter]) -> None:
            answer: DeleteAclsResponse = await self._cluster.request_any(
                DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(each)) for each in pending])
            )
            for each, result in zip(pending, answer.filter_results, strict=False):
                failed = next((acl for acl in result.matching_acls if acl.error_code != ErrorCode.NONE), result)
                if failed.error_code == ErrorCode.NONE:
                    outcomes.succeed(each, sorted(_binding(acl, acl) for acl in result.matching_acls))
                else:
                    what = f"not all ACLs are deleted that match {each}"
                    outcomes.fail(each, BrokerError(failed.error_code, what, failed.error_message))
            outcomes.check_answered(pending)

        return await outcomes.work_off(self._cluster, attempt, timeout_ms)


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=_code(ResourceType, acl.resource_type),
        resource_name=acl.name,
        resource_pattern_type=_code(PatternType, acl.pattern_type),
        principal=acl.principal,
        host=acl.host,
        operation=_code(Operation, acl.operation),
        permission_type=_code(Permission, acl.permission),
    )


def _filter_fields(wanted: AclBindingFilter) -> dict[str, Any]:
    """The fields that a filter has in requests of both kinds."""
    return {
        "resource_type_filter": _code(ResourceType, wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": _code(PatternType, wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _code(Operation, wanted.operation),
        "permission_type": _code(Permission, wanted.permission),
    }


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    return AclBinding(
        _name(ResourceType, resource.resource_type),
        resource.resource_name,
        acl.principal,
        _name(Operation, acl.operation),
        _name(Permission, acl.permission_type),
        acl.host,
        _name(PatternType, resource.pattern_type),
    )


def _name(codes: type[Code], code: int) -> str:
    """Kafka's name of a code; a newer broker may have others."""
    return codes(code).name if code in list(codes) else UNKNOWN


def _code(codes: type[Code], name: str) -> int:
    return _FOR_FILTERS[name] if name in _FOR_FILTERS else codes[name]


def _checked_acl(acl: AclBinding) -> AclBinding:
    if not isinstance(acl, AclBinding):
        raise InvalidArgumentError(f"an ACL is an AclBinding, not {acl!r:.80}")
    _check_names(acl)
    text("the name of the resource", acl.name)
    text("the principal", acl.principal)
    text("the host", acl.host)
    return acl


def _checked_filter(acl_filter: AclBindingFilter) -> AclBindingFilter:
    if not isinstance(acl_filter, AclBindingFilter):
        raise InvalidArgumentError(f"ACLs are filtered by an AclBindingFilter, not {acl_filter!r:.80}")
    _check_names(acl_filter, "ANY")
    for what, value in (("name", acl_filter.name), ("principal", acl_filter.principal), ("host", acl_filter.host)):
        if value is not None:
            text(f"the {what} of a filter", value)
    return acl_filter


def _check_names(acl: AclBinding | AclBindingFilter, *more: str) -> None:
    of_patterns = (*more, "MATCH") if more else ()
    one_of("resource_type", acl.resource_type, (*more, *ResourceType.__members__))
    one_of("pattern_type", acl.pattern_type, (*of_patterns, *PatternType.__members__))
    one_of("operation", acl.operation, (*more, *Operation.__members__))
    one_of("permission", acl.permission, (*more, *Permission.__members__))
