"""A move whose write may have succeeded: the answer of ZooKeeper was lost. What the znodes say then is taken up."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.cluster import controller_events as events
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.config.broker import BrokerConfig, parse_broker_config

pytestmark = pytest.mark.spec("R5")

BROKERS = {number: events.LiveBroker(BrokerImage(number, ()), 1) for number in (1, 2, 3, 4)}
KEY = ("t", 0)


class Play:
    """A controller, and the znodes of one partition as it writes them."""

    def __init__(self) -> None:
        config = parse_broker_config({"broker.id": "1"})
        assert isinstance(config, BrokerConfig)
        self.controller = Controller(1, config)
        self.found = events.FoundPartitionState((1, 2), 1, 0, (1, 2), 0)
        #: The write whose outcome is not known, counted from now; and whether it is carried out.
        self.lost: int | None = None
        self.is_carried_out = True
        self.answers: list[object] = []
        self.timers: list[str] = []
        self.handle(events.Elected(1, BROKERS, (self.topic(),), ClusterImage()))

    def topic(self) -> events.FoundTopic:
        return events.FoundTopic("t", UUID(int=1), UUID(int=1), (self.found,), {}, False)

    def handle(self, event: events.Event) -> None:
        waiting = [event]
        while waiting:
            for effect in self.controller.handle(waiting.pop(0), 0):
                if isinstance(effect, events.Write):
                    waiting.append(self.write(effect))
                elif isinstance(effect, events.Notify):
                    waiting.append(events.Notified(effect.notify_id))
                elif isinstance(effect, events.ReadBack):
                    waiting.append(events.TopicsFound((self.topic(),)))
                elif isinstance(effect, events.Answer):
                    self.answers.append(effect.result)
                elif isinstance(effect, events.SetTimer):
                    self.timers.append(effect.name)

    def write(self, effect: events.Write) -> events.Written:
        is_lost = self.lost == 0
        if self.lost is not None:
            self.lost -= 1
        for change in effect.changes if self.is_carried_out or not is_lost else ():
            if isinstance(change, events.PutState):
                if change.version != self.found.version:
                    return events.Written(effect.write_id, events.WriteFailure.REFUSED)
                state = change.state
                self.found = self.found._replace(
                    leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr, version=change.version + 1
                )
            elif isinstance(change, events.PutAssignment):
                partition = change.topic.partitions[0]
                move = change.moves.get(0, events.ReplicaMove())
                self.found = self.found._replace(replicas=partition.replicas, move=move)
        return events.Written(effect.write_id, events.WriteFailure.UNKNOWN if is_lost else None)

    def reassign(self, *target: int) -> None:
        self.handle(events.ReassignmentRequested(7, {KEY: target}))

    def propose(self, *isr: int) -> None:
        known = self.controller.image.topics["t"].partitions[0]
        version = self.controller._state.version(*KEY)
        self.handle(events.IsrsProposed(8, [events.IsrProposed(0, 1, 1, "t", 0, known.leader_epoch, version, isr)]))

    def go_on(self) -> None:
        """The timers fire until none is set."""
        for _ in range(10):
            timers, self.timers = self.timers, []
            for name in timers:
                self.handle(events.TimerFired(name))
        self.controller.check_invariants()


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_move_that_replaces_another_whose_answer_is_lost(is_carried_out: bool) -> None:
    """The replica that only the former move had was in sync: its state was written, too."""
    play = Play()
    play.reassign(3, 4)
    play.propose(1, 2, 3)
    assert play.found.isr == (1, 2, 3)
    play.lost, play.is_carried_out = 0, is_carried_out
    play.reassign(4, 2)
    play.go_on()
    known = play.controller.image.topics["t"].partitions[0]
    assert (known.replicas, known.isr) == (play.found.replicas, play.found.isr)
    [(_, move)] = play.controller.reassignments().values()
    assert move == play.found.move
    assert move.adding == ((4,) if is_carried_out else (3, 4))
    # The leader's ISR is taken, and the move ends.
    play.propose(1, 2, *move.adding)
    play.go_on()
    assert play.found.replicas == ((4, 2) if is_carried_out else (3, 4))
    assert sorted(play.found.isr) == sorted(play.found.replicas)
    assert not any(play.found.move)
    assert play.controller.reassigning == 0
    assert play.controller.image.topics["t"].partitions[0].replicas == play.found.replicas


def test_a_move_that_only_removes_whose_answer_is_lost() -> None:
    play = Play()
    play.lost = 0
    play.reassign(2)
    assert play.found.replicas == (2, 1)
    play.go_on()
    assert (play.found.replicas, play.found.isr, play.found.leader) == ((2,), (2,), 2)
    assert play.controller.image.topics["t"].partitions[0].replicas == (2,)
    assert play.controller.reassigning == 0
