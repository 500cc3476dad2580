"""Why each rebalance happened: the evidence that the coordinator wrote, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.model import EARLIEST, LATEST
from ottla.groups.evidence import EVIDENCE_TOPIC
from ottla.ops.rebalances import cause_in_words

if TYPE_CHECKING:
    from ottla.client.sync import Client


@dataclass(frozen=True, slots=True)
class ObservedRebalance:
    """One rebalance: when it began (ms since 1970), what for, and what it cost."""

    group: str
    generation: int
    outcome: str
    started_at_ms: int
    duration_ms: int
    causes: tuple[str, ...]
    members: int
    moved: int
    kept: int
    longest_pause_ms: int

    @property
    def why(self) -> str:
        """The causes as one phrase."""
        return "; ".join(self.causes) or "no cause recorded"

    @property
    def line(self) -> str:
        """The rebalance as one line of text."""
        return (
            f"group {self.group}, generation {self.generation}: {self.why} ({_count(self.members, 'member')}, "
            f"{_count(self.moved, 'partition')} moved, {self.kept} kept, longest pause {self.longest_pause_ms} ms)"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parse_rebalance(value: bytes) -> ObservedRebalance:
    """One record of the evidence topic. Raises ValueError or KeyError for anything else."""
    evidence: dict[str, Any] = json.loads(value)
    named = (*evidence.get("members", ()), *evidence.get("removed", ()), *evidence["causes"])
    names = {each["member_id"]: each["client_id"] for each in named if each.get("client_id")}
    pauses = [each.get("pause_ms") or 0 for each in evidence.get("members", ())]
    return ObservedRebalance(
        group=evidence["group"],
        generation=evidence["generation"],
        outcome=evidence["outcome"],
        started_at_ms=evidence["started_at_ms"],
        duration_ms=evidence["duration_ms"],
        causes=tuple(dict.fromkeys(_cause(each, names) for each in evidence["causes"])),
        members=len(evidence.get("members", ())),
        moved=evidence.get("moved_count", 0),
        kept=evidence.get("kept_count", 0),
        longest_pause_ms=round(max(pauses, default=0)),
    )


def _cause(evidence: dict[str, Any], names: dict[str, str]) -> str:
    member_id = evidence.get("member_id", "")
    return cause_in_words(evidence, names.get(member_id, member_id))


class RebalanceFollower:
    """Follows the evidence topic, which appears with the first rebalance."""

    def __init__(self, client: Client) -> None:
        self.rebalances: list[ObservedRebalance] = []
        self._client = client
        self._position: dict[Any, int] = {}

    def follow(self) -> list[ObservedRebalance]:
        """The rebalances recorded since the last call, in the order they began."""
        from ottla.client.errors import UnknownTopicError
        from ottla.client.model import TopicPartition

        try:
            numbers = self._client.partitions([EVIDENCE_TOPIC])[EVIDENCE_TOPIC]
        except UnknownTopicError:
            return []
        partitions = [TopicPartition(EVIDENCE_TOPIC, number) for number in numbers]
        unseen = [each for each in partitions if each not in self._position]
        if unseen:
            self._position |= self._client.offsets_at(unseen, EARLIEST)
        fresh: list[ObservedRebalance] = []
        for partition, end in self._client.offsets_at(partitions, LATEST).items():
            if end > self._position[partition]:
                for records in self._client.read_range(partition, self._position[partition], end):
                    fresh += [parse_rebalance(each.value) for each in records if each.value is not None]
                self._position[partition] = end
        fresh.sort(key=lambda each: each.started_at_ms)
        self.rebalances += fresh
        return fresh
