"""Members of a group by hand, one request at a time, in a cluster whose coordinators are killed.

They are eager consumers that assign a topic's partitions in turn. A ledger fails the test where two of them own a
partition at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ottla.assign.consumer_protocol import Assignment, decode_assignment, encode_assignment, encode_subscription
from ottla.groups.coordinator import CoordinatorState
from ottla.peer.errors import KNOWN_CODES
from ottla.testing import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.framed_socket import Disconnected
from support.raw_client import FIND_COORDINATOR_V, OFFSET_COMMIT_V, RawClient
from support.waiting import wait_until

OFFSETS_TOPIC = "__consumer_offsets"
GROUP, TOPIC, PARTITIONS = "g", "t", 6
# Versions without the round for a member id.
JOIN_V, SYNC_V, HEARTBEAT_V, LEAVE_V = 3, 2, 2, 2
SESSION_TIMEOUT_MS = 30_000
_SERVING = (CoordinatorState.READY, CoordinatorState.PREPARING, CoordinatorState.REBALANCING)


class Member:
    """One member: its id, its generation, and what it owns."""

    def __init__(self, group: RawGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []
        self.owned: tuple[int, ...] = ()
        self._client: RawClient | None = None

    @property
    def client(self) -> RawClient:
        """The connection to the coordinator."""
        if self._client is None:
            self._client = RawClient(self.group.port(self.group.coordinator), client_id=self.name)
        return self._client

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def begin_join(self) -> None:
        """Send a JoinGroup. What it owned it has given up, as an eager consumer does."""
        self.owned = ()
        protocol = JoinGroupRequestProtocol(name="range", metadata=encode_subscription([TOPIC]))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.client.send(request, JOIN_V)

    def end_join(self) -> ErrorCode:
        """Take the answer."""
        answer = self.client.receive(JoinGroupResponse, JOIN_V)
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.others = [member.member_id for member in answer.members]
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        return KNOWN_CODES[answer.error_code]

    def join(self) -> ErrorCode:
        self.begin_join()
        return self.end_join()

    def begin_sync(self) -> None:
        """Send a SyncGroup, the leader's with the assignments."""
        given = [
            SyncGroupRequestAssignment(
                member_id=each, assignment=encode_assignment({TOPIC: range(at, PARTITIONS, len(self.others))})
            )
            for at, each in enumerate(sorted(self.others))
        ]
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=given
        )
        self.client.send(request, SYNC_V)

    def end_sync(self) -> ErrorCode:
        """Take the answer, and what it assigns."""
        answer = self.client.receive(SyncGroupResponse, SYNC_V)
        if not answer.error_code:
            assigned = decode_assignment(answer.assignment)
            assert isinstance(assigned, Assignment)
            self.owned = tuple(assigned.partitions.get(TOPIC, ()))
            self.group.check_owners()
        return KNOWN_CODES[answer.error_code]

    def sync(self) -> ErrorCode:
        self.begin_sync()
        return self.end_sync()

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
        )
        return KNOWN_CODES[self.client.ask(request, HeartbeatResponse, HEARTBEAT_V).error_code]

    def is_told(self) -> bool:
        """Whether a heartbeat is answered with the rebalance."""
        return self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    def commit(self, partition: int, offset: int) -> ErrorCode:
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        answer = self.client.ask(request, OffsetCommitResponse, OFFSET_COMMIT_V)
        error = KNOWN_CODES[answer.topics[0].partitions[0].error_code]
        if error is ErrorCode.NONE:
            self.group.committed[partition] = offset
        return error

    def leave(self) -> ErrorCode:
        self.owned = ()
        request = LeaveGroupRequest(group_id=GROUP, member_id=self.member_id)
        return KNOWN_CODES[self.client.ask(request, LeaveGroupResponse, LEAVE_V).error_code]


class RawGroup:
    """The members of a group, and the broker that coordinates it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.members: list[Member] = []
        cluster.create_topic(TOPIC, PARTITIONS)
        #: What was acknowledged.
        self.committed: dict[int, int] = {}
        wait_until(lambda: self.coordinator_known_to(0) is not None, "a coordinator")
        cluster.wait_until_in_sync(OFFSETS_TOPIC)
        self.coordinator = cluster.wait_for_leader(OFFSETS_TOPIC)
        self._wait_until_it_serves()

    def form(self, count: int) -> None:
        """So many members join one by one, and commit what they have."""
        for number in range(count):
            self.add(Member(self, f"m{number}"))
        for partition in range(PARTITIONS):
            owner = next(member for member in self.members if partition in member.owned)
            assert owner.commit(partition, 10 + partition) is ErrorCode.NONE

    @property
    def leader(self) -> Member:
        """The member that assigns."""
        return next(member for member in self.members if member.others)

    @property
    def followers(self) -> list[Member]:
        return [member for member in self.members if not member.others]

    def port(self, broker_id: int) -> int:
        return self.cluster.broker(broker_id).listening[0].port

    def coordinator_known_to(self, broker_id: int) -> int | None:
        """Which broker coordinates the group, in the words of a broker."""
        request = FindCoordinatorRequest(key=GROUP, key_type=0)
        with RawClient(self.port(broker_id)) as client:
            answer = client.ask(request, FindCoordinatorResponse, FIND_COORDINATOR_V)
        return None if answer.error_code else answer.node_id

    def _wait_until_it_serves(self) -> None:
        groups = self.cluster.broker(self.coordinator).groups
        self.cluster.wait_for(lambda: groups.coordinator_state(GROUP) in _SERVING, "the coordinator to serve")
        for broker_id in self.cluster.running:
            wait_until(partial(self._is_known_to, broker_id), "all to know the coordinator")

    def _is_known_to(self, broker_id: int) -> bool:
        return self.coordinator_known_to(broker_id) == self.coordinator

    def take_over(self) -> int:
        """Kill the coordinator; another broker has taken over when this returns. The members look for it again."""
        former = self.coordinator
        self.cluster.kill(former)
        self.moved(self.cluster.wait_for_leader(OFFSETS_TOPIC, other_than=former))
        return former

    def moved(self, coordinator: int) -> None:
        """Have the members continue with another coordinator, once it serves."""
        self.coordinator = coordinator
        for member in self.members:
            member.disconnect()
        self._wait_until_it_serves()

    def add(self, newcomer: Member) -> None:
        """A member comes, and the others join again; all sync."""
        newcomer.begin_join()
        for member in self.members:
            wait_until(member.is_told, "the rebalance")
            member.begin_join()
        self.members.append(newcomer)
        for member in self.members:
            assert member.end_join() is ErrorCode.NONE, member.name
        self.sync_all(self.members)

    def sync_all(self, members: Iterable[Member]) -> None:
        """All sync, the leader first."""
        for member in sorted(members, key=lambda each: not each.others):
            assert member.sync() is ErrorCode.NONE, member.name

    def check_owners(self) -> None:
        """Nobody owns what another owns."""
        owners: dict[int, str] = {}
        for member in self.members:
            for partition in member.owned:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, f"{partition} is owned by {other} and {member.name}"

    def check_settled(self) -> int:
        """The group is stable, each partition has an owner, and no commit is lost; its generation."""
        for member in self.members:
            assert member.heartbeat() is ErrorCode.NONE, member.name
        generations = {member.generation for member in self.members}
        assert len(generations) == 1
        self.check_owners()
        assert sorted(partition for member in self.members for partition in member.owned) == list(range(PARTITIONS))
        with RawClient(self.port(self.coordinator)) as client:
            for partition, offset in self.committed.items():
                assert client.committed(GROUP, TOPIC, partition) == (0, offset)
        return generations.pop()

    def close(self) -> None:
        for member in self.members:
            member.disconnect()


__all__ = ["GROUP", "OFFSETS_TOPIC", "PARTITIONS", "TOPIC", "Disconnected", "Member", "RawGroup"]
