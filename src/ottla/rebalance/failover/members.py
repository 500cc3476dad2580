"""Members of a group by hand, one request at a time, so that each step of a failover can be seen.

They are eager consumers: with a join they give up what they own. Their leader deals the partitions out in turn. What is
asked and answered is written as lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.assign.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from ottla.env.environment import Environment
from ottla.groups.classic.machine import GroupMachine
from ottla.groups.coordinator import CoordinatorState
from ottla.inspection.internal_topics import OFFSETS_TOPIC
from ottla.peer.connection import PeerConnection, open_connection
from ottla.peer.errors import KNOWN_CODES, ClientError
from ottla.peer.settings import ConnectionSettings
from ottla.testing.cluster import EmbeddedCluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import Message

GROUP: Final = "readers"
TOPIC: Final = "topic1"
PARTITIONS: Final = 6
#: No session ends by itself, also on a machine that is very busy.
TIMEOUT_MS: Final = 300_000
WAIT_S: Final = 60.0
LOOK_S: Final = 0.01
#: Versions without the round for a member id (KIP-394), without the protocol's name, and with one group in a request.
_OLD: Final[dict[type[Message], tuple[int, int]]] = {
    JoinGroupRequest: (0, 3),
    SyncGroupRequest: (0, 2),
    FindCoordinatorRequest: (0, 2),
    OffsetFetchRequest: (0, 7),
}
_SERVING: Final = (CoordinatorState.READY, CoordinatorState.PREPARING, CoordinatorState.REBALANCING)
NO_ANSWER: Final = "no answer, the connection is lost"


class PlayedMember:
    """One member: its id, its generation, and what it owns."""

    def __init__(self, group: PlayedGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        #: The members that it assigns to, if it leads.
        self.roster: list[str] = []
        self._connection: PeerConnection | None = None
        self._pending: asyncio.Task[Any] | None = None

    async def ask(self, message: Message) -> Any:
        """The coordinator's answer."""
        if self._connection is None:
            self._connection = await self.group.connect(self.group.coordinator, self.name)
        return await self._connection.request(message, versions=_OLD.get(type(message)))

    async def disconnect(self) -> None:
        """Close the connection; a request that waits fails."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._pending is not None:
            await asyncio.gather(self._pending, return_exceptions=True)

    def begin_join(self) -> None:
        """Send JoinGroup, and give up what it owns."""
        self.owned = ()
        if self.name not in self.group.joined_again:
            self.group.joined_again.append(self.name)
        self.group.say(f"  {self.name} → JoinGroup")
        protocol = JoinGroupRequestProtocol(name="range", metadata=encode_subscription([TOPIC]))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        self._begin(request)

    async def end_join(self) -> None:
        """Take the answer."""
        answer = await self._answer()
        if answer is None:
            return
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.roster = [member.member_id for member in answer.members]
        leads = ", and leads it" if self.roster else ""
        self._say_answer(answer, f"generation {self.generation}{leads}")

    def begin_sync(self) -> None:
        """Send SyncGroup, the leader's with the assignments."""
        self.group.say(f"  {self.name} → SyncGroup{' with the assignment' if self.roster else ''}")
        shares = [
            SyncGroupRequestAssignment(
                member_id=each, assignment=encode_assignment({TOPIC: range(at, PARTITIONS, len(self.roster))})
            )
            for at, each in enumerate(sorted(self.roster))
        ]
        self._begin(
            SyncGroupRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=shares
            )
        )

    async def end_sync(self) -> None:
        """Take the answer, and what it assigns."""
        answer = await self._answer()
        if answer is None:
            return
        if not answer.error_code:
            assigned = decode_assignment(answer.assignment)
            assert isinstance(assigned, Assignment)
            self.owned = tuple(assigned.partitions.get(TOPIC, ()))
            self.group.look_for_doubles()
        self._say_answer(answer, f"partitions {_listed(self.owned)}")

    async def join_and_sync(self) -> None:
        """Join and sync alone."""
        self.begin_join()
        await self.end_join()
        self.begin_sync()
        await self.end_sync()

    async def heartbeat(self, generation: int | None = None, *, aloud: bool = True) -> ErrorCode:
        """Send Heartbeat, of another generation where it is named."""
        sent = self.generation if generation is None else generation
        request = HeartbeatRequest(group_id=GROUP, generation_id=sent, member_id=self.member_id)
        error = KNOWN_CODES[(await self.ask(request)).error_code]
        if aloud:
            self.group.say(f"  {self.name} → Heartbeat of generation {sent} ← {error_text(error)}")
        return error

    async def learn_of_rebalance(self) -> None:
        """Send heartbeats until one is answered with the rebalance."""
        async with asyncio.timeout(WAIT_S):
            while True:
                if await self.heartbeat(aloud=False) is ErrorCode.REBALANCE_IN_PROGRESS:
                    break
                await asyncio.sleep(LOOK_S)
        self.group.say(f"  {self.name} → Heartbeat ← {ErrorCode.REBALANCE_IN_PROGRESS.name}")

    async def commit(self, offset: int) -> None:
        """Commit this offset for each partition that it owns."""
        offsets = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
            for each in self.owned
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)],
        )
        answer = await self.ask(request)
        stored = [each.partition_index for each in answer.topics[0].partitions if not each.error_code]
        self.group.committed.update(dict.fromkeys(stored, offset))
        self.group.say(f"  {self.name} → OffsetCommit of offset {offset} ← stored for {_listed(stored)}")

    def _begin(self, message: Message) -> None:
        self._pending = asyncio.create_task(self.ask(message))

    async def _answer(self) -> Any:
        assert self._pending is not None
        try:
            return await asyncio.wait_for(self._pending, WAIT_S)
        except ClientError:
            self.group.say(f"  {self.name} ← {NO_ANSWER}")
            return None

    def _say_answer(self, answer: Any, text: str) -> None:
        error = KNOWN_CODES[answer.error_code]
        self.group.say(f"  {self.name} ← {error.name if error else text}")


class PlayedGroup:
    """The members of a group, and the broker that coordinates it."""

    def __init__(self, cluster: EmbeddedCluster, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.say = say
        self.members: list[PlayedMember] = []
        self.coordinator = 0
        #: Offsets whose commit was acknowledged.
        self.committed: dict[int, int] = {}
        #: Partitions that two members owned at one moment.
        self.owned_twice: set[int] = set()
        #: Members that have sent a join to this coordinator.
        self.joined_again: list[str] = []

    async def connect(self, broker_id: int, client_id: str) -> PeerConnection:
        """A connection to a broker."""
        listening = self.cluster.broker(broker_id).listening[0]
        settings = ConnectionSettings(client_id=client_id, request_timeout_ms=TIMEOUT_MS)
        return await open_connection(listening.host, listening.port, settings, Environment())

    async def form(self, names: str) -> None:
        """Members join one by one, and commit what they own. Nothing of it is written."""
        say, self.say = self.say, lambda _: None
        self.coordinator = await self._found()
        self.cluster.wait_until_in_sync(OFFSETS_TOPIC, WAIT_S)
        self._wait_until_it_serves()
        for name in names:
            await self.add(PlayedMember(self, name))
        for number, member in enumerate(self.members, 1):
            await member.commit(10 * number)
        self.say = say

    @property
    def leader(self) -> PlayedMember:
        """The member that assigns."""
        return next(member for member in self.members if member.roster)

    async def add(self, newcomer: PlayedMember) -> None:
        """A member comes, the others join again, and all sync."""
        newcomer.begin_join()
        await self.rejoin(self.members)
        self.members.append(newcomer)
        await newcomer.end_join()
        await self.sync()

    async def rejoin(self, members: Iterable[PlayedMember]) -> None:
        """Members learn of a rebalance, join again, and get the new generation."""
        joining = list(members)
        for member in joining:
            await member.learn_of_rebalance()
            member.begin_join()
        for member in joining:
            await member.end_join()

    async def sync(self) -> None:
        """All send SyncGroup, and take their assignments."""
        for member in self.members:
            member.begin_sync()
        for member in self.members:
            await member.end_sync()

    async def take_over(self) -> None:
        """Kill the coordinator; when this returns another broker serves the group, and the members know it."""
        former = self.coordinator
        self.cluster.kill(former)
        self.joined_again.clear()
        self.say(f"  ✗ broker {former}, the coordinator, is killed")
        for member in self.members:
            await member.disconnect()
        self.cluster.wait_for_leader(OFFSETS_TOPIC, other_than=former, timeout_s=WAIT_S)
        self.coordinator = await self._found(other_than=former)
        self._wait_until_it_serves()
        self.say(f"  broker {self.coordinator} leads {OFFSETS_TOPIC}-0 now, and has loaded the group from it")

    async def _found(self, other_than: int | None = None) -> int:
        """The coordinator, by FindCoordinator."""
        request = FindCoordinatorRequest(key=GROUP, key_type=0)
        connection = await self.connect(self.cluster.running[0], "finder")
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    answer = await connection.request(request, versions=_OLD[FindCoordinatorRequest])
                    if not answer.error_code and answer.node_id != other_than:
                        return int(answer.node_id)
                    await asyncio.sleep(LOOK_S)
        finally:
            connection.close()

    def _wait_until_it_serves(self) -> None:
        groups = self.cluster.broker(self.coordinator).groups
        self.cluster.wait_for(
            lambda: groups.coordinator_state(GROUP) in _SERVING, "the coordinator to serve", timeout_s=WAIT_S
        )

    async def until_it_waits(self, member: PlayedMember) -> None:
        """Wait until the coordinator has the member's join, which waits for those of the others."""
        groups = self.cluster.broker(self.coordinator).groups

        def waits() -> bool:
            machine = groups.describe(GROUP)
            known = machine.members.get(member.member_id) if isinstance(machine, GroupMachine) else None
            return known is not None and known.join_token is not None

        await asyncio.to_thread(self.cluster.wait_for, waits, f"the join of {member.name}", WAIT_S)

    def look_for_doubles(self) -> None:
        """Note partitions that two members own."""
        owned = [partition for member in self.members for partition in member.owned]
        self.owned_twice.update(partition for partition in owned if owned.count(partition) > 1)

    def unowned(self) -> list[int]:
        """Partitions without an owner."""
        owned = {partition for member in self.members for partition in member.owned}
        return [partition for partition in range(PARTITIONS) if partition not in owned]

    async def lost_offsets(self) -> list[int]:
        """Partitions whose committed offset the coordinator does not have."""
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=sorted(self.committed))
        answer = await self.leader.ask(OffsetFetchRequest(group_id=GROUP, topics=[topic]))
        found = {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}
        return [partition for partition, offset in sorted(self.committed.items()) if found.get(partition) != offset]

    async def close(self) -> None:
        """Close all connections."""
        for member in self.members:
            await member.disconnect()


def error_text(error: ErrorCode) -> str:
    """The error's name, or "ok"."""
    return error.name if error else "ok"


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions)) or "none"
