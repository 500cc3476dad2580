"""Members of one consumer group as bare connections: what a coordinator is asked when a group forms, shrinks and grows.

One thread with epoll drives all of them. A member joins (a second time with the id that it was given), syncs, and is at
rest; the leader hands out the partitions of one topic by range. Members at rest would learn of a rebalance with their
next heartbeat, up to three seconds later; here one of them asks again and again, and as soon as it is told all ask at
once, so that the coordinator's own time is measured and not the heartbeats' interval.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from frames import VERSIONS, request_frame
from loadgen import STALL_LIMIT_S, LoadFailed, connect

from ottla.assign.consumer_protocol import Malformed, decode_assignment, encode_assignment, encode_subscription
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import parse_response_header
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"

_SIZE = struct.Struct(">i")


@dataclass(eq=False)
class RawMember:
    """One member: `asked` is the API whose answer it waits for; `at_rest` once it has an assignment."""

    sock: socket.socket
    member_id: str = ""
    generation_id: int = -1
    pending: ApiKey | None = None
    at_rest: bool = False
    partitions: int = 0
    received: bytearray = field(default_factory=bytearray)


class RawGroup:
    """A group on the broker at `port` whose members subscribe to `topic`."""

    def __init__(self, port: int, group_id: str, topic: str, partitions: int) -> None:
        self._port = port
        self.group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._protocols = [JoinGroupRequestProtocol(name=ASSIGNOR, metadata=encode_subscription([topic], version=3))]
        self.members: list[RawMember] = []
        self._by_descriptor: dict[int, RawMember] = {}
        self._epoll = select.epoll()
        #: Members at rest in a generation up to this one were told that it is over.
        self._told_generation = -1
        self._prober: RawMember | None = None
        self._handlers = {
            ApiKey.JOIN_GROUP: self._joined,
            ApiKey.SYNC_GROUP: self._synced,
            ApiKey.HEARTBEAT: self._heard,
            ApiKey.LEAVE_GROUP: self._left,
        }

    def form(self, size: int) -> float:
        """Members join at once; the seconds until all have their partitions."""
        newcomers = [self._connected() for _ in range(size)]
        begun = time.perf_counter()
        for member in newcomers:
            self._join(member)
        self._run()
        return time.perf_counter() - begun

    def one_leaves(self) -> float:
        """A member leaves; the seconds until the others share its partitions."""
        begun = time.perf_counter()
        leaver = self.members[-1]
        self._ask(leaver, ApiKey.LEAVE_GROUP, self._leave_request(leaver))
        self._run()
        return time.perf_counter() - begun

    def one_joins(self) -> float:
        """Another member joins; the seconds until everybody has a share."""
        newcomer = self._connected()
        begun = time.perf_counter()
        self._join(newcomer)
        self._probe(self.members[0])
        self._run()
        return time.perf_counter() - begun

    def heartbeat_frames(self) -> list[bytes]:
        """A heartbeat of each member, as a request."""
        return [request_frame(ApiKey.HEARTBEAT, self._heartbeat_request(member)) for member in self.members]

    def close(self) -> None:
        """Leave with all members, and close their connections."""
        for member in list(self.members):
            self._ask(member, ApiKey.LEAVE_GROUP, self._leave_request(member))
        while self.members:
            self._poll()
        self._epoll.close()

    def _connected(self) -> RawMember:
        member = RawMember(connect(self._port))
        self.members.append(member)
        self._by_descriptor[member.sock.fileno()] = member
        self._epoll.register(member.sock.fileno(), select.EPOLLIN)
        return member

    def _run(self) -> None:
        while not self._settled():
            self._poll()
        self._prober = None
        while any(member.pending is not None for member in self.members):
            self._poll()
        shared = sum(member.partitions for member in self.members)
        if shared != self._partitions:
            raise LoadFailed(f"{shared} partitions were given out instead of {self._partitions}")

    def _settled(self) -> bool:
        generation_id = self.members[0].generation_id
        return all(member.at_rest and member.generation_id == generation_id for member in self.members)

    def _poll(self) -> None:
        events = self._epoll.poll(STALL_LIMIT_S)
        if not events:
            raise LoadFailed(f"no answer for {STALL_LIMIT_S:g} s")
        for descriptor, _ in events:
            member = self._by_descriptor[descriptor]
            chunk = member.sock.recv(1 << 20)
            if not chunk:
                raise LoadFailed("the broker closed the connection")
            member.received += chunk
            self._take_answer(member)

    def _take_answer(self, member: RawMember) -> None:
        if len(member.received) < _SIZE.size:
            return
        end = _SIZE.size + _SIZE.unpack_from(member.received)[0]
        if len(member.received) < end:
            return
        frame, key = memoryview(bytes(member.received[_SIZE.size : end])), member.pending
        assert key is not None
        del member.received[:end]
        member.pending = None
        _, offset = parse_response_header(frame, int(key), VERSIONS[key])
        self._handlers[key](member, decode(API[key].response, frame, VERSIONS[key], offset))

    def _ask(self, member: RawMember, key: ApiKey, message: Any) -> None:
        member.pending = key
        member.sock.sendall(request_frame(key, message))

    def _join(self, member: RawMember) -> None:
        member.at_rest = False
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=member.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=self._protocols,
        )
        self._ask(member, ApiKey.JOIN_GROUP, request)

    def _joined(self, member: RawMember, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
            self._join(member)
            return
        _check(answer, "JoinGroup")
        member.member_id, member.generation_id = answer.member_id, answer.generation_id
        assignments = self._shares(answer.members) if answer.leader == answer.member_id else []
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=member.generation_id,
            member_id=member.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=assignments,
        )
        self._ask(member, ApiKey.SYNC_GROUP, request)

    def _shares(self, members: list[Any]) -> list[SyncGroupRequestAssignment]:
        each, over = divmod(self._partitions, len(members))
        shares, start = [], 0
        for index, member_id in enumerate(sorted(member.member_id for member in members)):
            end = start + each + (index < over)
            assignment = encode_assignment({self._topic: range(start, end)} if end > start else {})
            shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
            start = end
        return shares

    def _synced(self, member: RawMember, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(member)
            return
        _check(answer, "SyncGroup")
        found = decode_assignment(answer.assignment)
        if isinstance(found, Malformed):
            raise LoadFailed(f"SyncGroup: {found.message}")
        member.partitions = sum(map(len, found.partitions.values()))
        member.at_rest = True
        if member.generation_id <= self._told_generation:
            self._heartbeat(member)
        elif self._prober is None or self._prober.generation_id < member.generation_id:
            self._probe(member)

    def _probe(self, member: RawMember) -> None:
        self._prober = member
        if member.pending is None:
            self._heartbeat(member)

    def _heartbeat(self, member: RawMember) -> None:
        self._ask(member, ApiKey.HEARTBEAT, self._heartbeat_request(member))

    def _heartbeat_request(self, member: RawMember) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self.group_id, generation_id=member.generation_id, member_id=member.member_id)

    def _heard(self, member: RawMember, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(member)
            self._tell_all(member.generation_id)
            return
        _check(answer, "Heartbeat")
        if member is self._prober and not self._settled():
            self._heartbeat(member)

    def _tell_all(self, generation_id: int) -> None:
        if generation_id <= self._told_generation:
            return
        self._told_generation = generation_id
        for member in self.members:
            if member.at_rest and member.pending is None and member.generation_id <= generation_id:
                self._heartbeat(member)

    def _leave_request(self, member: RawMember) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=member.member_id)])

    def _left(self, member: RawMember, answer: Any) -> None:
        _check(answer, "LeaveGroup")
        self.members.remove(member)
        self._epoll.unregister(member.sock.fileno())
        del self._by_descriptor[member.sock.fileno()]
        member.sock.close()
        self._tell_all(member.generation_id)


def _check(answer: Any, what: str) -> None:
    if answer.error_code:
        raise LoadFailed(f"{what}: {answer}")
