"""Random walks of requests, to Apache Kafka's transaction coordinator and to our state machine: the same answers.

The state machine stands beside a broker, of Apache Kafka or ours. Between the requests both end what they have begun:
leaders write the markers. The older protocol, which is that of 3.9.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from interop.raw import RawConnection
from ottla.txn.events import (
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    PartitionsResult,
    TransactionView,
    VerifyPartitionsInTxn,
)
from ottla.txn.failures import error_in_version
from ottla.txn.metadata import TopicPartition
from ottla.txn.states import TransactionState
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from support.brokers import RunningBroker
from support.random_cases import cases
from support.transaction_world import World
from support.waiting import wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.slow, pytest.mark.spec("X1")]

TOPIC = "walked"
STEPS = 60
Identity = tuple[int, int]
UNKNOWN: Identity = (-1, -1)
ENDING = {TransactionState.PREPARE_COMMIT.value, TransactionState.PREPARE_ABORT.value}


class Both:
    """One transactional id at a broker and in a state machine. Producer ids are those of the state machine."""

    def __init__(self, raw: RawConnection, name: str) -> None:
        self.raw = raw
        self.name = name
        self.world = World()
        #: The broker's producer ids by those of the state machine.
        self.theirs: dict[int, int] = {-1: -1}

    def ask(self, api: str, version: int, **body: Any) -> Any:
        return self.raw.request(api, version, **body)

    def their(self, identity: Identity) -> dict[str, int]:
        producer_id, epoch = identity
        return {"producer_id": self.theirs.get(producer_id, producer_id), "producer_epoch": epoch}

    def init(self, version: int, timeout_ms: int, known: Identity) -> Identity | None:
        """InitProducerId; the identity if both gave one."""
        theirs = self.ask(
            "InitProducerId",
            version,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            **(self.their(known) if version >= 3 else {}),
        )
        ours = self.world.ask(InitProducerId(None, self.name, timeout_ms, *known))
        assert isinstance(ours, InitProducerIdResult)
        self.check_errors(theirs["error_code"], ours.error, ApiKey.INIT_PRODUCER_ID, version)
        self.settle()
        assert theirs["producer_epoch"] == ours.producer_epoch
        assert self.theirs.setdefault(ours.producer_id, theirs["producer_id"]) == theirs["producer_id"]
        return (ours.producer_id, ours.producer_epoch) if ours.error is ErrorCode.NONE else None

    def add(self, version: int, identity: Identity, partitions: list[TopicPartition]) -> None:
        theirs = self.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.their(identity)["producer_id"],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=by_topic(partitions),
        )
        ours = self.world.ask(AddPartitionsToTxn(None, self.name, *identity, partitions))
        assert isinstance(ours, PartitionsResult)
        expected = {each: error_in_version(e, ApiKey.ADD_PARTITIONS_TO_TXN, version) for each, e in ours.errors.items()}
        assert errors_of(theirs["results_by_topic_v3_and_below"]) == expected

    def verify(self, identity: Identity, partitions: list[TopicPartition]) -> None:
        transaction = {"transactional_id": self.name, **self.their(identity), "verify_only": True}
        theirs = self.ask("AddPartitionsToTxn", 5, transactions=[transaction | {"topics": by_topic(partitions)}])
        ours = self.world.ask(VerifyPartitionsInTxn(None, self.name, *identity, partitions))
        assert isinstance(ours, PartitionsResult)
        (result,) = theirs["results_by_transaction"]
        assert errors_of(result["topic_results"]) == ours.errors

    def end(self, version: int, identity: Identity, is_commit: bool) -> None:
        theirs = self.ask("EndTxn", version, transactional_id=self.name, **self.their(identity), committed=is_commit)
        ours = self.world.ask(EndTxn(None, self.name, *identity, is_commit))
        assert isinstance(ours, EndTxnResult)
        self.check_errors(theirs["error_code"], ours.error, ApiKey.END_TXN, version)
        self.settle()

    def check_errors(self, theirs: int, ours: ErrorCode, api_key: ApiKey, version: int) -> None:
        assert ErrorCode(theirs) is error_in_version(ours, api_key, version)

    def settle(self) -> None:
        """Both have their markers written, and show the same state afterwards."""
        self.world.write_all_markers()
        wait_until(lambda: self.described()["transaction_state"] not in ENDING, "the markers of the broker")
        theirs, ours = self.described(), self.world.shard.describe(self.name)
        if isinstance(ours, ErrorCode):
            assert ErrorCode(theirs["error_code"]) is ours
            return
        assert isinstance(ours, TransactionView)
        partitions = {(each["topic"], index) for each in theirs["topics"] for index in each["partitions"]}
        assert (theirs["transaction_state"], theirs["producer_epoch"]) == (ours.state.value, ours.producer_epoch)
        assert (partitions, theirs["transaction_timeout_ms"]) == (ours.partitions, ours.timeout_ms)
        # In memory, not in its log, Apache Kafka 3.9 keeps the start of the transaction before InitProducerId.
        assert (ours.start_ms < 0) is (ours.state is TransactionState.EMPTY)
        assert theirs["transaction_start_time_ms"] >= 0 or ours.start_ms < 0

    def described(self) -> Any:
        (state,) = self.ask("DescribeTransactions", 0, transactional_ids=[self.name])["transaction_states"]
        return state


def by_topic(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [{"name": TOPIC, "partitions": [index for _, index in partitions]}]


def errors_of(results: list[Any]) -> dict[TopicPartition, ErrorCode]:
    return {
        (topic["name"], partition["partition_index"]): ErrorCode(partition["partition_error_code"])
        for topic in results
        for partition in topic["results_by_partition"]
    }


def walk(both: Both, rng: random.Random) -> None:
    known: list[Identity] = [UNKNOWN]
    for _ in range(STEPS):
        producer_id, epoch = rng.choice([known[-1], known[-1], rng.choice(known)])
        identity = (producer_id, max(0, epoch + rng.choice([0] * 8 + [-1, 1])))
        partitions = [(TOPIC, index) for index in rng.choice([[0], [1], [0, 1]])]
        step = rng.randrange(10)
        if step < 2:
            version = rng.choice([1, 3, 4])
            asked = identity if version >= 3 and producer_id >= 0 and rng.random() < 0.6 else UNKNOWN
            found = both.init(version, rng.choice([60_000, 70_000, 900_001, 0]), asked)
            known += [found] if found else []
        elif step < 6:
            both.add(rng.choice([1, 2, 3]), identity, partitions)
        elif step < 7:
            both.verify(identity, partitions)
        else:
            both.end(rng.choice([1, 2, 3]), identity, rng.random() < 0.6)


@pytest.mark.parametrize("server", ["apache_kafka", "shared_ottla_server"])
@pytest.mark.parametrize("seed", range(cases(10)))
def test_both_give_the_same_answers(
    seed: int, server: str, request: pytest.FixtureRequest, connect: Callable[[RunningBroker], RawConnection]
):
    raw = connect(request.getfixturevalue(server))
    topics = [{"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}]
    raw.request("CreateTopics", 4, topics=topics, timeout_ms=30_000, validate_only=False)
    name = f"walk-{seed}"

    def is_ready() -> bool:
        state = raw.request("DescribeTransactions", 0, transactional_ids=[name])["transaction_states"][0]
        found = raw.request("FindCoordinator", 2, key=name, key_type=1)
        given = raw.request("InitProducerId", 1, transactional_id=None, transaction_timeout_ms=0)
        is_loaded = state["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return is_loaded and not found["error_code"] and not given["error_code"]

    wait_until(is_ready, "the coordinator of transactions, and producer ids")
    walk(Both(raw, name), random.Random(seed))
