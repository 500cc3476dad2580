"""JoinGroup (key 11), versions 0-9: join a group, or take part in its next generation.

0: the session timeout is also the rebalance timeout; 1: rebalance timeout; 2: throttle time; 4: the first join is
answered with MEMBER_ID_REQUIRED and the id to join with (KIP-394); 5: static members (KIP-345); 6: flexible; 7:
protocol type in the response, protocol name may be null (KIP-559); 8: reason (KIP-800); 9: a returning static leader
may be asked to skip the assignment (KIP-814).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.authorization import Accesses, on_group
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.groups.events import JoinGroup, JoinResult
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.sliced import mapped

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_THAT_REQUIRES_MEMBER_ID = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9

#: Longest client or instance id, in bytes, of which a member id can be made: a dash and a UUID are appended, and a
#: string on the wire has at most 32,767 bytes.
LONGEST_NAME = 32_767 - 37
#: Most protocols (assignors) of one member, which the group keeps; existing clients have a handful.
PROTOCOLS_LIMIT = 1_000


def accesses(context: RequestContext, request: JoinGroupRequest) -> Accesses:
    return (on_group(Operation.READ, request.group_id),)


def handle(context: RequestContext, request: JoinGroupRequest) -> None:
    """Pass the join to its group; the response is sent when the join completes."""
    version = context.api_version
    groups = context.broker.groups
    name = context.client_id if request.group_instance_id is None else request.group_instance_id
    if not context.permits(Operation.READ, ResourceType.GROUP, request.group_id):
        _answer(context, JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id))
        return
    if len(request.protocols) > PROTOCOLS_LIMIT:
        _answer(context, JoinResult(ErrorCode.INVALID_REQUEST, request.member_id))
        return
    if not request.member_id and len(name.encode()) > LONGEST_NAME:
        _answer(context, JoinResult(ErrorCode.INVALID_REQUEST, request.member_id))
        return
    has_rebalance_timeout = version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    groups.submit(
        JoinGroup(
            token=partial(_answer, context),
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=context.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            new_id=groups.new_id(),
            reason=request.reason,
            requires_member_id=version >= FIRST_VERSION_THAT_REQUIRES_MEMBER_ID,
            can_skip_assignment=version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
        )
    )


def _answer(context: RequestContext, result: JoinResult) -> None:
    protocol_name = result.protocol_name
    if protocol_name is None and context.api_version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    context.reply_in_slices(
        JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=protocol_name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=mapped(
                result.members,
                lambda member: JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    metadata=member.metadata,
                ),
            ),
        )
    )
