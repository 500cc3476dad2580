"""Random groups of consumers and what happens to them, seeded: what the assignors are compared with Java's on.

A `RandomGroup` is a chain: ask it for `cluster()` and `subscriptions(assignor name)`, let an assignor assign, tell it
the result by `assigned(...)`, and let `change()` make members join, leave, restart, miss a rebalance, claim what
belongs to others, change what they subscribe to, and topics grow, come and go. Everything follows from the seed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, SubscribedTopic
from ottla.assign.consumer_protocol import (
    HIGHEST_VERSION,
    NO_GENERATION,
    Assignment,
    Malformed,
    Partitions,
    decode_subscription,
    encode_subscription,
)

ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
TOPIC_NAMES = ("orders", "payments", "clicks", "a", "b", "ab", "audit.log", "user-events", "T_1", "t1", "t10", "t2")
#: Client ids begin member ids; the last three sort differently by characters and by UTF-16 units.
CLIENT_IDS = ("consumer", "c", "rdkafka", "sarama-1", "Z", "é", "\uff5e", "\U0001f600")
RACKS = ("rack-a", "rack-b", "rack-c", "rack-d")


@dataclass(slots=True)
class RandomMember:
    """A consumer: what it wants, what it last got and of which generation."""

    topics: tuple[str, ...]
    instance: str | None
    rack: str | None
    version: int
    """Of its subscriptions."""
    old_user_data: bool
    """Whether its sticky assignor writes the older form, without the generation."""
    owned: Partitions = field(default_factory=dict)
    generation: int = NO_GENERATION
    misses_next: bool = False
    """Whether the next assignment does not reach it."""


class RandomGroup:
    """One group; `equal_subscriptions` and `racks` force what the seed would else decide.

    With `shrinking`, topics also come back with fewer partitions than members still claim. Java's sticky assignors
    then throw ("No more unfilled consumers to be assigned.") or give a partition to two members: no oracle for that.
    """

    def __init__(
        self,
        seed: int,
        *,
        equal_subscriptions: bool | None = None,
        racks: bool | None = None,
        shrinking: bool = False,
    ) -> None:
        self._random = random.Random(seed)
        chance = self._random.random
        self.equal_subscriptions = chance() < 0.5 if equal_subscriptions is None else equal_subscriptions
        self.racks = chance() < 0.4 if racks is None else racks
        self._static = chance() < 0.3
        self._mixed_versions = chance() < 0.25
        self._copartitioned = chance() < 0.3
        large = chance() < 0.2
        self._most_members = 40 if large else 9
        self._most_partitions = 60 if large else 11
        self._replicas = self._random.randint(1, 3)
        self._shrinking = shrinking
        self._largest: dict[str, int] = {}
        self._ids = 0
        self._generation = 0
        self._common_topics: tuple[str, ...] = ()
        self.topics: dict[str, SubscribedTopic] = {}
        self.members: dict[str, RandomMember] = {}
        for name in self._random.sample(TOPIC_NAMES, self._random.randint(1, 7)):
            self._make_topic(name)
        self._common_topics = self._some_topics()
        for _ in range(self._random.randint(1, self._most_members)):
            self._join()

    def cluster(self) -> ClusterMetadata:
        """The topics as they are now."""
        return ClusterMetadata(dict(self.topics))

    def subscriptions(self, assignor: str) -> dict[str, MemberSubscription]:
        """What the members send when they use that assignor, in the order in which they joined."""
        return {member_id: subscription_of(assignor, member) for member_id, member in self.members.items()}

    def assigned(self, assignments: Mapping[str, Assignment]) -> None:
        """Every member, but those that miss it, takes what it got."""
        self._generation += 1
        for member_id, member in self.members.items():
            if not member.misses_next:
                member.owned = dict(assignments[member_id].partitions)
                member.generation = self._generation
            member.misses_next = False

    def change(self) -> None:
        """Let up to three things happen; the group keeps at least one member."""
        happenings = (
            *(self._join,) * 3,
            *(self._leave,) * 3,
            self._restart,
            self._miss,
            self._claim,
            self._forget,
            self._resubscribe,
            self._grow_topic,
            self._come_topic,
            self._go_topic,
            self._move_replicas,
        )
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 3))):
            self._random.choice(happenings)()

    def _some_topics(self) -> tuple[str, ...]:
        known = sorted(self.topics)
        chosen = self._random.sample(known, self._random.randint(1, len(known)))
        if self._random.random() < 0.1:
            chosen.append(self._random.choice(("not-there", "nor-this")))
        return tuple(chosen)

    def _member_topics(self) -> tuple[str, ...]:
        if self.equal_subscriptions:
            topics = list(self._common_topics)
            self._random.shuffle(topics)
            return tuple(topics)
        return () if self._random.random() < 0.05 else self._some_topics()

    def _rack(self) -> str | None:
        return self._random.choice((*RACKS, RACKS[0], None)) if self.racks else None

    def _join(self) -> None:
        self._ids += 1
        member_id = f"{self._random.choice(CLIENT_IDS)}-{self._ids}-{self._random.getrandbits(32):08x}"
        old = self._mixed_versions and self._random.random() < 0.4
        self.members[member_id] = RandomMember(
            topics=self._member_topics(),
            instance=f"i{self._random.randint(0, 9)}-{self._ids}"
            if self._static and self._random.random() < 0.7
            else None,
            rack=self._rack(),
            version=self._random.randint(0, HIGHEST_VERSION) if old else HIGHEST_VERSION,
            old_user_data=old and self._random.random() < 0.5,
        )

    def _someone(self) -> str:
        return self._random.choice(list(self.members))

    def _leave(self) -> None:
        if len(self.members) > 1:
            del self.members[self._someone()]

    def _restart(self) -> None:
        """A member comes back under a new id and knows nothing; static ones keep their instance id."""
        member = self.members.pop(self._someone())
        self._join()
        newest = next(reversed(self.members.values()))
        newest.instance = member.instance
        newest.topics = member.topics

    def _miss(self) -> None:
        self.members[self._someone()].misses_next = True

    def _claim(self) -> None:
        """A member says that it owns what another one owns, in its own generation or the other's."""
        claimant, owner = self.members[self._someone()], self.members[self._someone()]
        claimant.owned = dict(owner.owned)
        if self._random.random() < 0.5:
            claimant.generation = owner.generation

    def _forget(self) -> None:
        member = self.members[self._someone()]
        member.owned = {}
        member.generation = NO_GENERATION

    def _resubscribe(self) -> None:
        if self.equal_subscriptions and self.topics:
            self._common_topics = self._some_topics()
            for member in self.members.values():
                member.topics = self._member_topics()
        elif self.topics:
            self.members[self._someone()].topics = self._some_topics()

    def _make_topic(self, name: str) -> None:
        partitions = self._random.randint(1, self._most_partitions)
        if self._copartitioned and self.topics:
            partitions = next(iter(self.topics.values())).partitions
        if not self._shrinking:
            partitions = max(partitions, self._largest.get(name, 0))
        self._know(name, partitions, self._replica_racks(partitions))

    def _know(self, name: str, partitions: int, racks: tuple[frozenset[str], ...] | None) -> None:
        self._largest[name] = max(partitions, self._largest.get(name, 0))
        self.topics[name] = SubscribedTopic(partitions, racks)

    def _replica_racks(self, partitions: int) -> tuple[frozenset[str], ...] | None:
        if not self.racks:
            return None
        return tuple(frozenset(self._random.choices(RACKS[:3], k=self._replicas)) for _ in range(partitions))

    def _grow_topic(self) -> None:
        if self.topics:
            name = self._random.choice(sorted(self.topics))
            known = self.topics[name]
            more = self._random.randint(1, 5)
            racks = self._replica_racks(more)
            both = None if known.racks is None or racks is None else known.racks + racks
            self._know(name, known.partitions + more, both)

    def _come_topic(self) -> None:
        self._make_topic(self._random.choice(TOPIC_NAMES))

    def _go_topic(self) -> None:
        if len(self.topics) > 1:
            del self.topics[self._random.choice(sorted(self.topics))]

    def _move_replicas(self) -> None:
        name = self._random.choice(sorted(self.topics))
        partitions = self.topics[name].partitions
        self.topics[name] = SubscribedTopic(partitions, self._replica_racks(partitions))


def subscription_of(assignor: str, member: RandomMember) -> MemberSubscription:
    """As Java's consumer: eager members own nothing when they join, sticky ones keep it in their user data."""
    sent = encode_subscription(
        member.topics,
        _user_data(assignor, member),
        member.version,
        owned_partitions=_sorted(member.owned) if assignor == "cooperative-sticky" else {},
        generation_id=member.generation,
        rack_id=member.rack,
    )
    read = decode_subscription(sent)
    assert not isinstance(read, Malformed)
    return MemberSubscription(read, member.instance)


def _user_data(assignor: str, member: RandomMember) -> bytes | None:
    if assignor == "cooperative-sticky":
        return struct.pack(">i", member.generation)
    if assignor != "sticky" or (not member.owned and member.generation == NO_GENERATION):
        return None
    owned = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        for topic, indexes in member.owned.items()
    )
    generation = b"" if member.old_user_data else struct.pack(">i", member.generation)
    return struct.pack(">i", len(member.owned)) + owned + generation


def _sorted(owned: Partitions) -> Partitions:
    return {topic: tuple(sorted(owned[topic])) for topic in sorted(owned)}
