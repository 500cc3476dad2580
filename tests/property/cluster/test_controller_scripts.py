"""The controller through seeded random scripts: deaths, returns, shutdowns, ISRs, moves, growth, deletions, failovers.

At each rest all that the brokers were told last agrees with the controller's image, every partition that can have a
leader has one, and no leader epoch went back.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import LEADER_DURING_DELETE, LeaderAndIsrBatch, StopEntry
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage
from ottla.cluster.leader_balance import LEADER_BALANCE
from ottla.cluster.topics import Chance, TopicSpec
from scenarios.controller.runner import Transcript

SEEDS = 60
STEPS = 60
BROKERS = (1, 2, 3, 4)
OWN = 1

pytestmark = pytest.mark.spec("R5", "Z3")


class Script:
    """A controller, the brokers as they were told, and the steps of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.transcript = Transcript(OWN)
        self.transcript.run("settings auto.leader.rebalance.enable=true")
        self.epochs = dict.fromkeys(BROKERS, 1)
        self.live = set(BROKERS)
        self.term = 0
        self.heard: dict[int, dict[tuple[str, int], PartitionImage]] = {}
        self.roles: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
        self.story: list[str] = []

    @property
    def image(self) -> ClusterImage:
        return self.transcript.controller.image

    def brokers(self) -> dict[int, events.LiveBroker]:
        return {number: events.LiveBroker(BrokerImage(number, ()), self.epochs[number]) for number in sorted(self.live)}

    def handle(self, event: events.Event) -> None:
        self.story.append(str(event)[:200])
        waiting: list[events.Event] = [event]
        while waiting:
            for effect in self.transcript.controller.handle(waiting.pop(0), 0):
                if isinstance(effect, events.Write):
                    waiting.append(events.Written(effect.write_id))
                elif isinstance(effect, events.Notify):
                    waiting.append(events.Notified(effect.notify_id))
                elif isinstance(effect, events.SendToBroker):
                    waiting.extend(self._told(effect))
            self.transcript.controller.check_invariants()

    def _told(self, sent: events.SendToBroker) -> list[events.Event]:
        answers: list[events.Event] = []
        heard, roles = self.heard.setdefault(sent.broker_id, {}), self.roles.setdefault(sent.broker_id, {})
        for request in sent.requests:
            for one in request.entries:
                key = (one.topic, one.partition)
                if isinstance(one, StopEntry):
                    if one.is_deletion:
                        roles.pop(key, None)
                        answers.append(events.DeletionAnswered(sent.broker_id, sent.broker_epoch, [key]))
                elif isinstance(request, LeaderAndIsrBatch):
                    said = (one.state.leader_epoch, one.state.leader)
                    epoch, leader = roles.get(key, (-1, NO_LEADER))
                    assert said[0] > epoch or said == (epoch, leader), f"{key}: {said} after {epoch, leader}"
                    roles[key] = said
                    answers.append(events.LeaderAndIsrAnswered(sent.broker_id, sent.broker_epoch, [key], ()))
                elif one.state.leader == LEADER_DURING_DELETE:
                    heard.pop(key, None)
                else:
                    heard[key] = one.state
        return answers

    def begin(self) -> None:
        """A term begins: what was written is found."""
        self.term += 1
        state: Any = self.transcript.controller._state
        found = [
            events.FoundTopic(
                topic.name,
                topic.topic_id,
                topic.topic_id,
                tuple(
                    events.FoundPartitionState(
                        one.replicas,
                        one.leader,
                        one.leader_epoch,
                        one.isr,
                        state.version(topic.name, index) if one.isr else -1,
                        (topic.name, index) in state.recovering,
                        state.moves.get((topic.name, index), events.ReplicaMove()),
                    )
                    for index, one in enumerate(topic.partitions)
                ),
                topic.configs,
                False,
            )
            for topic in (*self.image.topics.values(), *(each.topic for each in state.deletions.values()))
        ]
        marked = sorted(state.deleting)
        self.handle(events.Elected(self.term, self.brokers(), found, ClusterImage(), marked))
        self.handle(events.DeletionsMarked(marked))

    def step(self) -> None:
        chance, token = self.chance, self.transcript._token()
        kind = chance.choice(
            ("die", "come", "come", "restart", "create", "grow", "delete", "isr", "isr", "isr", "move", "cancel")
        )
        kind = chance.choice((kind, kind, kind, kind, "prefer", "unclean", "shutdown", "term", "balance"))
        keys = [(name, index) for name, topic in self.image.topics.items() for index in range(len(topic.partitions))]
        others = sorted(self.live - {OWN})
        if kind in ("die", "restart") and others:
            broker = chance.choice(others)
            self.heard.pop(broker, None)
            self.roles.pop(broker, None)
            self.epochs[broker] += 1
            if kind == "die":
                self.live.remove(broker)
            self.handle(events.BrokersChanged(self.brokers()))
        elif kind == "come":
            self.live.add(chance.choice(BROKERS))
            self.handle(events.BrokersChanged(self.brokers()))
        elif kind == "create":
            factor = chance.randint(1, len(self.live))
            spec = TopicSpec(f"t{chance.randrange(6)}", chance.randint(1, 4), factor)
            drawn = Chance(chance.randrange(len(self.live)), chance.randrange(len(self.live)))
            self.handle(events.TopicRequested(token, spec, drawn, self.transcript._new_id()))
        elif kind == "shutdown" and others:
            self.handle(events.ShutdownRequested(token, chance.choice(others), -1))
        elif kind == "balance":
            self.handle(events.TimerFired(LEADER_BALANCE))
        elif kind == "term":
            self.begin()
        elif keys:
            self._change(kind, token, chance.choice(keys))

    def _change(self, kind: str, token: int, key: tuple[str, int]) -> None:
        chance, known = self.chance, self.image.topics[key[0]].partitions[key[1]]
        if kind == "grow":
            self.handle(events.PartitionsRequested(token, key[0], key[1] + 2))
        elif kind == "delete":
            self.handle(events.DeletionRequested(token, key[0]))
        elif kind == "move":
            target = tuple(chance.sample(sorted(self.live), chance.randint(1, len(self.live))))
            self.handle(events.ReassignmentRequested(token, {key: target}, chance.random() < 0.5))
        elif kind == "cancel":
            moves = self.transcript.controller.reassignments()
            cancelled = chance.choice(sorted(moves)) if moves else key
            self.handle(events.ReassignmentRequested(token, {cancelled: None}, needs_live=True))
        elif kind in ("prefer", "unclean"):
            self.handle(events.ElectionRequested(token, [key], kind == "unclean"))
        elif known.leader != NO_LEADER:
            version = self.transcript.controller._state.version(*key)
            others = [broker for broker in known.replicas if broker in self.live and broker != known.leader]
            isr = (known.leader, *others) if chance.random() < 0.7 else (known.leader,)
            epoch = self.epochs[known.leader]
            asked = events.IsrProposed(token, known.leader, epoch, *key, known.leader_epoch, version, isr)
            self.handle(asked)

    def check(self) -> None:
        state: Any = self.transcript.controller._state
        for name, topic in self.image.topics.items():
            for index, known in enumerate(topic.partitions):
                key = (name, index)
                assert known.leader == NO_LEADER or known.leader in known.isr, f"{key}: {known}"
                assert not known.isr or set(known.isr) <= set(known.replicas), f"{key}: {known}"
                if set(known.isr) & (self.live - state.shutting_down):
                    assert known.leader in self.live, f"{key} has no live leader: {known}"
                if name in state.deleting or not known.isr:
                    continue
                move = state.moves.get(key)
                if move is not None and known.leader != NO_LEADER:
                    assert not set(known.replicas) - set(move.removing) <= set(known.isr), f"{key} moves on: {known}"
                for broker in sorted(self.live - {OWN}):
                    assert self.heard[broker].get(key) == known, f"broker {broker} about {key}"
                    if broker in known.replicas and broker not in state.shutting_down:
                        role = (known.leader_epoch, known.leader)
                        assert self.roles[broker].get(key) == role, f"role of {broker} in {key}: {known}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_brokers_know_what_the_controller_has_decided(seed: int) -> None:
    script = Script(seed)
    script.begin()
    for _ in range(STEPS):
        script.step()
        try:
            script.check()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *script.story[-8:]])) from None
