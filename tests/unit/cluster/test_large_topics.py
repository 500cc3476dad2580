"""A topic of many partitions is made, grows and goes in several turns of the loop, and at once for those who see it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import PartitionEntry, StopReplicaBatch
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage
from ottla.cluster.placement import Assignment
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import LARGEST_ASSIGNMENT, Chance, TopicSpec, assignment_bytes
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import TopicAssignment, TopicZnode

pytestmark = pytest.mark.spec("R5")

MOST = 50
PARTITIONS = 230
NAME = "large"
BROKERS = {number: events.LiveBroker(BrokerImage(number, ()), 1) for number in (1, 2, 3)}
ASSIGNMENT: Assignment = {index: ((index % 3) + 1, (index + 1) % 3 + 1) for index in range(PARTITIONS)}
REQUEST = events.TopicRequested(7, TopicSpec(NAME, assignments=ASSIGNMENT), Chance(0, 0), UUID(int=9))


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cluster.pending_work.MOST_LOOKED_AT", MOST)
    monkeypatch.setattr("ottla.cluster.control_batches.STEP_PARTITIONS", 10)
    monkeypatch.setattr("ottla.cluster.topic_loading.STEP_PARTITIONS", 10)


def controller() -> Controller:
    config = parse_broker_config({"broker.id": "1"})
    assert isinstance(config, BrokerConfig)
    made = Controller(1, config)
    list(play(made, events.Elected(1, BROKERS, (), ClusterImage())))
    return made


def play(made: Controller, *first: events.Event) -> Iterator[list[events.Effect]]:
    """The effects of each turn, when all writes and notices succeed."""
    waiting = list(first)
    while waiting:
        effects = made.handle_in_slices(waiting.pop(0), 0)
        yield effects
        for effect in effects:
            if isinstance(effect, events.Continue):
                waiting.append(events.Continued(effect.continuation_id))
            elif isinstance(effect, events.Notify):
                waiting.append(events.Notified(effect.notify_id))
            elif isinstance(effect, events.Write):
                waiting.append(events.Written(effect.write_id))


def sent(turns: list[list[events.Effect]]) -> list[events.SendToBroker]:
    return [effect for turn in turns for effect in turn if isinstance(effect, events.SendToBroker)]


def go_ons(turns: list[list[events.Effect]]) -> int:
    return sum(isinstance(effect, events.Continue) for turn in turns for effect in turn)


def all_at_once(monkeypatch: pytest.MonkeyPatch, *first: events.Event) -> list[list[events.SendToBroker]]:
    """What is sent for each of these events when no turn ends before its time."""
    monkeypatch.setattr("ottla.cluster.pending_work.MOST_LOOKED_AT", 100_000)
    made = controller()
    return [sent(list(play(made, event))) for event in first]


def test_a_large_topic_is_made_grows_and_goes_as_a_small_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = controller()
    asked = (
        REQUEST,
        events.PartitionsRequested(8, NAME, 2 * PARTITIONS),
        events.DeletionRequested(9, NAME),
    )
    seen = []
    for event in asked:
        turns = list(play(made, event))
        assert go_ons(turns) >= PARTITIONS // MOST
        notices = [effect for turn in turns for effect in turn if isinstance(effect, events.Notify)]
        assert len(notices) == 1, "brokers and clients see one change"
        seen.append(sent(turns))
        made.check_invariants()
    assert [len(each) for each in seen] == [2, 2, 2]
    [stops] = [
        each for each in seen[2][0].requests if isinstance(each, StopReplicaBatch) and each.entries[0].is_deletion
    ]
    assert 0 < len({entry.partition for entry in stops.entries}) < 2 * PARTITIONS
    assert seen == all_at_once(monkeypatch, *asked)


def test_new_partitions_are_new_for_the_brokers_once() -> None:
    made = controller()
    turns = list(play(made, REQUEST))
    [notice] = [effect for turn in turns for effect in turn if isinstance(effect, events.Notify)]
    assert set(notice.delta.new_partitions) == {(NAME, index) for index in range(PARTITIONS)}
    roles = [entry for each in sent(turns) for entry in each.requests[0].entries if isinstance(entry, PartitionEntry)]
    assert len(roles) > PARTITIONS
    assert all(entry.is_new for entry in roles)
    turns = list(play(made, events.PartitionsRequested(8, NAME, PARTITIONS + 1)))
    [notice] = [effect for turn in turns for effect in turn if isinstance(effect, events.Notify)]
    assert list(notice.delta.new_partitions) == [(NAME, PARTITIONS)]
    assert not made._state.unannounced


def test_what_comes_in_between_is_part_of_the_change() -> None:
    """A broker dies after some of the requests were made: the topic is sent as it is then, and nothing to the dead."""
    made = controller()
    [write] = made.handle_in_slices(REQUEST, 0)
    assert isinstance(write, events.Write)
    [go_on] = made.handle_in_slices(events.Written(write.write_id), 0)
    assert isinstance(go_on, events.Continue)
    without_3 = {number: broker for number, broker in BROKERS.items() if number != 3}
    turns = list(play(made, events.BrokersChanged(without_3), events.Continued(go_on.continuation_id)))
    told = [each for each in sent(turns) if any(request.entries for request in each.requests)]
    assert {each.broker_id for each in told} == {2}
    with_3 = {index for index, replicas in ASSIGNMENT.items() if 3 in replicas}
    [announced] = told
    metadata = announced.requests[-1]
    assert {entry.partition for entry in metadata.entries if getattr(entry, "offline", ())} == with_3


def test_an_isr_that_changes_while_a_topic_grows_is_kept() -> None:
    made = controller()
    list(play(made, REQUEST))
    [write] = made.handle_in_slices(events.PartitionsRequested(8, NAME, 2 * PARTITIONS), 0)
    assert isinstance(write, events.Write)
    proposal = events.IsrProposed(0, 1, 1, NAME, 0, 0, 0, (1,))
    list(play(made, events.IsrsProposed(3, [proposal])))
    list(play(made, events.Written(write.write_id)))
    assert len(made.image.topics[NAME].partitions) == 2 * PARTITIONS
    assert made.image.topics[NAME].partitions[0] == PartitionImage(1, 0, (1, 2), (1,))


def test_a_large_topic_that_others_made_is_taken_up_in_several_slices() -> None:
    made = controller()
    found = events.FoundTopic(
        NAME,
        None,
        UUID(int=5),
        tuple(events.FoundPartitionState(ASSIGNMENT[index]) for index in range(PARTITIONS)),
        {},
        False,
    )
    turns = list(play(made, events.TopicsFound([found, found])))
    assert go_ons(turns) >= 2 * (PARTITIONS // MOST)
    topic = made.image.topics[NAME]
    assert [state.replicas for state in topic.partitions] == list(ASSIGNMENT.values())
    assert all(state.leader == state.replicas[0] for state in topic.partitions)
    assert made.is_idle
    made.check_invariants()
    assert made._pending.busy == {}


def test_a_deletion_waits_until_a_topic_is_taken_up() -> None:
    made = controller()
    states = tuple(events.FoundPartitionState((1, 2)) for _ in range(PARTITIONS))
    found = events.FoundTopic(NAME, UUID(int=5), UUID(int=5), states, {}, False)
    [go_on] = made.handle_in_slices(events.TopicsFound([found]), 0)
    assert isinstance(go_on, events.Continue)
    assert made.handle_in_slices(events.DeletionRequested(4, NAME), 0) == []
    turns = list(play(made, events.Continued(go_on.continuation_id)))
    changes = [change for turn in turns for each in turn if isinstance(each, events.Write) for change in each.changes]
    assert isinstance(changes[-1], events.MarkDeletion)
    assert NAME not in made.image.topics


@pytest.mark.parametrize(("partitions", "factor"), [(88_000, 1), (66_000, 3), (100_000, 1)])
def test_a_topic_that_no_znode_can_hold_is_refused(partitions: int, factor: int) -> None:
    made = controller()
    for asked in (
        events.TopicRequested(7, TopicSpec(NAME, partitions, factor), Chance(0, 0), UUID(int=9)),
        events.PartitionsRequested(8, "small", partitions),
    ):
        list(play(made, events.TopicRequested(6, TopicSpec("small", 1, factor), Chance(0, 0), UUID(int=8))))
        [[answer]] = list(play(made, asked))
        assert isinstance(answer, events.Answer)
        assert isinstance(answer.result, TopicRefusal)
        assert answer.result.error is ErrorCode.INVALID_PARTITIONS
        assert f"replicas of {partitions} partitions would take " in answer.result.message
        assert answer.result.message.endswith("Make several topics of them.")


@pytest.mark.parametrize(
    ("partitions", "brokers"), [(86_000, (1,)), (64_000, (1, 2, 3)), (999, (1, 12, 123)), (1, (7,))]
)
def test_the_size_of_an_assignment_is_that_in_its_znode(partitions: int, brokers: tuple[int, ...]) -> None:
    replicas = dict.fromkeys(range(partitions), brokers)
    data = TopicZnode.encode(TopicAssignment(UUID(int=9), replicas, {}, {}))
    size = assignment_bytes(replicas.values())
    assert 0 < len(data) - size < 200, "all but the id and the names of the parts"
    assert size <= LARGEST_ASSIGNMENT


def test_a_topic_that_just_fits_is_made() -> None:
    made = controller()
    first, *_ = made.handle_in_slices(
        events.TopicRequested(7, TopicSpec(NAME, 86_000, 1), Chance(0, 0), UUID(int=9)), 0
    )
    assert isinstance(first, events.Write)
