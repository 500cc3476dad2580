"""Runs transcripts of assignments: `> command` lines, each followed by what it led to. See the files beside this one.

topic t 4 [racks=a,b,a+b,c]        there is such a topic; racks of each partition's replicas
join m t,u [rack=a] [instance=i]   a member that subscribes to t and u; again: it subscribes again
leave m
assign range                       everybody gets what that assignor gives, and owns it when the next one runs
threads c t=2,u=1                  a ZooKeeper consumer with that many threads for each topic
assign threads range
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.assign.assignor import ClusterMetadata, MemberSubscription, SubscribedTopic
from ottla.assign.consumer_protocol import HIGHEST_VERSION, Assignment, Partitions
from ottla.assign.threads import THREAD_ASSIGNORS, ConsumerThread, UnequalSubscriptionsError, consumer_threads
from property.assign.random_groups import RandomMember, subscription_of

Assign = Callable[[str, ClusterMetadata, Mapping[str, MemberSubscription]], Mapping[str, Assignment]]


def rerun(transcript: str, assign: Assign) -> str:
    """The transcript with the results of its commands as they are now."""
    group = Group(assign)
    lines = []
    for line in transcript.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"  {result}" for result in group.run(line.removeprefix("> ").split()))]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Group:
    """The topics and members of a transcript, and who owned what."""

    def __init__(self, assign: Assign) -> None:
        self._assign = assign
        self.topics: dict[str, SubscribedTopic] = {}
        self.members: dict[str, RandomMember] = {}
        self.threads: dict[str, list[ConsumerThread]] = {}
        self.owners: dict[tuple[str, int], str] = {}
        self.generation = 0

    def run(self, words: list[str]) -> list[str]:
        """Carry out one command; gives the lines of its result."""
        plain = [words[0]] + [word for word in words[1:] if word.partition("=")[0] not in ("racks", "rack", "instance")]
        options = dict(word.split("=") for word in words[1:] if word not in plain)
        match plain:
            case ["topic", name, count]:
                racks = [frozenset(each.split("+")) for each in options["racks"].split(",")] if options else None
                self.topics[name] = SubscribedTopic(int(count), tuple(racks) if racks else None)
            case ["join", name, topics]:
                member = RandomMember((), options.get("instance"), options.get("rack"), HIGHEST_VERSION, False)
                self.members.setdefault(name, member).topics = tuple(topics.split(","))
            case ["leave", name]:
                del self.members[name]
            case ["assign", "threads", name]:
                return self.assign_threads(name)
            case ["assign", name]:
                return self.assign(name)
            case ["threads", consumer, *counts]:
                streams = {topic: int(count) for topic, count in (each.split("=") for each in counts[0].split(","))}
                for topic, threads in consumer_threads(consumer, streams).items():
                    self.threads.setdefault(topic, []).extend(threads)
            case _:
                raise ValueError(f"unknown command: {' '.join(words)}")
        return []

    def assign(self, name: str) -> list[str]:
        """A rebalance with that assignor."""
        subscriptions = {member_id: subscription_of(name, member) for member_id, member in self.members.items()}
        assignments = self._assign(name, ClusterMetadata(self.topics), subscriptions)
        self.generation += 1
        before, self.owners = self.owners, {}
        for member_id, member in self.members.items():
            member.owned = dict(assignments[member_id].partitions)
            member.generation = self.generation
            for topic, indexes in member.owned.items():
                self.owners |= {(topic, index): member_id for index in indexes}
        lines = [f"{member_id} <- {shown(self.members[member_id].owned)}" for member_id in sorted(self.members)]
        return [*lines, *self.compared(before)]

    def compared(self, before: Mapping[tuple[str, int], str]) -> list[str]:
        """What the rebalance did to those partitions that had an owner."""
        if not before:
            return []
        stay = sum(self.owners.get(partition) == owner for partition, owner in before.items())
        move = sum(self.owners.get(partition, owner) != owner for partition, owner in before.items())
        given_up = [
            f"{topic}:{index} by {before[topic, index]}" for topic, index in sorted(before.keys() - self.owners.keys())
        ]
        return [f"stay: {stay}, move: {move}", *([f"given up: {' '.join(given_up)}"] if given_up else [])]

    def assign_threads(self, name: str) -> list[str]:
        """What every thread of the group takes."""
        partitions = {topic: range(known.partitions) for topic, known in self.topics.items()}
        try:
            taken = THREAD_ASSIGNORS[name](partitions, self.threads)
        except UnequalSubscriptionsError as refused:
            return [f"refused: {refused}"]
        return [f"{thread} <- {shown(owned)}" for thread, owned in taken.items()]


def shown(owned: Partitions) -> str:
    """`t:0,1 u:2`, or `nothing`."""
    each = (f"{topic}:{','.join(map(str, sorted(owned[topic])))}" for topic in sorted(owned))
    return " ".join(each) or "nothing"
