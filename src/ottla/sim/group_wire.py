"""Conversion of the client's group requests to coordinator events, and of results to responses, without encoding.

The handlers of a broker (`broker.handlers`) do this for all versions; here it is done for the newest.
"""

from __future__ import annotations

from ottla.client.consumer.membership import GroupRequest, GroupResponse
from ottla.groups import events
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

HOST = "127.0.0.1"


def event_of(request: GroupRequest, token: object, client_id: str, new_id: str) -> events.GroupRequest:
    """The coordinator's event for a request; `new_id` is random, used if the member gets an id."""
    if isinstance(request, JoinGroupRequest):
        return events.JoinGroup(
            token,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            client_id,
            HOST,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            new_id,
            request.reason,
            requires_member_id=True,
            can_skip_assignment=True,
        )
    if isinstance(request, SyncGroupRequest):
        return events.SyncGroup(
            token,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            {one.member_id: one.assignment for one in request.assignments},
        )
    if isinstance(request, HeartbeatRequest):
        return events.Heartbeat(
            token, request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
    leaving = [events.LeavingMember(one.member_id, one.group_instance_id, one.reason) for one in request.members]
    return events.LeaveGroup(token, request.group_id, leaving)


def response_of(result: events.Result) -> GroupResponse:
    """The client's response for a result."""
    if isinstance(result, events.JoinResult):
        return JoinGroupResponse(
            error_code=result.error,
            generation_id=result.generation_id,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            leader=result.leader,
            skip_assignment=result.skip_assignment,
            member_id=result.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id, group_instance_id=one.group_instance_id, metadata=one.metadata
                )
                for one in result.members
            ],
        )
    if isinstance(result, events.SyncResult):
        return SyncGroupResponse(
            error_code=result.error,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )
    if isinstance(result, events.LeaveResult):
        return LeaveGroupResponse(error_code=result.error)
    assert isinstance(result, events.ErrorResult)
    return HeartbeatResponse(error_code=result.error)
