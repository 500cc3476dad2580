"""Topics as read from the znodes: what is new to the controller, and what it has to write for them.

The controller assigns an id to a topic without one, and leaders to partitions without a live one: a topic created by
another broker or a tool has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.controller_events import (
    Effect,
    FoundPartitionState,
    FoundTopic,
    MetadataChange,
    PutAssignment,
    ReplicaMove,
)
from ottla.cluster.elections import first_state
from ottla.cluster.image import NO_LEADER, PartitionImage, TopicImage
from ottla.cluster.topics import MOST_PARTITIONS, topic_name_problem

if TYPE_CHECKING:
    from ottla.cluster.controller_state import ControllerState

#: Loading a partition costs some twenty microseconds, as much as looking at this many.
LOOKS = 4
#: Partitions that are loaded in one step.
STEP_PARTITIONS = 100


class LoadedTopics(NamedTuple):
    """The topics as they are once `changes` are written, why others are not served, and what was lost."""

    topics: list[TopicImage]
    changes: list[MetadataChange]
    problems: list[str]


def load_topics(
    found: Iterable[FoundTopic], state: ControllerState, loaded: LoadedTopics, *, is_election: bool = False
) -> Iterator[tuple[int, list[Effect]]]:
    """Add what is new in these topics to `loaded`, in steps without effects (`PendingWork.in_slices`).

    Their replicas are those of the znodes at an election only, as in Kafka: edits are ignored otherwise, but for what
    this controller may have written itself. Reassignments under way are loaded then, too.
    """
    for topic in found:
        problem = topic_name_problem(topic.name)
        if problem is None and len(topic.partitions) > MOST_PARTITIONS:
            problem = "it has too many partitions"
        if problem is not None:
            loaded.problems.append(f"topic {topic.name!r} in the metadata is not served: {problem}")
            continue
        known = state.image.topics.get(topic.name)
        # Tools of 0.8.2 that add partitions drop the topic's id.
        if known is None or topic.topic_id in (None, known.topic_id):
            for partitions in _TopicLoader(topic, known, state, loaded, is_election=is_election).steps():
                yield LOOKS * partitions, []


class _TopicLoader:
    """Loads a topic, partition by partition. `known` is what the controller knew of it."""

    def __init__(
        self,
        found: FoundTopic,
        known: TopicImage | None,
        state: ControllerState,
        loaded: LoadedTopics,
        *,
        is_election: bool,
    ) -> None:
        self._found = found
        self._known = known
        self._state = state
        self._loaded = loaded
        self._is_election = is_election
        self._is_alone = not state.others
        self._configs = known.configs if known is not None else found.configs
        self._states = list(known.partitions) if known is not None else []
        self._writes: list[MetadataChange] = []

    def steps(self) -> Iterator[int]:
        """Load it, in steps; each gives the number of partitions it has looked at."""
        partitions = self._found.partitions
        for start in range(0, len(partitions), STEP_PARTITIONS):
            step = partitions[start : start + STEP_PARTITIONS]
            for index, partition in enumerate(step, start):
                self._load_partition(index, _with_left_over(partition) if self._is_election else partition)
            yield len(step)
        found, known, loaded = self._found, self._known, self._loaded
        topic_id = known.topic_id if known is not None else found.topic_id or found.new_id
        topic = TopicImage(found.name, topic_id, tuple(self._states), self._configs, found.is_internal)
        if found.topic_id is None:
            loaded.changes.append(PutAssignment(topic, self._state.moves_of(topic)))
        loaded.changes.extend(self._writes)
        if known is None or topic.partitions != known.partitions:
            loaded.topics.append(topic)

    def _load_partition(self, index: int, partition: FoundPartitionState) -> None:
        """Note what its znodes say of a partition, and the state that it is to have."""
        state, states = self._state, self._states
        key = (self._found.name, index)
        is_edited = index < len(states) and states[index].replicas != partition.replicas
        is_written = state.uncertain.pop(key, None) == (partition.replicas, partition.move)
        if is_edited and not self._is_election and not is_written:
            return
        if is_written:
            state.note_move(key, partition.move)
        if any(partition.move) and (self._is_election or index >= len(states)):
            state.moves[key] = partition.move
        # With no other broker alive nothing is written: at the next start this one leads as before.
        offline = state.offline_replicas(*key) if self._is_alone else ()
        if offline and index < len(states):
            return
        if partition.version != 0:
            state.versions[key] = partition.version
        else:
            state.versions.pop(key, None)
        if partition.is_recovering:
            state.recovering.add(key)
        was = _as_found(partition)
        now = self._settled(index, partition, was, offline)
        if now is not was and now.isr and not offline:
            self._writes.append(state.put(key, was, now, partition.version))
            message = state.unclean_election(key, was, now) if was is not None else None
            if message is not None:
                self._loaded.problems.append(message)
        if index == len(states):
            states.append(now)
        elif now != states[index]:
            states[index] = now

    def _settled(
        self, index: int, partition: FoundPartitionState, was: PartitionImage | None, offline: tuple[int, ...]
    ) -> PartitionImage:
        """The state that a partition is to have: with a live leader, as far as can be."""
        state = self._state
        if was is None:
            return first_state(partition.replicas, state.electable)
        if offline:
            return was._replace(leader=NO_LEADER, offline=offline)
        now = state.settled(self._found.name, self._configs, index, was, _registered_since(partition, state))
        if now is was and _leader_is_back(partition, state):
            return was._replace(leader_epoch=was.leader_epoch + 1)
        return now


def _with_left_over(partition: FoundPartitionState) -> FoundPartitionState:
    """The partition with those members of the ISR that are not replicas any more, as replicas to be removed.

    A controller has written the end of a reassignment, as Apache Kafka does first where one is replaced or cancelled,
    and died before they left the ISR. One of them may lead, or be the only one that has all records.
    """
    left_over = tuple(broker for broker in partition.isr if broker not in partition.replicas)
    if not left_over:
        return partition
    adding, removing = partition.move
    return partition._replace(
        replicas=(*partition.replicas, *left_over), move=ReplicaMove(adding, (*removing, *left_over))
    )


def _registered_since(partition: FoundPartitionState, state: ControllerState) -> frozenset[int]:
    """The live members of the ISR that registered after the state was written.

    They were gone and are back, and no controller was there to notice it: what they acknowledged before an unclean
    stop they may lack now, so that they must not lead while another member of the ISR lives. A broker that came into
    the ISR in its present registration is not one of them: that was written since.

    Where all of them have registered since, as after an outage of ZooKeeper in which all sessions end, those count that
    have done so more than once, as far as this broker saw.
    """
    written = partition.written_zxid
    if written < 0:
        return frozenset()
    members = [broker_id for broker_id in partition.isr if broker_id in state.live]
    back = frozenset(broker_id for broker_id in members if state.live[broker_id].epoch > written)
    if len(back) == len(members):
        back = frozenset(broker_id for broker_id in members if state.live[broker_id].former_epoch > written)
    return back if len(back) < len(members) else frozenset()


def _leader_is_back(partition: FoundPartitionState, state: ControllerState) -> bool:
    """Whether the leader of a partition with several replicas registered again after the state was written.

    It may have lost the end of its log, and so may the others (all lost their power). It leads on in a new epoch: with
    the old one, its new records could have the same epoch and offset as other records of its followers, unnoticed.
    """
    leader = state.live.get(partition.leader)
    return leader is not None and len(partition.replicas) > 1 and leader.epoch > partition.written_zxid >= 0


def _as_found(partition: FoundPartitionState) -> PartitionImage | None:
    if partition.version < 0:
        return None
    return PartitionImage(partition.leader, partition.leader_epoch, partition.replicas, partition.isr)
