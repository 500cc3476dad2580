"""The controller's reassignments: partitions that move to other brokers while they are served. See KIP-455.

A reassignment stands in the topic's znode: the replicas are then the target ones and the former ones, with those that
are added and removed. Any controller, also one of Apache Kafka, may have begun it. It goes on in two phases:

A. While a target replica is not in sync: the leader epoch is raised, and all replicas get LeaderAndIsr, so that those
   that are added copy. A broker that comes back gets it again.
B. When all target replicas are in sync: one of them leads, the others leave the ISR and are deleted (StopReplica). The
   topic's znode is written last, since only there the former replicas are found after a failover.

Source: Apache Kafka 3.9, `KafkaController.onPartitionReassignment`. Where it writes the state for the new leader, and
again for each replica that leaves the ISR, with an epoch each, here one write does all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from ottla.cluster.controller_events import (
    Answer,
    Effect,
    PartitionKey,
    PutAssignment,
    ReadBack,
    ReassignmentAsked,
    ReplicaMove,
    Report,
    SetTimer,
    Unapplied,
    Written,
)
from ottla.cluster.controller_state import NO_MOVE, ControllerState
from ottla.cluster.image import NO_LEADER, PartitionImage

#: Timer after which reassignments go on whose writes failed, or whose topics were changed by something else.
REASSIGNMENTS = "reassignments"
RETRY_MS = 1_000

Put: TypeAlias = Callable[
    [Mapping[PartitionKey, PartitionImage], Callable[[Written], list[Effect]]],
    list[Effect],
]
"""Writes states of partitions, then notifies the brokers; what is given follows (`PartitionChanges.put`)."""


def reassigned(
    state: PartitionImage, move: ReplicaMove, target: tuple[int, ...]
) -> tuple[tuple[int, ...], ReplicaMove]:
    """The replicas and the move to `target`, also where another move is under way. Source: `reassignTo`."""
    origin = tuple(broker for broker in state.replicas if broker not in move.adding)
    replicas = (*target, *(broker for broker in origin if broker not in target))
    adding = tuple(broker for broker in replicas if broker not in origin)
    return replicas, ReplicaMove(adding, tuple(broker for broker in replicas if broker not in target))


def target_of(state: PartitionImage, move: ReplicaMove) -> tuple[int, ...]:
    """The replicas that the partition has when the move is done."""
    return tuple(broker for broker in state.replicas if broker not in move.removing)


def is_complete(state: PartitionImage, move: ReplicaMove) -> bool:
    """Whether all target replicas are in sync, or only their order changes."""
    return not any(move) or set(target_of(state, move)).issubset(state.isr)


class Reassignments:
    """Handles the events that begin and drive reassignments."""

    def __init__(self, state: ControllerState, put: Put) -> None:
        self._state = state
        self._put = put
        #: Moves whose target replicas lead and whose others are gone, while the topic's znode is not written yet.
        self._ending: dict[PartitionKey, ReplicaMove] = {}

    def asked(self, event: ReassignmentAsked) -> list[Effect]:
        """Begin reassignments that a tool asks for; one that is under way is replaced."""
        state = self._state
        for name, _ in event.wanted:
            if state.must_wait(name, event):
                return []
        reasons: dict[PartitionKey, str] = {}
        begun: dict[PartitionKey, tuple[PartitionImage, ReplicaMove]] = {}
        for key, target in event.wanted.items():
            begins = self._begins(key, target)
            if isinstance(begins, str):
                reasons[key] = begins
            elif begins is not None:
                begun[key] = begins
        effects: list[Effect] = [Answer(event.token, Unapplied(reasons))]
        for name in dict.fromkeys(name for name, _ in begun):
            effects.extend(self._begin(name, {index: begun[topic, index] for topic, index in begun if topic == name}))
        return effects

    def _begins(self, key: PartitionKey, target: tuple[int, ...]) -> tuple[PartitionImage, ReplicaMove] | str | None:
        """The state and the move to begin with; why it cannot be; None if there is nothing to be done."""
        state = self._state
        topic = state.image.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions) or key[0] in state.deleting:
            return "it is not there"
        if not target or len(set(target)) < len(target):
            return f"its replicas cannot be {', '.join(map(str, target)) or 'none'}"
        known, move = topic.partitions[key[1]], state.moves.get(key, NO_MOVE)
        if key in self._ending or (any(move) and target == target_of(known, move)):
            return None
        if not known.isr:
            return "it has had no leader yet"
        replicas, after = reassigned(known, move, target)
        return known._replace(replicas=replicas), after

    def _begin(self, name: str, begun: Mapping[int, tuple[PartitionImage, ReplicaMove]]) -> list[Effect]:
        """Write the moves of a topic, then carry them out."""
        state = self._state
        before = state.image.topics[name]
        partitions = tuple(
            begun[index][0] if index in begun else known for index, known in enumerate(before.partitions)
        )
        topic = before._replace(partitions=partitions)
        moves = {**state.moves_of(name), **{index: move for index, (_, move) in begun.items()}}
        keys = [(name, index) for index in begun]

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return state.end(name, [Report(f"partitions of topic {name} are not moved: {outcome.refusal}", True)])
            state.moves.update({(name, index): move for index, (_, move) in begun.items() if any(move)})
            for key in keys:
                if not any(begun[key[1]][1]):
                    state.moves.pop(key, None)
            # Replicas that only a replaced move had are dropped with it.
            return state.end(name, self._carry_out(keys, {key: begun[key[1]][0].replicas for key in keys}))

        state.begin(name)
        return state.write([PutAssignment(topic, moves)], written)

    def resume_after(self, outcome: Written | None) -> list[Effect]:
        """Go on with all reassignments after an election, or later where that could not be written."""
        return self.resume() if outcome is None or outcome.failure is None else self._again()

    def _again(self) -> list[Effect]:
        return [SetTimer(REASSIGNMENTS, self._state.now_ms + RETRY_MS)]

    def resume(self, new_brokers: Collection[int] | None = None) -> list[Effect]:
        """Go on with all reassignments, or with those that move to one of these brokers."""
        keys = [
            key
            for key, move in self._state.moves.items()
            if new_brokers is None or self._moves_to(key, move, new_brokers)
        ]
        return self._carry_out(keys)

    def _moves_to(self, key: PartitionKey, move: ReplicaMove, brokers: Collection[int]) -> bool:
        known = self._state.image.partition(*key)
        return known is not None and any(broker in brokers for broker in target_of(known, move))

    def isrs_changed(self, keys: Iterable[PartitionKey]) -> list[Effect]:
        """Complete those of these reassignments whose target replicas are in sync now."""
        moves = self._state.moves
        if not moves:
            return []
        ready = []
        for key in keys:
            known = self._state.image.partition(*key) if key in moves else None
            if known is not None and is_complete(known, moves[key]):
                ready.append(key)
        return self._carry_out(ready)

    def timer_fired(self) -> list[Effect]:
        """Go on with what could not be written."""
        return self._write_ends(list(self._ending)) + self.resume()

    def forget(self) -> None:
        """A new term begins."""
        self._ending.clear()

    def _carry_out(
        self, keys: Iterable[PartitionKey], replicas: Mapping[PartitionKey, tuple[int, ...]] | None = None
    ) -> list[Effect]:
        """Phase A or B of these partitions. `replicas` are those of a move that has just begun."""
        state = self._state
        changed: dict[PartitionKey, PartitionImage] = {}
        ending: dict[PartitionKey, ReplicaMove] = {}
        for key in keys:
            known, move = state.image.partition(*key), state.moves.get(key, NO_MOVE)
            if known is None or not known.isr or key[0] in state.deleting:
                continue
            if replicas is not None:
                known = self._without_dropped(key, known, replicas[key])
            if not is_complete(known, move):
                changed[key] = known._replace(leader_epoch=known.leader_epoch + 1)
                continue
            after = self._completed(key, known, move)
            if after is not None:
                changed[key], ending[key] = after, move
        if not changed:
            return []
        for key in ending:
            # What the brokers are told has no move any more.
            self._ending[key] = state.moves.pop(key, NO_MOVE)

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                for key, move in ending.items():
                    del self._ending[key]
                    state.moves[key] = move
                return self._again()
            return self._write_ends(list(ending))

        return self._put(changed, written)

    def _without_dropped(self, key: PartitionKey, known: PartitionImage, replicas: tuple[int, ...]) -> PartitionImage:
        """The state with these replicas: those of a replaced move that are not among them leave the ISR, too."""
        isr = tuple(broker for broker in known.isr if broker in replicas) or known.isr[-1:]
        leader = known.leader
        if leader not in isr:
            alive, _ = self._state.alive(*key)
            leader = next((broker for broker in replicas if broker in isr and broker in alive), NO_LEADER)
        return known._replace(replicas=replicas, isr=isr, leader=leader)

    def _completed(self, key: PartitionKey, known: PartitionImage, move: ReplicaMove) -> PartitionImage | None:
        """The state after phase B; None if no target replica can lead."""
        target = target_of(known, move)
        isr = tuple(broker for broker in known.isr if broker in target)
        alive, _ = self._state.alive(*key)
        candidates = (known.leader, *target)
        leader = next((broker for broker in candidates if broker in isr and broker in alive), NO_LEADER)
        if leader == NO_LEADER:
            return None
        return known._replace(leader=leader, leader_epoch=known.leader_epoch + 1, replicas=target, isr=isr)

    def _write_ends(self, keys: Iterable[PartitionKey]) -> list[Effect]:
        """Write the topics' znodes without the moves that are done."""
        by_topic: dict[str, list[int]] = {}
        for name, index in keys:
            by_topic.setdefault(name, []).append(index)
        return [effect for name, indexes in by_topic.items() for effect in self._write_end(name, indexes)]

    def _write_end(self, name: str, indexes: list[int]) -> list[Effect]:
        state = self._state
        topic = state.image.topics.get(name)
        if topic is None:
            for index in indexes:
                self._ending.pop((name, index), None)
            return []
        if name in state.busy:
            return self._again()

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return state.end(name, [ReadBack(name), *self._again()])
            for index in indexes:
                self._ending.pop((name, index), None)
            brokers = (
                f"{name}-{index} is on {', '.join(map(str, topic.partitions[index].replicas))} now" for index in indexes
            )
            return state.end(name, [Report(line) for line in brokers])

        state.begin(name)
        done = {index: topic.partitions[index].replicas for index in indexes}
        return state.write([PutAssignment(topic, state.moves_of(name), done)], written)
