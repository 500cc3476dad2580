"""Whatever is given to methods of clients is accepted or refused by a ClientError, never by a bare error or a hang."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

from ottla.assign.assignor import GroupMetadata
from ottla.client import NewPartitions, NewTopic, ProducerRecord, TopicPartition
from ottla.client.admin.model import (
    AclBinding,
    AclBindingFilter,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    ConfigResource,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
)
from ottla.client.errors import ClientError, IllegalStateError
from support.client_facades import FACADES, Facade
from support.fake_cluster import FakeCluster
from support.waiting import Stopwatch

P = TopicPartition("t", 0)
QUICK = {
    "request.timeout.ms": 50,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
}
WEIRD: list[Any] = [
    None, True, -1, 5, 1.5, float("nan"), 2**63, "", "t", b"t", object(), print, [1], [None], [P], [("t", "0")],
    [("t", -1)], [("t", 1.5)], [("t", 2**63)], [(1, 2, 3)], ("t", 0), {}, {"t": 1}, {P: 1.5}, {P: 2**63}, {P: "1"},
    {P: None}, {P: (1, 2)}, {5: 5}, iter([P]), [object()], [NewTopic("n", 1.5)], [NewTopic(5)],
    {"t": NewPartitions(2.5)}, {ConfigResource.topic("t"): {"a": 1}}, {ConfigResource.topic("t"): 5},
]  # fmt: skip
#: Arguments with which a method does what it is for.
GOOD: dict[str, dict[str, Any]] = {
    "Producer.send": {"topic": "t", "value": b"v"},
    "Producer.send_many": {"records": [(b"k", b"v"), ProducerRecord("t", b"v")], "topic": "t"},
    "Producer.send_arrow": {"data": pyarrow.table({"value": [b"v"]}), "topic": "t"},
    "Producer.partitions_for": {"topic": "t"},
    "Producer.send_offsets_to_transaction": {"offsets": {P: 1}, "group_metadata": GroupMetadata("g", 1, "m", None)},
    "Consumer.subscribe": {"topics": ["t"]},
    "Consumer.assign": {"partitions": [P]},
    "Consumer.pause": {"partitions": [P]},
    "Consumer.resume": {"partitions": [P]},
    "Consumer.committed": {"partitions": [P]},
    "Consumer.seek": {"partition": P, "offset": 0},
    "Consumer.position": {"partition": P},
    "Consumer.offsets_for_times": {"timestamps": {P: 1000}},
    "Consumer.beginning_offsets": {"partitions": [P]},
    "Consumer.end_offsets": {"partitions": [P]},
    "Consumer.current_lag": {"partition": P},
    "Consumer.partitions_for": {"topic": "t"},
    "SimpleConsumer.find_leader": {"topic": "t", "partition": 0},
    "SimpleConsumer.earliest_or_latest_offset": {"topic": "t", "partition": 0},
    "SimpleConsumer.fetch": {"topic": "t", "partition": 0, "offset": 0},
    "Admin.create_topics": {"topics": [NewTopic("new")]},
    "Admin.create_topic": {"name": "new"},
    "Admin.delete_topics": {"names": ["gone"]},
    "Admin.delete_topic": {"name": "gone"},
    "Admin.describe_topics": {"names": ["t"]},
    "Admin.describe_configs": {"resources": [ConfigResource.topic("t")]},
    "Admin.list_group_offsets": {"group_id": "g"},
    "Admin.describe_groups": {"group_ids": ["g"]},
    "Admin.delete_groups": {"group_ids": ["g"]},
    "Admin.list_offsets": {"timestamps": {P: -1}},
}
#: They need what the fake broker has not, so that only their first checks are seen.
WITHOUT_ANSWER = {
    "Admin.create_partitions": {"partitions": {"t": 2}},
    "Admin.delete_records": {"offsets": {P: 1}},
    "Admin.incremental_alter_configs": {"configs": {ConfigResource.topic("t"): {"a": "1"}}},
    "Admin.alter_configs": {"configs": {ConfigResource.topic("t"): {"a": "1"}}},
    "Admin.alter_group_offsets": {"group_id": "g", "offsets": {P: 1}},
    "Admin.delete_group_offsets": {"group_id": "g", "partitions": [P]},
    "Admin.alter_partition_reassignments": {"reassignments": {P: [0]}},
    "Admin.alter_replica_log_dirs": {"log_dirs": {TopicPartitionReplica("t", 0, 0): "/logs"}},
    "Admin.describe_producers": {"partitions": [P]},
    "Admin.describe_replica_log_dirs": {"replicas": [TopicPartitionReplica("t", 0, 0)]},
    "Admin.describe_user_scram_credentials": {"users": ["u"]},
    "Admin.alter_user_scram_credentials": {"alterations": [UserScramCredentialDeletion("u", "SCRAM-SHA-256")]},
    "Admin.describe_client_quotas": {"components": [ClientQuotaFilterComponent("user", "u")]},
    "Admin.alter_client_quotas": {"quotas": {ClientQuotaEntity("u"): {"producer_byte_rate": 1}}},
    "Admin.create_delegation_token": {},
    "Admin.renew_delegation_token": {"hmac": b"h"},
    "Admin.expire_delegation_token": {"hmac": b"h"},
    "Admin.describe_delegation_token": {"owners": ["User:a"]},
    "Admin.unregister_broker": {"broker_id": 5},
    "Admin.create_acls": {"acls": [AclBinding("TOPIC", "t", "User:a", "READ")]},
    "Admin.delete_acls": {"filters": [AclBindingFilter()]},
    "Admin.remove_members_from_group": {"group_id": "g", "members": ["a"]},
}
#: Parameters that no name reaches, or that take any: arguments of other clients get a TypeError with a hint.
NOT_NAMED = ("self", "record", "args", "options", "foreign")
#: `close` ends what is tested; of these there is nothing to give wrongly, or they never end.
LEFT_OUT = {"close", "abort", "arrow_batches", "check_reads", "next_chunk", "wait_for_data", "deadline_ms"}
LONGEST_S = 10


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    """A cluster of its own for each kind of client: Admin deletes the topic."""
    cluster = FakeCluster(1)
    cluster.topic("t", 0)
    cluster.fill(P, 10)
    yield cluster
    cluster.close()


@pytest.fixture(params=FACADES, scope="module")
def facade(request: Any) -> Iterator[Facade]:
    made = Facade(request.param)
    yield made
    made.close()


def settings_of(kind: str, fake: FakeCluster) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "Producer": {"max.block.ms": 50, "delivery.timeout.ms": 500},
        "Consumer": {"group.id": "g", "auto.offset.reset": "earliest"},
    }
    brief = {} if kind == "Producer" else {"default.api.timeout.ms": 50}
    return {"bootstrap.servers": fake.bootstrap, **QUICK, **brief, **more.get(kind, {})}


def methods(kind: str) -> list[str]:
    import ottla.client

    found = inspect.getmembers(getattr(ottla.client, kind), inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in LEFT_OUT]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["Producer", "Consumer", "SimpleConsumer", "Admin"])
def test_every_argument_of_every_method(fake: FakeCluster, facade: Facade, kind: str) -> None:
    import ottla.client

    bare: list[str] = []
    make = {"Producer": facade.producer, "Consumer": facade.consumer, "Admin": facade.admin}
    for name in methods(kind):
        signature = inspect.signature(getattr(getattr(ottla.client, kind), name))
        key = f"{kind}.{name}"
        good = GOOD.get(key) or WITHOUT_ANSWER.get(key) or {}
        parameters = [each for each in signature.parameters if each not in NOT_NAMED]
        if not parameters:
            continue
        with make.get(kind, facade.simple_consumer)(settings_of(kind, fake)) as client:
            if kind == "Consumer" and name not in ("subscribe", "enforce_rebalance", "commit"):
                client.assign([P])
            for parameter in parameters:
                for value in WEIRD:
                    if key in WITHOUT_ANSWER and value == good.get(parameter):
                        continue
                    if name.startswith("poll"):
                        client.seek(P, 0)
                    watch = Stopwatch()
                    try:
                        getattr(client, name)(**{**good, parameter: value})
                    except ClientError as error:
                        if isinstance(error, IllegalStateError) and "another kind" in str(error):
                            raise
                    except Exception as error:
                        bare.append(f"{key}({parameter}={value!r:.60}): {type(error).__name__}: {error}")
                    took_s = watch.seconds()
                    if took_s > LONGEST_S:
                        bare.append(f"{key}({parameter}={value!r:.60}) took {took_s:.1f} s")
    assert not bare, f"{len(bare)} bare errors:\n" + "\n".join(bare)
