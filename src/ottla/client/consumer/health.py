"""Whether a consumer makes progress and, if not, why: an answer for dashboards and probes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.consumer.subscription_state import FetchState, PartitionState
from ottla.client.model import TopicPartition

MAX_NAMED = 5
"""Partitions that one reason names."""

WHY_NOT_FETCHING = {
    FetchState.INITIALIZING: "committed offsets are being asked for",
    FetchState.AWAIT_RESET: "the offset to begin at is being looked up",
    FetchState.AWAIT_VALIDATION: "the position is being validated with a new leader",
}


@dataclass(slots=True, frozen=True)
class ConsumerHealth:
    """`is_progressing` says whether records that there are reach the user; `reasons` why not, or what is in the way of
    some. `lag` is how many records are left of the partitions for which that is known, None where of none.
    """

    is_progressing: bool
    reasons: tuple[str, ...]
    state: str
    assigned_partitions: int
    lag: int | None
    last_poll_seconds_ago: float | None


def named(partitions: list[TopicPartition]) -> str:
    """The partitions for a message, not too many."""
    told = ", ".join(map(str, partitions[:MAX_NAMED]))
    return told if len(partitions) <= MAX_NAMED else f"{told} and {len(partitions) - MAX_NAMED} more"


def partition_reasons(partitions: Mapping[TopicPartition, PartitionState]) -> tuple[list[str], bool]:
    """Why some partitions are not read, and whether any is."""
    reasons = []
    for fetch_state, why in WHY_NOT_FETCHING.items():
        if waiting := [each for each, state in partitions.items() if state.fetch_state is fetch_state]:
            reasons.append(f"{why} for {named(waiting)}")
    if paused := [each for each, state in partitions.items() if state.paused]:
        reasons.append(f"paused: {named(paused)}; resume them to read on")
    return reasons, any(state.is_fetchable for state in partitions.values())
