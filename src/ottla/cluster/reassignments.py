"""The controller's reassignments: partitions that move to other brokers while they are served. See KIP-455.

A reassignment stands in the topic's znode: the replicas are then the target ones and the former ones, with those that
are added and removed. Any controller, also one of Apache Kafka, may have begun it. It has two phases:

A. While a target replica is not in sync: the leader epoch is raised, and all replicas get LeaderAndIsr, so that those
   that are added copy. A broker that comes back gets it again.
B. When all target replicas are in sync: one of them leads, the others leave the ISR and are deleted (StopReplica). The
   topic's znode is written last, since only there the former replicas are found after a failover.

A move may be replaced by another one, or cancelled: then its target are the replicas from before it. Replicas that only
the replaced move had leave the ISR first, in the states of the partitions; then the topic's znode is written. A
controller elected in between still finds the replaced move, and continues it.

Source: Apache Kafka 3.9, `KafkaController.onPartitionReassignment`. Where it writes the state for the new leader, and
again for each replica that leaves the ISR, with an epoch each, here one write does all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.cluster.controller_events import (
    Answer,
    Effect,
    MetadataChange,
    PartitionKey,
    PutAssignment,
    ReadBack,
    ReassignmentRequested,
    ReassignmentResult,
    ReplicaMove,
    Report,
    SetTimer,
    WriteFailure,
    Written,
)
from ottla.cluster.controller_state import NO_MOVE, ControllerState
from ottla.cluster.image import NO_LEADER, PartitionImage
from ottla.cluster.pending_work import PendingWork, why
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode

#: Timer after which reassignments continue whose writes failed, or whose topics were changed by something else.
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


class _Begun(NamedTuple):
    """A move to begin: the partition's state with all replicas of it, and which are added and removed."""

    state: PartitionImage
    move: ReplicaMove


class _Request:
    """A request, and the topics whose moves are not written yet.

    One by the API takes precedence over one in the older znode, as in Kafka.
    """

    def __init__(
        self, event: ReassignmentRequested, refusals: dict[PartitionKey, TopicRefusal], topics: Iterable[str]
    ) -> None:
        self.is_by_api = event.needs_live
        self._token = event.token
        self._refusals = refusals
        self._waiting = set(topics)

    def note(self, name: str, indexes: Iterable[int], refusal: TopicRefusal | None) -> list[Effect]:
        """The answer, if this was the last topic."""
        if refusal is not None:
            self._refusals.update(dict.fromkeys(((name, index) for index in indexes), refusal))
        self._waiting.discard(name)
        return [] if self._waiting else [Answer(self._token, ReassignmentResult(self._refusals))]


class Reassignments:
    """Handles the events that begin and drive reassignments."""

    def __init__(self, state: ControllerState, pending: PendingWork, put: Put) -> None:
        self._state = state
        self._pending = pending
        self._put = put
        #: Moves whose target replicas lead and whose others are gone, while the topic's znode is not written yet.
        self._ending: dict[PartitionKey, ReplicaMove] = {}

    def requested(self, event: ReassignmentRequested) -> list[Effect]:
        """Begin reassignments that a tool asks for; one that is under way is replaced, or cancelled."""
        state = self._state
        for name, _ in event.wanted:
            if self._pending.must_wait(name, event):
                return []
        refusals: dict[PartitionKey, TopicRefusal] = {}
        begun: dict[str, dict[int, _Begun]] = {}
        for key, target in event.wanted.items():
            begins = self._begins(key, target, needs_live=event.needs_live)
            if isinstance(begins, TopicRefusal):
                refusals[key] = begins
            elif begins is not None:
                begun.setdefault(key[0], {})[key[1]] = begins
        if not begun:
            return [Answer(event.token, ReassignmentResult(refusals))]
        request = _Request(event, refusals, begun)
        for name in begun:
            self._pending.begin(name)  # they must not change before their turn
        topics = state.image.topics
        return self._pending.in_slices(
            (len(topics[name].partitions), self._begin(name, moves, request)) for name, moves in begun.items()
        )

    def _begins(
        self, key: PartitionKey, target: tuple[int, ...] | None, *, needs_live: bool
    ) -> _Begun | TopicRefusal | None:
        """The move to begin; the refusal; None if there is nothing to do. The order of the checks is Kafka's."""
        state = self._state
        known = state.image.partition(*key) if key[0] not in state.deleting else None
        move = state.moves.get(key, NO_MOVE)
        if target is None:
            if known is None or not any(move):
                error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                return TopicRefusal(error, error.message)
            target = tuple(broker for broker in known.replicas if broker not in move.adding)
        else:
            problem = self._problem(known, move, target, needs_live=needs_live)
            if problem is not None:
                return TopicRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        if known is None:
            return TopicRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if (any(move) and target == target_of(known, move)) or (key in self._ending and target == known.replicas):
            return None
        if not known.isr:
            return TopicRefusal(ErrorCode.LEADER_NOT_AVAILABLE, "The partition has had no leader yet.")
        replicas, after = reassigned(known, move, target)
        if not any(broker in replicas for broker in known.isr):
            # Kafka with ZooKeeper deletes the only replicas that have all records; with KRaft it refuses.
            unclean = (
                f"Unable to revert partition assignment for {key[0]}:{key[1]} because it would require an unclean "
            )
            return TopicRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{unclean}leader election.")
        return _Begun(self._without_dropped(key, known, replicas), after)

    def _problem(
        self, known: PartitionImage | None, move: ReplicaMove, target: tuple[int, ...], *, needs_live: bool
    ) -> str | None:
        """The problem with the brokers that a tool names. Source: `KafkaController.validateReplicas`."""
        if not target:
            return "Empty replica list specified in partition reassignment."
        if len(set(target)) < len(target):
            return f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        if any(broker < 0 for broker in target):
            return f"Invalid broker id in replica list: {list(target)}"
        there = known.replicas if known is not None else ()
        adding = [broker for broker in target if broker not in there or broker in move.adding]
        live = self._state.electable
        if needs_live and not live.issuperset(adding):
            return (
                f"Replica assignment has brokers that are not alive. Replica list: {adding}, live broker list: "
                f"{sorted(live)}"
            )
        return None

    def _begin(self, name: str, begun: Mapping[int, _Begun], request: _Request) -> list[Effect]:
        """Write the moves of a topic, which is marked as busy, then carry them out."""
        state = self._state
        before = state.image.topics[name]
        partitions = tuple(
            begun[index].state if index in begun else known for index, known in enumerate(before.partitions)
        )
        moves = {**state.moves_of(before), **{index: move for index, (_, move) in begun.items()}}
        # The topic's znode is written with its new state: that ends moves whose end could not be written before.
        done = {index: partitions[index].replicas for topic, index in self._ending if topic == name}
        changes: list[MetadataChange] = [
            state.put((name, index), before.partitions[index], after, state.version(name, index))
            for index, (after, _) in begun.items()
            if after.isr != before.partitions[index].isr
        ]
        replaced = tuple(begun) if request.is_by_api else ()
        changes.append(PutAssignment(before._replace(partitions=partitions), moves, done, replaced))

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                problem = Report(f"partitions of topic {name} are not moved: {why(outcome)}", True)
                refusal = outcome.refusal or TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, problem.message)
                if outcome.failure is WriteFailure.UNKNOWN:
                    # What is read back says whether they are written; then they continue.
                    for index, (after, move) in begun.items():
                        state.uncertain[name, index] = (after.replicas, move)
                return self._pending.end(name, [problem, ReadBack(name), *request.note(name, begun, refusal)])
            state.note_versions(changes)
            for index in done:
                self._ending.pop((name, index), None)
            for index, (_, move) in begun.items():
                state.note_move((name, index), move)
            # Replicas that only a replaced move had get StopReplica when the brokers hear of these states.
            states = {(name, index): after for index, (after, _) in begun.items()}
            return self._pending.end(name, [*self._carry_out(states, states), *request.note(name, (), None)])

        return self._pending.write(changes, written)

    def resume_after(self, outcome: Written | None) -> list[Effect]:
        """Continue all reassignments after an election, or later where that could not be written."""
        return self.resume() if outcome is None or outcome.failure is None else self._again()

    def _again(self) -> list[Effect]:
        return [SetTimer(REASSIGNMENTS, self._state.now_ms + RETRY_MS)]

    def resume(self, new_brokers: Collection[int] | None = None) -> list[Effect]:
        """Continue all reassignments, or those that move to one of these brokers."""
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
        """Continue with what could not be written."""
        return self._write_ends(list(self._ending)) + self.resume()

    def forget(self) -> None:
        """A new term begins."""
        self._ending.clear()

    def _carry_out(
        self, keys: Iterable[PartitionKey], states: Mapping[PartitionKey, PartitionImage] | None = None
    ) -> list[Effect]:
        """Phase A or B of these partitions. `states` are those of moves that have just begun."""
        state = self._state
        changed: dict[PartitionKey, PartitionImage] = {}
        ending: dict[PartitionKey, ReplicaMove] = {}
        for key in keys:
            known, move = state.image.partition(*key), state.moves.get(key, NO_MOVE)
            if known is None or not known.isr or key[0] in state.deleting:
                continue
            if states is not None:
                known = states[key]
            if not is_complete(known, move):
                changed[key] = known._replace(leader_epoch=known.leader_epoch + 1)
                continue
            after = self._completed(key, known, move)
            if after is not None:
                changed[key], ending[key] = after, move
        if not changed:
            return []
        for key in ending:
            # The brokers' metadata has no move any more.
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
        isr = tuple(broker for broker in known.isr if broker in replicas)
        if isr == known.isr:
            return known._replace(replicas=replicas)
        leader = known.leader
        if leader not in isr:
            _, electable = self._state.alive(*key)
            leader = next((broker for broker in replicas if broker in isr and broker in electable), NO_LEADER)
        return known._replace(replicas=replicas, isr=isr, leader=leader, leader_epoch=known.leader_epoch + 1)

    def _completed(self, key: PartitionKey, known: PartitionImage, move: ReplicaMove) -> PartitionImage | None:
        """The state after phase B; None if replicas must be removed, and no target replica can lead."""
        target = target_of(known, move)
        isr = tuple(broker for broker in known.isr if broker in target)
        alive, _ = self._state.alive(*key)
        candidates = (known.leader, *target)
        leader = next((broker for broker in candidates if broker in isr and broker in alive), NO_LEADER)
        if leader == NO_LEADER and any(move):
            return None
        return known._replace(leader=leader, leader_epoch=known.leader_epoch + 1, replicas=target, isr=isr)

    def _write_ends(self, keys: Iterable[PartitionKey]) -> list[Effect]:
        """Write the topics' znodes without the moves that are done."""
        by_topic: dict[str, list[int]] = {}
        for name, index in keys:
            by_topic.setdefault(name, []).append(index)
        return self._pending.in_slices(self._write_end(name, indexes) for name, indexes in by_topic.items())

    def _write_end(self, name: str, indexes: list[int]) -> tuple[int, list[Effect]]:
        """The number of partitions looked at, and the effects that end moves of a topic."""
        state = self._state
        topic = state.image.topics.get(name)
        if topic is None:
            for index in indexes:
                self._ending.pop((name, index), None)
            return 0, []
        if name in self._pending.busy:
            return 0, self._again()

        def written(outcome: Written) -> list[Effect]:
            if outcome.failure is not None:
                return self._pending.end(name, [ReadBack(name), *self._again()])
            for index in indexes:
                self._ending.pop((name, index), None)
            brokers = (
                f"{name}-{index} is on {', '.join(map(str, topic.partitions[index].replicas))} now" for index in indexes
            )
            return self._pending.end(name, [Report(line) for line in brokers])

        self._pending.begin(name)
        done = {index: topic.partitions[index].replicas for index in indexes}
        return len(topic.partitions), self._pending.write([PutAssignment(topic, state.moves_of(topic), done)], written)
