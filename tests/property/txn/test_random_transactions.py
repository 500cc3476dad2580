"""Random walks: producers, zombies, lost answers, refused writes, leaders that err, time, and other coordinators."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.txn.events import (
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    PartitionsResult,
    VerifyPartitionsInTxn,
)
from ottla.txn.machine import TransactionLimits
from ottla.txn.metadata import EXHAUSTED_EPOCH, TopicPartition, TransactionMetadata
from ottla.txn.shard import TransactionShard
from ottla.txn.states import RULES, TransactionState
from ottla.wire.broker_requests import BrokerRequest
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from support.random_cases import cases
from support.transaction_world import ID, World, marker_response

pytestmark = pytest.mark.spec("X1")

IDS = (ID, "other")
PARTITIONS: list[TopicPartition] = [("t", 0), ("t", 1), ("u", 0), ("__consumer_offsets", 3)]
NONE = ErrorCode.NONE
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]
PASSING = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]
LIMITS = TransactionLimits(id_expiration_ms=300_000)
UNKNOWN = (-1, -1)
#: Producer id and epoch.
Identity = tuple[int, int]


class Producer:
    """A client with the identity that it got last; it may be a zombie."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.identity: Identity = UNKNOWN
        self.has_begun = False


class Leaders:
    """Leaders of partitions: the markers that they wrote. As real ones do, they refuse older epochs."""

    def __init__(self) -> None:
        self.markers: dict[TopicPartition, list[tuple[Identity, bool]]] = {each: [] for each in PARTITIONS}
        self.seen: dict[tuple[TopicPartition, int], tuple[int, int]] = {}

    def write(self, request: BrokerRequest) -> ErrorCode:
        assert isinstance(request.payload, WriteTxnMarkersRequest)
        (marker,) = request.payload.markers
        partition = partition_of(request)
        coordinator_epoch, epoch = self.seen.get((partition, marker.producer_id), UNKNOWN)
        if marker.coordinator_epoch < coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if marker.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.seen[partition, marker.producer_id] = (marker.coordinator_epoch, marker.producer_epoch)
        self.markers[partition].append(((marker.producer_id, marker.producer_epoch), marker.transaction_result))
        return NONE


class Walk:
    """Producers of two transactional ids, leaders and a coordinator, driven by one seed."""

    def __init__(self, seed: int, version: int, epoch: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(version, LIMITS)
        self.world.put(TransactionState.EMPTY, producer_epoch=epoch)
        self.leaders = Leaders()
        self.producers = [Producer(self.rng.choice(IDS)) for _ in range(4)]
        self.owners: dict[Identity, Producer] = {}
        #: By transactional id: the latest state in the log, and how many markers were written when it was decided.
        self.latest: dict[str, TransactionMetadata | None] = {ID: self.world.metadata}
        self.decided: dict[str, dict[TopicPartition, int]] = {}
        self.checked = len(self.world.log)

    def step(self) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self.proceed, 60),
            (self.answer_markers, 40),
            (self.ask_wrongly, 6),
            (self.forget, 4),
            (self.pass_time, 8),
            (self.refuse_writes, 3),
            (self.have_ids_or_not, 2),
            (self.restart, 3),
            (self.lead_again, 2),
        ]
        self.rng.choices([act for act, _ in actions], [weight for _, weight in actions])[0]()
        self.check()

    # Producers

    def proceed(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.identity == UNKNOWN or self.rng.random() < 0.1:
            self.initialize(producer)
        elif not producer.has_begun or self.rng.random() < 0.4:
            self.add(producer)
        else:
            self.end(producer)

    def initialize(self, producer: Producer) -> None:
        known = producer.identity if self.rng.random() < 0.4 else UNKNOWN
        event = InitProducerId(None, producer.transactional_id, self.rng.choice([5_000, 60_000]), *known)
        result = self.world.ask(event)
        assert isinstance(result, InitProducerIdResult)
        if result.error is NONE and self.rng.random() < 0.8:
            self.take(producer, (result.producer_id, result.producer_epoch))

    def add(self, producer: Producer) -> None:
        partitions = self.rng.sample(PARTITIONS, self.rng.randrange(0, 4))
        name, identity = producer.transactional_id, producer.identity
        result = self.world.ask(AddPartitionsToTxn(None, name, *identity, partitions, self.world.transaction_version))
        if result.error is NONE:
            producer.has_begun = True
            verified = self.world.ask(VerifyPartitionsInTxn(None, name, *identity, partitions))
            assert verified == PartitionsResult(dict.fromkeys(partitions, NONE), NONE)

    def end(self, producer: Producer) -> None:
        is_commit = self.rng.random() < 0.6
        version = self.world.transaction_version
        event = EndTxn(None, producer.transactional_id, *producer.identity, is_commit, version)
        result = self.world.ask(event)
        while self.rng.random() < 0.3:  # The response is lost.
            result = self.world.ask(event)
        assert isinstance(result, EndTxnResult)
        if result.error is NONE:
            producer.has_begun = False
            if version:
                self.take(producer, (result.producer_id, result.producer_epoch))

    def take(self, producer: Producer, identity: Identity) -> None:
        assert self.owners.setdefault(identity, producer) is producer, f"{identity} is given to two producers"
        assert identity[1] <= EXHAUSTED_EPOCH
        producer.identity, producer.has_begun = identity, False

    def forget(self) -> None:
        """A producer crashes; another with nothing but the transactional id takes its place."""
        self.producers[self.rng.randrange(4)] = Producer(self.rng.choice(IDS))

    def ask_wrongly(self) -> None:
        producer = self.rng.choice(self.producers)
        producer_id, epoch = producer.identity
        wrong = (producer_id + self.rng.choice([-1, 0, 0, 1]), epoch + self.rng.choice([-2, -1, 0, 1, 2]))
        metadata = self.latest.get(producer.transactional_id)
        result = self.world.ask(AddPartitionsToTxn(None, producer.transactional_id, *wrong, PARTITIONS[:1]))
        is_current = metadata is not None and wrong == (metadata.producer_id, metadata.producer_epoch)
        assert is_current or result.error is not NONE

    # Leaders, log, time, coordinators

    def answer_markers(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            if self.world.asked:
                self.answer_marker(self.rng.choice(self.world.asked))

    def answer_marker(self, request: BrokerRequest) -> None:
        chance = self.rng.random()
        if chance < 0.1:
            error = self.rng.choice(PASSING)
        else:
            error = self.leaders.write(request)
        if chance > 0.9:
            self.world.answer(request, ErrorCode.NETWORK_EXCEPTION)
        else:
            self.world.answer(request, response=marker_response(partition_of(request), error))

    def pass_time(self) -> None:
        self.world.advance(self.rng.choice([1, 150, 6_000, 70_000]))

    def refuse_writes(self) -> None:
        self.world.errors = [self.rng.choice(REFUSALS) for _ in range(self.rng.randrange(1, 3))]

    def have_ids_or_not(self) -> None:
        self.world.has_ids = not self.world.has_ids

    def restart(self) -> None:
        self.world.restart()

    def lead_again(self) -> None:
        world = self.world
        world.coordinator_epoch += 1
        for step in world.shard.lead(world.coordinator_epoch, world.now_ms):
            world.carry_out(step)

    # What holds

    def check(self) -> None:
        while self.checked < len(self.world.log):
            record = self.world.decoded(self.checked)
            self.check_record(record.transactional_id, record.metadata)
            self.checked += 1
        assert states_of(self.world.restored()) == states_of(self.world.shard, self.world.transaction_version)

    def check_record(self, name: str, metadata: TransactionMetadata | None) -> None:
        before, self.latest[name] = self.latest.get(name), metadata
        if metadata is None:
            assert before is not None
            assert RULES[before.state].expires
            return
        if before is None:
            assert (metadata.state, metadata.producer_epoch) == (TransactionState.EMPTY, 0)
            return
        assert metadata.state in RULES[before.state].exits
        assert (metadata.producer_id, metadata.producer_epoch) >= (before.producer_id, before.producer_epoch)
        assert metadata.last_update_ms >= before.last_update_ms
        if metadata.is_ending:
            self.decided[name] = {each: len(self.leaders.markers[each]) for each in metadata.partitions}
        elif before.is_ending:
            self.check_markers(name, before)

    def check_markers(self, name: str, decision: TransactionMetadata) -> None:
        """Each partition got the marker that was decided since then, and no other."""
        identity = (decision.producer_id, decision.producer_epoch)
        is_commit = decision.state is TransactionState.PREPARE_COMMIT
        for partition, start in self.decided[name].items():
            written = [result for each, result in self.leaders.markers[partition][start:] if each == identity]
            assert set(written) == {is_commit}, f"{partition}: {written}\n{self.world.shard.machines[name].story()}"


def partition_of(request: BrokerRequest) -> TopicPartition:
    assert isinstance(request.destination, tuple)
    return request.destination


def states_of(shard: TransactionShard, version: int = 2) -> dict[str, TransactionMetadata]:
    """The states of all transactional ids, without what values of version 0 have no room for."""
    found = {}
    for name, machine in shard.machines.items():
        if (metadata := machine.metadata) is not None:
            found[name] = metadata if version else replace(metadata, previous_producer_id=-1)
    return found


@pytest.mark.parametrize("version", [0, 2])
@given(st.integers(0, 2**32), st.sampled_from([0, 32_755, EXHAUSTED_EPOCH]))
@settings(max_examples=cases(60))
def test_what_holds_after_each_step(version: int, seed: int, epoch: int):
    """No state is entered but by the table, no epoch goes back, no identity has two producers, no transaction is torn.

    And a coordinator that loads the log knows what the one before it knew.
    """
    walk = Walk(seed, version, epoch)
    for _ in range(200):
        walk.step()
    assert walk.checked == len(walk.world.log)


@pytest.mark.parametrize("version", [0, 2])
@given(st.integers(0, 2**32), st.sampled_from([0, EXHAUSTED_EPOCH]))
@settings(max_examples=cases(30))
def test_every_transaction_ends_once_the_faults_do(version: int, seed: int, epoch: int):
    walk = Walk(seed, version, epoch)
    for _ in range(100):
        walk.step()
    world = walk.world
    world.errors, world.has_ids = [], True
    for _ in range(20):
        # A coordinator that was fenced waits for its successor.
        world.restart()
        world.advance(70_000)
        walk.check()
        for request in list(world.asked):
            error = walk.leaders.write(request)
            world.answer(request, response=marker_response(partition_of(request), error))
        walk.check()
    open_states = {machine.metadata.state for machine in world.shard.machines.values() if machine.metadata}
    assert open_states <= {state for state, rules in RULES.items() if rules.expires}
