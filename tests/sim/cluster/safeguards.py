"""Safeguards of the cluster that can be left out, one at a time: the checks of the simulation must notice.

Each has a scene, or kinds of faults, that provoke what it prevents. The product knows nothing of it: functions are
replaced for a while (`left_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from ottla.broker.control import metadata_writes
from ottla.broker.control.membership import Term
from ottla.broker.fetches import reading
from ottla.broker.handlers import produce
from ottla.broker.replicas.fetching import fetcher as fetchers
from ottla.broker.replicas.fetching.machine import FetcherMachine
from ottla.broker.replicas.partition import AwaitedOffsets, Partition
from ottla.cluster import control_requests, controller_state, elections, partition_changes, proposed_isrs, topic_loading
from ottla.cluster.control_requests import ControlHeader, ControlRequests, HostedReplica, RoleDecision
from ottla.cluster.controller_events import PutState, SetChannels
from ottla.cluster.image import PartitionImage
from ottla.cluster.isr import InSyncReplicas, IsrProposal
from ottla.cluster.reassignments import Reassignments
from ottla.storage import following, truncation
from ottla.storage.log import PartitionLog
from ottla.storage.producer_state import ProducerState
from ottla.wire.errors import ErrorCode
from ottla.zk.tree import Check, Operation, Set
from sim.cluster.scene import Scene
from sim.cluster.scenes_of_elections import (
    BackBeforeTheElection,
    DeposedControllerWrites,
    DeposedLeaderProposes,
    LeaderIsSoonBack,
    LeaderLosesPower,
    OutOfSyncAlone,
    PreferredIsOutOfSync,
    ProposedBeforeItsRestart,
    ReturnsSlowly,
    StopsBesideOutOfSync,
    UnheardShrink,
    WrongDisk,
)
from sim.cluster.scenes_of_logs import (
    EndOfTheNextLeader,
    LostOnTheFormerLeader,
    NextLeaderDies,
    OthersWriteMeanwhile,
    RefusedBetween,
    SlowReturn,
)
from sim.cluster.scenes_of_moves import MoverDies
from sim.cluster.scenes_of_requests import ElectedBeforeItsRestart, LateDeletion, LateRole
from support.simulated_cluster.seed_run import SeedRun

Plant = Callable[[pytest.MonkeyPatch], None]

DEATHS = ("kill", "kill of the controller", "kill of two", "kill of all")
CUTS = ("isolation", "separation", "partition", "one-way partition", "cut at the controller", "cut between two")


class Safeguard(NamedTuple):
    """What is left out, and what provokes what it prevents: a scene, or kinds of faults."""

    plant: Plant
    provocation: type[Scene] | tuple[str, ...]

    def run(self, seed: int) -> SeedRun:
        """A seed with the provocation."""
        provocation = self.provocation
        return SeedRun(seed, provocation) if isinstance(provocation, tuple) else provocation(seed)


def _elects_anybody(patch: pytest.MonkeyPatch) -> None:
    """Any live replica may lead, whether it is in sync or not."""
    settle = elections.settle

    def unclean(state: PartitionImage, alive: Any, electable: Any, *, unclean: bool = False) -> PartitionImage:
        return settle(state, alive, electable, unclean=True)

    patch.setattr(controller_state, "settle", unclean)


def _prefers_anybody(patch: pytest.MonkeyPatch) -> None:
    """The preferred replica leads when an operator asks for it, whether it is in sync or not."""

    def prefer(state: PartitionImage, live: Any) -> PartitionImage | str:
        return elections.prefer(state._replace(isr=(*state.isr, state.replicas[0])), live)

    patch.setattr(partition_changes, "prefer", prefer)


def _hands_over_to_anybody(patch: pytest.MonkeyPatch) -> None:
    """The leader that stops is followed by the next replica, whether it is in sync or not."""

    def hand_over(state: PartitionImage, leaving: Any, electable: Any) -> PartitionImage:
        return elections.hand_over(state._replace(isr=tuple(electable)), leaving, electable)

    patch.setattr(partition_changes, "hand_over", hand_over)


def _proposes_without_epochs(patch: pytest.MonkeyPatch) -> None:
    """A leader does not say under which registrations the followers have fetched (KIP-903)."""
    propose = InSyncReplicas._propose

    def without(self: InSyncReplicas, isr: tuple[int, ...]) -> IsrProposal:
        propose(self, isr)
        assert self.pending is not None
        self.pending = self.pending._replace(broker_epochs={})
        return self.pending

    patch.setattr(InSyncReplicas, "_propose", without)


def _answers_before_replicas(patch: pytest.MonkeyPatch) -> None:
    """A produce request with acks=all is answered when the leader has the records."""
    patch.setattr(produce, "_uncommitted", lambda *_: ())


def _shrinks_at_once(patch: pytest.MonkeyPatch) -> None:
    """A leader counts without those whom it wants to remove from the ISR, before the controller has agreed."""
    propose = InSyncReplicas._propose

    def count_at_once(self: InSyncReplicas, isr: tuple[int, ...]) -> IsrProposal:
        proposal = propose(self, isr)
        self.maximal = frozenset(isr)
        return proposal

    patch.setattr(InSyncReplicas, "_propose", count_at_once)


def _ignores_the_isr(patch: pytest.MonkeyPatch) -> None:
    """What the leader has counts as committed."""
    patch.setattr(InSyncReplicas, "least_end", lambda _self, own_end, *_: own_end)


def _joins_behind(patch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR wherever it is."""

    def expansion(self: InSyncReplicas, replica_id: int, _high_watermark: int, is_alive: Any) -> IsrProposal | None:
        if self.pending is not None or replica_id in self.committed:
            return None
        return self._propose((*self.ordered, replica_id)) if is_alive(replica_id) else None

    patch.setattr(InSyncReplicas, "expansion", expansion)


def _never_shrinks(patch: pytest.MonkeyPatch) -> None:
    """Dead brokers stay in the ISR, and lead."""
    patch.setattr(controller_state, "settle", lambda state, *_, **__: state)


def _has_no_divergence(patch: pytest.MonkeyPatch) -> None:
    """A leader does not tell followers that their logs have diverged."""
    patch.setattr(reading, "diverged", lambda *_: None)


def _truncates_nothing(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader does not have."""
    patch.setattr(fetchers, "truncation_offset", lambda _asked, _epoch, _own_end, log_end: log_end)


def _truncates_too_much(patch: pytest.MonkeyPatch) -> None:
    """A follower cuts its log to the high watermark it knows when it gets a role, as before leader epochs (KIP-101)."""
    follow = FetcherMachine.follow

    def cut_first(self: FetcherMachine, key: Any, topic_id: Any, epoch: int, log: Any, high_watermark: int) -> None:
        follow(self, key, topic_id, epoch, log._replace(last_epoch=-1), high_watermark)

    patch.setattr(FetcherMachine, "follow", cut_first)


def _keeps_producer_state(patch: pytest.MonkeyPatch) -> None:
    """What was truncated is still known as appended: its repetition is taken for a duplicate."""
    patch.setattr(truncation, "_rebuild_producers", lambda *_: None)


def _takes_duplicates(patch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again is appended again."""
    patch.setattr(ProducerState, "find_duplicate", lambda *_: None)


def _takes_gaps(patch: pytest.MonkeyPatch) -> None:
    """A batch of a producer is appended though one before it is missing."""
    check = ProducerState.check
    patch.setattr(
        ProducerState, "check", lambda self, header, offset, name, _client: check(self, header, offset, name, False)
    )


def _shows_uncommitted(patch: pytest.MonkeyPatch) -> None:
    """Consumers read beyond the high watermark."""
    patch.setattr(Partition, "visible_end", lambda self, _level: self.log.log_end_offset)


def _tells_any_end(patch: pytest.MonkeyPatch) -> None:
    """A new leader gives end offsets before its high watermark has reached its epoch's start (KIP-207)."""
    patch.setattr(Partition, "knows_its_end", property(lambda self: self.leader is not None))


def _waits_on(patch: pytest.MonkeyPatch) -> None:
    """Requests that wait go on when the role or the leader epoch changes."""
    patch.setattr(AwaitedOffsets, "fail", lambda *_: None)


def _keeps_no_epochs(patch: pytest.MonkeyPatch) -> None:
    """A leader does not record where its leader epoch begins, nor a follower what it gets."""
    patch.setattr(PartitionLog, "assign_leader_epoch", lambda *_: None)
    patch.setattr(following, "_adopt_epochs", lambda *_: None)


def _obeys_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """A broker takes roles of older leader epochs."""
    role = ControlRequests.role

    def obey(self: ControlRequests, entry: Any, here: HostedReplica, *, leader_is_alive: bool) -> RoleDecision:
        return role(self, entry, here._replace(leader_epoch=-1), leader_is_alive=leader_is_alive)

    patch.setattr(ControlRequests, "role", obey)


def _obeys_old_controllers(patch: pytest.MonkeyPatch) -> None:
    """A broker obeys a controller though a newer one is known."""
    admit = ControlRequests.admit

    def obey(self: ControlRequests, header: ControlHeader, broker_epoch: int) -> ErrorCode:
        self.controller_epoch = header.controller_epoch
        return admit(self, header, broker_epoch)

    patch.setattr(ControlRequests, "admit", obey)


def _obeys_as_before_its_restart(patch: pytest.MonkeyPatch) -> None:
    """A broker obeys requests that are meant for an earlier registration (KIP-380)."""
    admit = ControlRequests.admit
    patch.setattr(ControlRequests, "admit", lambda self, header, _broker_epoch: admit(self, header, -1))


def _writes_unconditionally(patch: pytest.MonkeyPatch) -> None:
    """The controller changes states whatever their versions are."""
    set_state = metadata_writes._set_state

    def put(change: PutState, epoch: int) -> Operation:
        operation = set_state(change, epoch)
        assert isinstance(operation, Set)
        return Set(operation.path, operation.data)

    patch.setattr(metadata_writes, "_set_state", put)


def _writes_unfenced(patch: pytest.MonkeyPatch) -> None:
    """A deposed controller goes on writing, whatever the versions are."""
    patch.setattr(Term, "fence", lambda _self: Check("/controller_epoch"))
    _writes_unconditionally(patch)


def _accepts_any_isr(patch: pytest.MonkeyPatch) -> None:
    """The controller accepts ISRs of deposed leaders, of older states, with dead members."""
    patch.setattr(proposed_isrs, "isr_refusal", lambda *_, **__: ErrorCode.NONE)


def _trusts_restarts(patch: pytest.MonkeyPatch) -> None:
    """A broker that registered anew stays in the ISR, and leads."""
    changed = partition_changes.PartitionChanges.brokers_changed

    def go_on(self: Any, event: Any) -> Any:
        state = self._state
        known = state.live
        state.live = {number: event.brokers.get(number, broker) for number, broker in known.items()}
        effects = changed(self, event)
        restarted = [
            number
            for number, broker in event.brokers.items()
            if number in known and number != state.broker_id and known[number].epoch != broker.epoch
        ]
        return [SetChannels(event.brokers), *effects, *self._notifier.inform(restarted)] if restarted else effects

    patch.setattr(partition_changes.PartitionChanges, "brokers_changed", go_on)


def _trusts_unseen_restarts(patch: pytest.MonkeyPatch) -> None:
    """A broker that registered anew while there was no controller stays in the ISR, and leads."""
    patch.setattr(topic_loading, "_registered_since", lambda *_: frozenset())


def _leads_without_log(patch: pytest.MonkeyPatch) -> None:
    """A broker leads with an empty log a partition that is not new."""
    patch.setattr(control_requests, "lacks_log", lambda *_, **__: False)


def _moves_back(patch: pytest.MonkeyPatch) -> None:
    """The high watermark of a leader follows the slowest live replica, also backwards."""

    def advance(self: Partition) -> None:
        if self.leader is None:
            return
        followers = self.leader.replicas.followers
        ends = [each.end_offset for number, each in followers.items() if self.replication.is_alive(number)]
        self.log.high_watermark = max(0, min([self.own_end, *ends]))
        self.committed.reached(self.log.high_watermark)
        self.wake(1)
        self.changed()

    patch.setattr(Partition, "advance", advance)


def _resumes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A new controller knows the moves that it finds, and does not go on with them."""
    patch.setattr(Reassignments, "resume_after", lambda *_: [])


SAFEGUARDS: Mapping[str, Safeguard] = {
    # Who leads, and who is in sync.
    "only members of the ISR are elected": Safeguard(_elects_anybody, OutOfSyncAlone),
    "only members of the ISR are preferred": Safeguard(_prefers_anybody, PreferredIsOutOfSync),
    "leaders hand over to members of the ISR": Safeguard(_hands_over_to_anybody, StopsBesideOutOfSync),
    "the dead leave the ISR": Safeguard(_never_shrinks, LeaderLosesPower),
    "restarted brokers leave the ISR": Safeguard(_trusts_restarts, LeaderIsSoonBack),
    "also when no controller saw it": Safeguard(_trusts_unseen_restarts, BackBeforeTheElection),
    "proposed ISRs name registrations": Safeguard(_proposes_without_epochs, ProposedBeforeItsRestart),
    "proposed ISRs are checked": Safeguard(_accepts_any_isr, DeposedLeaderProposes),
    "who joins the ISR has everything": Safeguard(_joins_behind, ReturnsSlowly),
    "no broker leads without a log": Safeguard(_leads_without_log, WrongDisk),
    # Fences of controllers.
    "a deposed controller cannot write": Safeguard(_writes_unfenced, DeposedControllerWrites),
    "older controllers are refused": Safeguard(_obeys_old_controllers, LateDeletion),
    "requests from before a restart are refused": Safeguard(_obeys_as_before_its_restart, ElectedBeforeItsRestart),
    "roles of older leader epochs are refused": Safeguard(_obeys_old_epochs, LateRole),
    # What is committed, and when it is answered.
    "acks=all waits for the replicas": Safeguard(_answers_before_replicas, ("separation", "partition", "kill of two")),
    "a shrink counts when the controller has agreed": Safeguard(_shrinks_at_once, UnheardShrink),
    "the high watermark is the least end of the ISR": Safeguard(_ignores_the_isr, ("separation", "partition")),
    "the high watermark does not go back": Safeguard(_moves_back, SlowReturn),
    "end offsets of a new leader wait": Safeguard(_tells_any_end, EndOfTheNextLeader),
    "consumers see what is committed": Safeguard(_shows_uncommitted, CUTS),
    "waiting requests end with the role": Safeguard(_waits_on, OthersWriteMeanwhile),
    # What is in the logs.
    "leaders tell followers where they diverge": Safeguard(_has_no_divergence, LostOnTheFormerLeader),
    "followers cut what diverges": Safeguard(_truncates_nothing, OthersWriteMeanwhile),
    "followers keep what may be committed": Safeguard(_truncates_too_much, NextLeaderDies),
    "leader epochs are recorded": Safeguard(_keeps_no_epochs, NextLeaderDies),
    "truncation covers the producers' state": Safeguard(_keeps_producer_state, LostOnTheFormerLeader),
    "duplicates are found": Safeguard(_takes_duplicates, ("dropped connections", *DEATHS, "one-way partition")),
    "gaps of sequence numbers are refused": Safeguard(_takes_gaps, RefusedBetween),
    # Moves.
    "a new controller continues moves": Safeguard(_resumes_nothing, MoverDies),
}


@contextmanager
def left_out(name: str) -> Iterator[Safeguard]:
    """Leave a safeguard out for a while."""
    safeguard = SAFEGUARDS[name]
    with pytest.MonkeyPatch.context() as patch:
        safeguard.plant(patch)
        yield safeguard
