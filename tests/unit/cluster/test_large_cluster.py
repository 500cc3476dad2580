"""A controller with many partitions changes them in parts, so that no turn of the loop is long."""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

import pytest

from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import LeaderAndIsrBatch
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicDelta, TopicImage
from ottla.cluster.partition_changes import MOST_AT_ONCE
from ottla.cluster.proposed_isrs import ISRS_PER_WRITE
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("R5")

REST = 100
PARTITIONS = 2 * MOST_AT_ONCE + REST
BROKERS = {number: events.LiveBroker(BrokerImage(number, ()), 1) for number in (1, 2, 3)}


def controller() -> Controller:
    config = parse_broker_config({"broker.id": "1"})
    assert isinstance(config, BrokerConfig)
    made = Controller(1, config)
    state = events.FoundPartitionState((3, 2, 1), 3, 0, (3, 2, 1), 0)
    topic = events.FoundTopic("t", UUID(int=1), UUID(int=1), (state,) * PARTITIONS, {}, False)
    for effect in made.handle(events.Elected(1, BROKERS, (topic,), ClusterImage()), 0):
        if isinstance(effect, events.Notify):
            made.handle(events.Notified(effect.notify_id), 0)
    return made


def written(effects: list[events.Effect]) -> list[events.Write]:
    return [effect for effect in effects if isinstance(effect, events.Write)]


def play(made: Controller, effects: list[events.Effect]) -> list[list[events.Effect]]:
    """The effects of each turn, when all writes and notices succeed."""
    turns = [effects]
    waiting = list(effects)
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, events.Write):
            turns.append(made.handle(events.Written(effect.write_id), 0))
            waiting.extend(turns[-1])
        elif isinstance(effect, events.Notify):
            waiting.extend(made.handle(events.Notified(effect.notify_id), 0))
    return turns


def led_by(made: Controller, broker: int) -> int:
    return sum(state.leader == broker for state in made.image.topics["t"].partitions)


def in_slices(made: Controller, event: events.Event) -> list[list[events.Effect]]:
    """The effects of each turn of one event, and of the writes and notices that come of it."""
    turns: list[list[events.Effect]] = []
    waiting = [event]
    while waiting:
        turns.append(made.handle_in_slices(waiting.pop(0), 0))
        for effect in turns[-1]:
            if isinstance(effect, events.Continue):
                waiting.append(events.Continued(effect.continuation_id))
            elif isinstance(effect, events.Notify):
                waiting.append(events.Notified(effect.notify_id))
            elif isinstance(effect, events.Write):
                waiting.append(events.Written(effect.write_id))
    return turns


def test_the_whole_state_is_found_in_several_slices_and_metadata_sent_in_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that returns, and a controller that is elected; all together it is what one turn would have sent."""
    sent: dict[int, list[dict[tuple[int, type], list[object]]]] = {}
    for most in (10, 100_000):
        for module in ("controller", "pending_work", "broker_notifier", "partition_changes"):
            monkeypatch.setattr(f"ottla.cluster.{module}.MOST_LOOKED_AT", most)
        monkeypatch.setattr("ottla.cluster.broker_notifier.MOST_SENT", most)
        config = parse_broker_config({"broker.id": "1"})
        assert isinstance(config, BrokerConfig)
        made = Controller(1, config)
        state = events.FoundPartitionState((3, 2, 1), 3, 0, (3, 2, 1), 0)
        topics = [
            events.FoundTopic(f"t{number}", UUID(int=number), UUID(int=number), (state,) * 7, {}, False)
            for number in range(1, 8)
        ]
        sent[most] = []
        without_3 = {number: broker for number, broker in BROKERS.items() if number != 3}
        death = events.BrokersChanged(without_3)
        election_after_death = events.Elected(2, without_3, topics, ClusterImage())
        for event in (
            events.Elected(1, BROKERS, topics, ClusterImage()),
            death,
            events.BrokersChanged(BROKERS | {3: events.LiveBroker(BrokerImage(3, ()), 9)}),
            election_after_death,
        ):
            turns = in_slices(made, event)
            made.check_invariants()
            assert made.is_idle
            found = [each for effects in turns for each in effects if isinstance(each, events.SendToBroker)]
            requests = [(each.broker_id, request) for each in found for request in each.requests]
            if most == 10 and event is not death:
                first: dict[int, int] = {}
                for broker_id, request in requests:
                    if isinstance(request, LeaderAndIsrBatch):
                        first.setdefault(broker_id, len(request.entries))
                    else:
                        assert len(request.entries) <= most
                # A broker of Apache Kafka forgets the high watermarks of what the first one leaves out.
                assert first[2 if event is election_after_death else 3] == 49
                assert len(turns) > 4
                assert len(requests) > 6
            merged: dict[tuple[int, type], list[object]] = {}
            for broker_id, request in requests:
                merged.setdefault((broker_id, type(request)), []).extend(request.entries)
            sent[most].append(merged)
    assert sent[10] == sent[100_000]


def test_a_new_controller_sends_the_roles_before_its_own_broker_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They and it have as much to do, and do it at the same time."""
    made = many_topics(monkeypatch, 3)
    state = events.FoundPartitionState((3, 2, 1), 3, 0, (3, 2, 1), 0)
    topic = events.FoundTopic("t1", UUID(int=1), UUID(int=1), (state,) * 25, {}, False)
    live = {number: broker for number, broker in BROKERS.items() if number != 3}
    turns = in_slices(made, events.Elected(2, live, [topic], ClusterImage()))
    effects = [effect for turn in turns for effect in turn]
    [own] = [effect for effect in effects if isinstance(effect, events.Notify) and effect.delta.topics]
    assert len(own.delta.partition_epochs) == 25
    [roles] = [
        effect
        for effect in effects
        if isinstance(effect, events.SendToBroker) and isinstance(effect.requests[-1], LeaderAndIsrBatch)
    ]
    assert roles.broker_id == 2
    assert effects.index(roles) < effects.index(own)


def test_what_is_known_of_a_topic_made_anew_is_not_forgotten_with_its_predecessor() -> None:
    config = parse_broker_config({"broker.id": "1"})
    assert isinstance(config, BrokerConfig)
    made = Controller(1, config)
    before = TopicImage("t", UUID(int=1), (PartitionImage(1, 3, (1, 2), (1, 2)),), {}, False)
    found = events.FoundPartitionState((1, 2, 3), 1, 0, (1, 2), 5, move=events.ReplicaMove((3,), ()))
    topic = events.FoundTopic("t", UUID(int=2), UUID(int=2), (found,), {}, False)
    effects = [
        effect
        for turn in in_slices(made, events.Elected(4, BROKERS, [topic], ClusterImage(), gone=[before]))
        for effect in turn
    ]
    gone, published, *_ = (each for each in effects if isinstance(each, events.Notify) and each.delta.topics)
    assert gone.delta.topics == (TopicDelta(before, None),)
    assert (gone.epoch, published.epoch) == (4, 4)
    assert published.delta.partition_epochs == {("t", 0): 5}
    assert made._state.moves == {("t", 0): events.ReplicaMove((3,), ())}


def test_partitions_without_a_live_leader_are_looked_for_in_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    made = many_topics(monkeypatch, 3)
    turns = in_slices(made, events.TimerFired("elections"))
    assert sum(isinstance(effect, events.Continue) for turn in turns for effect in turn) == 4
    assert not any(written(turn) for turn in turns)
    monkeypatch.setattr("ottla.cluster.partition_changes.MOST_AT_ONCE", 20)
    turns = in_slices(made, events.BrokersChanged({1: BROKERS[1], 2: BROKERS[2]}))
    assert [len(write.changes) for turn in turns for write in written(turn)] == [20, 20, 16]
    assert {state.isr for topic in made.image.topics.values() for state in topic.partitions} == {(2, 1)}
    assert made.is_idle


def test_elections_after_a_death_go_on_in_parts() -> None:
    made = controller()
    turns = play(made, made.handle(events.BrokersChanged({1: BROKERS[1], 2: BROKERS[2]}), 0))
    writes = [write for turn in turns for write in written(turn)]
    assert [len(write.changes) for write in writes] == [MOST_AT_ONCE, MOST_AT_ONCE, REST]
    told = [
        len(request.entries)
        for turn in turns
        for effect in turn
        if isinstance(effect, events.SendToBroker) and effect.broker_id == 2
        for request in effect.requests
        if isinstance(request, LeaderAndIsrBatch)
    ]
    assert told == [MOST_AT_ONCE, MOST_AT_ONCE, REST], "brokers lead the first ones while the others are decided"
    assert led_by(made, 2) == PARTITIONS
    made.check_invariants()


def test_a_new_registration_waits_for_all_parts_of_the_death() -> None:
    made = controller()
    again = {**BROKERS, 3: events.LiveBroker(BrokerImage(3, ()), 9)}
    turns = play(made, made.handle(events.BrokersChanged(again), 0))
    of_broker = [place for place, turn in enumerate(turns) if any(getattr(e, "broker_id", 0) == 3 for e in turn)]
    last_write = max(place for place, turn in enumerate(turns) if written(turn))
    assert min(of_broker) > last_write
    assert all(3 not in state.isr for state in made.image.topics["t"].partitions)


def test_a_part_that_fails_ends_it_until_the_timer() -> None:
    made = controller()
    [write] = written(made.handle(events.BrokersChanged({1: BROKERS[1], 2: BROKERS[2]}), 0))
    effects = made.handle(events.Written(write.write_id, events.WriteFailure.UNKNOWN), 0)
    assert not written(effects)
    assert led_by(made, 3) == PARTITIONS
    [timer] = [effect for effect in effects if isinstance(effect, events.SetTimer)]
    play(made, made.handle(events.TimerFired(timer.name), 0))
    assert led_by(made, 2) == PARTITIONS


def test_a_controlled_shutdown_goes_on_in_parts_and_is_answered_at_its_end() -> None:
    made = controller()
    turns = play(made, made.handle(events.ShutdownRequested(7, 3, 1), 0))
    assert [len(write.changes) for turn in turns for write in written(turn)] == [MOST_AT_ONCE, MOST_AT_ONCE, REST]
    answers = [effect for turn in turns for effect in turn if isinstance(effect, events.Answer)]
    assert answers == [events.Answer(7, events.ShutdownProgress(()))]
    assert led_by(made, 2) == PARTITIONS


def test_one_isr_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    made = controller()
    proposals = [events.IsrProposed(0, 3, 1, "t", index, 0, 0, (3, 2)) for index in range(800)]
    [write] = written(made.handle(events.IsrsProposed(7, proposals), 0))
    assert len(write.changes) == ISRS_PER_WRITE
    bad, writes, answers = 555, 0, []
    waiting: list[events.Effect] = [write]
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, events.Write):
            writes += 1
            is_refused = any(isinstance(each, events.PutState) and each.partition == bad for each in effect.changes)
            failure = events.WriteFailure.REFUSED if is_refused else None
            waiting += made.handle(events.Written(effect.write_id, failure), 0)
        elif isinstance(effect, events.Notify):
            waiting += made.handle(events.Notified(effect.notify_id), 0)
        elif isinstance(effect, events.Answer):
            answers.append(effect)
    [answer] = answers
    assert isinstance(answer.result, tuple)
    refused = {index: each for index, each in enumerate(answer.result) if not isinstance(each, events.IsrAccepted)}
    # Its leader asks again: a write whose answer was lost may have made it.
    assert refused == {bad: events.IsrRefused(ErrorCode.NOT_CONTROLLER)}
    assert writes < 25


def test_isrs_behind_a_write_without_an_answer_are_not_tried() -> None:
    made = controller()
    proposals = [events.IsrProposed(0, 3, 1, "t", index, 0, 0, (3, 2)) for index in range(800)]
    [write] = written(made.handle(events.IsrsProposed(7, proposals), 0))
    effects = made.handle(events.Written(write.write_id, events.WriteFailure.UNKNOWN), 0)
    assert not written(effects)
    [answer] = [effect for effect in effects if isinstance(effect, events.Answer)]
    assert answer.result == (events.IsrRefused(ErrorCode.NOT_CONTROLLER),) * 800


def many_topics(monkeypatch: pytest.MonkeyPatch, leader: int) -> Controller:
    """Eight topics of seven partitions on 1, 2 and 3, preferring 3; ten partitions are looked at in a turn."""
    for module in ("controller", "pending_work", "broker_notifier", "partition_changes"):
        monkeypatch.setattr(f"ottla.cluster.{module}.MOST_LOOKED_AT", 10)
    config = parse_broker_config({"broker.id": "1"})
    assert isinstance(config, BrokerConfig)
    made = Controller(1, config)
    state = events.FoundPartitionState((3, 2, 1), leader, 0, (3, 2, 1), 0)
    topics = [
        events.FoundTopic(f"t{number}", UUID(int=number), UUID(int=number), (state,) * 7, {}, False)
        for number in range(1, 9)
    ]
    live = {**BROKERS, 4: events.LiveBroker(BrokerImage(4, ()), 1)}
    in_slices(made, events.Elected(1, live, topics, ClusterImage()))
    return made


def test_moves_of_many_topics_begin_and_end_in_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    made = many_topics(monkeypatch, 3)
    wanted = {(f"t{number}", 6): (4, 2, 1) for number in range(1, 9)}
    turns = in_slices(made, events.ReassignmentRequested(7, wanted))
    assert max(len(written(turn)) for turn in turns) <= 2, "of two topics with seven partitions each"
    assert made.reassigning == 8
    answers = [effect for turn in turns for effect in turn if isinstance(effect, events.Answer)]
    assert answers == [events.Answer(7, events.ReassignmentResult({}))]
    proposals = []
    for name, index in wanted:
        known = made.image.topics[name].partitions[index]
        version = made._state.version(name, index)
        proposals.append(
            events.IsrProposed(0, known.leader, 1, name, index, known.leader_epoch, version, (*known.isr, 4))
        )
    turns = in_slices(made, events.IsrsProposed(8, proposals))
    ends = [
        sum(isinstance(change, events.PutAssignment) for write in written(turn) for change in write.changes)
        for turn in turns
    ]
    assert sum(ends) == 8
    assert max(ends) <= 2
    assert made.reassigning == 0
    assert {made.image.topics[name].partitions[index].replicas for name, index in wanted} == {(4, 2, 1)}
    assert made.is_idle
    made.check_invariants()


def test_leaders_are_looked_at_in_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    made = many_topics(monkeypatch, 2)
    turns = in_slices(made, events.TimerFired("leader balance"))
    assert sum(isinstance(effect, events.Continue) for turn in turns for effect in turn) == 4
    assert {state.leader for topic in made.image.topics.values() for state in topic.partitions} == {3}
    assert made.is_idle


def test_moves_of_a_topic_are_found_without_a_look_at_all_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moves(dict[events.PartitionKey, events.ReplicaMove]):
        def items(self) -> NoReturn:
            raise AssertionError("all moves are looked at")

        __iter__ = items

    made = many_topics(monkeypatch, 3)
    move = events.ReplicaMove((4,), (3,))
    made._state.moves = Moves({("t2", 5): move, ("t3", 5): move})
    assert made._state.moves_of(made.image.topics["t2"]) == {5: move}
