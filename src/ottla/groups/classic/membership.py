"""Membership of a group: members, static identities, pending ids, votes for a protocol.

The results that a join needs (have all members joined? which protocols do all support?) are maintained as counters, so
that a join costs the same in a group of ten and of a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from ottla.groups.events import Protocols


def protocol_names(protocols: Protocols) -> set[str]:
    """The names only."""
    return {name for name, _ in protocols}


@dataclass(slots=True, eq=False, repr=False)
class GroupMemberState:
    """A member, and its parked requests (`join_token`, `sync_token`, None if there is none)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: object | None = None
    sync_token: object | None = None
    #: Not yet in a generation: it has no member id to send heartbeats with, and may be removed while it waits.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place across restarts (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def identity(self) -> str:
        """The part of its ids that stays the same when a static member gets a new member id."""
        return self.group_instance_id or self.member_id

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; KeyError (a bug) if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(f"member {self.member_id} does not support the protocol {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """Its most preferred candidate; KeyError (a bug) if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(f"member {self.member_id} supports none of {sorted(candidates)}")

    def replaced_by(self, member_id: str) -> GroupMemberState:
        """The same static member under a new member id, without parked requests."""
        return replace(self, member_id=member_id, join_token=None, sync_token=None, is_new=False)

    def __repr__(self) -> str:
        return f"MemberState({self.member_id!r})"


class GroupMembers:
    """The members of a group, in the order in which they joined."""

    __slots__ = ("_joining", "_members", "_static", "_supporters", "leader", "pending")

    def __init__(self) -> None:
        self._members: dict[str, GroupMemberState] = {}
        self._static: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.leader: str | None = None
        #: Ids that were assigned with MEMBER_ID_REQUIRED and have not rejoined yet.
        self.pending: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[GroupMemberState]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def ids(self) -> Set[str]:
        """The member ids."""
        return self._members.keys()

    def get(self, member_id: str) -> GroupMemberState | None:
        """A member by its id."""
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str) -> str | None:
        """The current member id of a static member."""
        return self._static.get(group_instance_id)

    @property
    def joining(self) -> int:
        """Number of members with a parked join."""
        return self._joining

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined, and no pending ids are left."""
        return self._joining == len(self._members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members, 0 without members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: GroupMemberState) -> None:
        """Add a member; the first one is the leader."""
        if self.leader is None:
            self.leader = member.member_id
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        self._count(member, 1)
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> GroupMemberState | None:
        """Remove a member or a pending id; if it was the leader, the member that joined first becomes the leader."""
        self.pending.discard(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        if member.group_instance_id is not None:
            self._static.pop(member.group_instance_id, None)
        self._count(member, -1)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def replace(self, member: GroupMemberState, new: GroupMemberState) -> None:
        """Replace a static member by its new incarnation, leadership included."""
        self._count(member, -1)
        self._members = {
            (new.member_id if member_id == member.member_id else member_id): (
                new if member_id == member.member_id else other
            )
            for member_id, other in self._members.items()
        }
        self._count(new, 1)
        if new.group_instance_id is not None:
            self._static[new.group_instance_id] = new.member_id
        if self.leader == member.member_id:
            self.leader = new.member_id

    def update(
        self, member: GroupMemberState, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Update a member from its latest JoinGroup."""
        self._supporters.subtract(protocol_names(member.protocols))
        self._supporters.update(protocol_names(protocols))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: GroupMemberState, token: object) -> object | None:
        """Park a join; returns the token of an earlier one that it supersedes."""
        superseded = member.join_token
        if superseded is None:
            self._joining += 1
        member.join_token = token
        return superseded

    def take_join(self, member: GroupMemberState) -> object | None:
        """Unpark a join and return its token."""
        token = member.join_token
        if token is not None:
            self._joining -= 1
            member.join_token = None
        return token

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that joined; False if no member has."""
        if self.leader is None:
            return False
        if self._members[self.leader].join_token is not None:
            return True
        for member in self:
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def supports(self, protocols: Protocols) -> bool:
        """Whether one of these protocols is supported by every member."""
        size = len(self._members)
        return any(self._supporters[name] == size for name, _ in protocols)

    def select_protocol(self, replacement: tuple[GroupMemberState, GroupMemberState] | None = None) -> str | None:
        """The protocol that all support and most members vote for; ties are decided by the earlier members' votes.

        With a `replacement` (old, new) the vote is held as if the new one had replaced the old one. None if the members
        have no protocol in common.
        """
        electorate = list(self)
        if replacement is not None:
            electorate = [replacement[1] if member is replacement[0] else member for member in electorate]
        candidates = set.intersection(*(protocol_names(member.protocols) for member in electorate))
        if not candidates:
            return None
        votes: Counter[str] = Counter(member.vote(candidates) for member in electorate)
        return votes.most_common(1)[0][0]

    def _count(self, member: GroupMemberState, by: int) -> None:
        for name in protocol_names(member.protocols):
            self._supporters[name] += by
        if member.join_token is not None:
            self._joining += by

    def problems(self) -> list[str]:
        """Violated invariants; empty if there are none."""
        found = []
        joining = sum(member.join_token is not None for member in self)
        if joining != self._joining:
            found.append(f"{joining} members wait for the join, {self._joining} counted")
        supporters = Counter(name for member in self for name in protocol_names(member.protocols))
        if supporters != +self._supporters:
            found.append(f"protocols are supported by {dict(supporters)}, counted {dict(+self._supporters)}")
        static = {m.group_instance_id: m.member_id for m in self if m.group_instance_id is not None}
        if static != self._static:
            found.append(f"static members are {static}, kept {self._static}")
        if (self.leader is None) != (not self._members) or (self.leader is not None and self.leader not in self):
            found.append(f"leader {self.leader} of members {list(self._members)}")
        if self.pending & self._members.keys():
            found.append(f"both pending and members: {sorted(self.pending & self._members.keys())}")
        return found
