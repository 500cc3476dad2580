"""The five handlers of topics and settings, in every version, over a real topic manager and a fake connection."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Coroutine
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.control.coordination import ClusterSession
from ottla.broker.control.plane import ControlPlane
from ottla.broker.control.startup import Startup
from ottla.broker.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
)
from ottla.broker.handlers.delete_topics import DELETED_AT_ONCE
from ottla.broker.served import SERVED
from ottla.broker.slices import LoopSlices
from ottla.cluster.image import ClusterImage
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.listeners import Endpoint
from ottla.env.clock import VirtualClock
from ottla.env.randomness import Randomness
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.sliced import decode_in_slices, encode_in_slices
from ottla.zk.client import LocalClient
from ottla.zk.store import TreeStore
from support.handler_context import HandlerContext
from support.steps import result_of

CLOCK = VirtualClock(1)
ENDPOINTS = (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092), Endpoint("INSIDE", "PLAINTEXT", "i", 9093))


class FakeBroker:
    def __init__(self, settings: dict[str, str] | None = None) -> None:
        config = parse_broker_config({"broker.id": "7", "num.partitions": "2", **(settings or {})})
        assert isinstance(config, BrokerConfig)
        self.config = config
        self.id = 7
        zk = LocalClient(TreeStore.open(MemoryDisk(), "/t", CLOCK))
        self.slices = LoopSlices(CLOCK.monotonic_ms)
        self.control = ControlPlane(
            ClusterSession(zk), config, broker_id=7, endpoints=ENDPOINTS, clock=CLOCK, randomness=Randomness(1)
        )

    @property
    def image(self) -> ClusterImage:
        return self.control.image


class FakeContext(HandlerContext):
    """A request; what its handler goes on with waits for the test."""

    def __init__(self, broker: FakeBroker, version: int, listener_name: str = "PLAINTEXT") -> None:
        super().__init__(broker, version, listener_name)
        self.work: Coroutine[object, object, None] | None = None

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.work = work


async def ask(
    broker: FakeBroker, handler: ModuleType, request: Any, version: int, listener_name: str = "PLAINTEXT"
) -> Any:
    context = FakeContext(broker, version, listener_name)
    handler.handle(context, decode(type(request), encode(request, version), version))
    while context.work is not None:
        work, context.work = context.work, None
        await work
    assert context.answer is not None
    return context.answer


async def started(settings: dict[str, str] | None = None) -> FakeBroker:
    broker = FakeBroker(settings)
    assert await Startup(broker.control).start() is None
    return broker


def versions(handler: ModuleType) -> range:
    (served,) = [each for each in SERVED.values() if handler.__name__.endswith(f".{each.module}")]
    return range(served.min_version, served.max_version + 1)


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def topic(name: str, partitions: int = 3, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


@pytest.mark.parametrize("version", versions(create_topics))
def test_creating(version: int) -> None:
    async def scenario() -> None:
        broker = await started()
        request = CreateTopicsRequest(topics=[topic("a", retention_ms="5"), topic("bad name")], timeout_ms=1)
        made, refused = (await ask(broker, create_topics, request, version)).topics
        assert (made.name, made.error_code) == ("a", 0)
        assert (refused.name, refused.error_code) == ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION)
        if version >= 1:
            assert refused.error_message.startswith("Topic name is invalid: 'bad name' contains")
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (3, 1)
            sources = {config.name: (config.value, config.config_source) for config in made.configs}
            assert len(sources) == 36
            assert sources["retention.ms"] == ("5", 1)
            assert sources["segment.bytes"] == ("1073741824", 5)
            assert refused.configs == []
        if version >= 7:
            assert made.topic_id == broker.image.topics["a"].topic_id
        assert list(broker.image.topics) == ["a"]

    run(scenario())


def test_creating_by_assignment_and_by_default() -> None:
    async def scenario() -> None:
        broker = await started()
        by_hand = CreatableTopic(
            name="hand",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[7])],
        )
        response = await ask(broker, create_topics, CreateTopicsRequest(topics=[by_hand, topic("d", -1, -1)]), 7)
        assert [result.error_code for result in response.topics] == [0, 0]
        assert {name: len(made.partitions) for name, made in broker.image.topics.items()} == {"hand": 1, "d": 2}

    run(scenario())


def test_one_topic_asked_for_twice() -> None:
    async def scenario() -> None:
        broker = await started()
        request = CreateTopicsRequest(topics=[topic("a"), topic("b"), topic("a")])
        results = {result.name: result for result in (await ask(broker, create_topics, request, 7)).topics}
        assert results["a"].error_code == ErrorCode.INVALID_REQUEST
        assert results["a"].error_message == "Found multiple entries for this topic."
        assert list(broker.image.topics) == ["b"]

    run(scenario())


def test_validating_only() -> None:
    async def scenario() -> None:
        broker = await started()
        response = await ask(broker, create_topics, CreateTopicsRequest(topics=[topic("a")], validate_only=True), 7)
        assert response.topics[0].error_code == 0
        assert response.topics[0].topic_id == UUID(int=0)
        assert response.topics[0].num_partitions == 3
        assert broker.image.topics == {}

    run(scenario())


@pytest.mark.parametrize("version", versions(delete_topics))
def test_deleting(version: int) -> None:
    async def scenario() -> None:
        broker = await started()
        for name in ("a", "b"):
            assert await broker.control.admin.ensure_topic(name) is None
        if version >= 6:
            by_id = DeleteTopicState(topic_id=broker.image.topics["b"].topic_id)
            unknown = DeleteTopicState(topic_id=UUID(int=3))
            names = [DeleteTopicState(name="a"), by_id, DeleteTopicState(name="c"), unknown]
            request = DeleteTopicsRequest(topics=names)
        else:
            request = DeleteTopicsRequest(topic_names=["a", "b", "c"])
        results = (await ask(broker, delete_topics, request, version)).responses
        assert [(result.name, result.error_code) for result in results[:3]] == [
            ("a", 0),
            ("b", 0),
            ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        if version >= 6:
            assert (results[3].name, results[3].error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert broker.image.topics == {}

    run(scenario())


def test_deletions_wait_together_for_a_broker_that_does_not_answer() -> None:
    async def scenario() -> None:
        broker = await started()
        gone = "gone"
        names = [*(f"t{number}" for number in range(DELETED_AT_ONCE)), "late", gone]
        asked: list[str] = []
        all_asked = asyncio.Event()

        async def delete_topic(name: str, topic_id: UUID | None = None) -> None:
            asked.append(name)
            if len(asked) == DELETED_AT_ONCE:
                all_asked.set()
            await (all_asked.wait() if name.startswith("t") else asyncio.Event().wait())

        broker.control.admin.delete_topic = delete_topic  # type: ignore[method-assign]
        broker.image.topics.update(dict.fromkeys(names))  # type: ignore[arg-type]
        # What clients do not see any more counts as deleted.
        del broker.image.topics[gone]
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=0)
        results = (await ask(broker, delete_topics, request, 5)).responses
        assert asked == names == [each.name for each in results]
        assert {each.name: each.error_code for each in results if each.error_code} == {
            "late": ErrorCode.REQUEST_TIMED_OUT
        }

    run(scenario())


def test_name_and_id_together() -> None:
    async def scenario() -> None:
        broker = await started()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=UUID(int=3))])
        (result,) = (await ask(broker, delete_topics, request, 6)).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message == "Topic name and topic ID can not both be specified."

    run(scenario())


@pytest.mark.parametrize("version", versions(delete_topics))
def test_deletion_switched_off(version: int) -> None:
    async def scenario() -> None:
        broker = await started({"delete.topic.enable": "false"})
        assert await broker.control.admin.ensure_topic("a") is None
        request = (
            DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
            if version >= 6
            else DeleteTopicsRequest(topic_names=["a"])
        )
        (result,) = (await ask(broker, delete_topics, request, version)).responses
        expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert result.error_code == expected

    run(scenario())


@pytest.mark.parametrize("version", versions(create_partitions))
def test_growing(version: int) -> None:
    async def scenario() -> None:
        broker = await started()
        for name in ("a", "b", "same"):
            assert await broker.control.admin.ensure_topic(name) is None
        by_hand = [CreatePartitionsAssignment(broker_ids=[7])]
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="a", count=5, assignments=None),
                CreatePartitionsTopic(name="b", count=3, assignments=by_hand),
                CreatePartitionsTopic(name="same", count=2, assignments=None),
            ]
        )
        a, b, same = (await ask(broker, create_partitions, request, version)).results
        assert (a.error_code, b.error_code) == (0, 0)
        assert (same.error_code, same.error_message) == (
            ErrorCode.INVALID_PARTITIONS,
            "Topic already has 2 partitions.",
        )
        assert {name: len(made.partitions) for name, made in broker.image.topics.items()} == {
            "a": 5,
            "b": 3,
            "same": 2,
        }

    run(scenario())


@pytest.mark.spec("S5")
def test_growing_very_many_topics_keeps_little_but_their_results() -> None:
    """Bytes of the response and the names still to come, not objects for each refusal: at most 3 times the request."""

    async def scenario() -> None:
        broker = await started()
        topics = [CreatePartitionsTopic(name=f"{number:060}", count=3, assignments=None) for number in range(10_000)]
        frame = encode(CreatePartitionsRequest(topics=topics), 0)
        del topics
        context = FakeContext(broker, 0)
        steps = decode_in_slices(CreatePartitionsRequest, memoryview(frame), 0, 0, 10_000)
        request, _ = result_of(steps)
        replied: list[int] = []

        async def encoded(response: Any) -> None:
            _, size = result_of(encode_in_slices(response, 0))
            replied.append(size)

        context.replied = encoded  # type: ignore[method-assign]
        tracemalloc.start()
        try:
            create_partitions.handle(context, request)  # type: ignore[arg-type]
            assert context.work is not None
            await context.work
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert replied[0] > len(frame)
        assert peak < replied[0] + 3 * len(frame)

    run(scenario())


def test_growing_twice_in_one_request() -> None:
    async def scenario() -> None:
        broker = await started()
        assert await broker.control.admin.ensure_topic("a") is None
        twice = [CreatePartitionsTopic(name="a", count=count, assignments=None) for count in (3, 4)]
        (result,) = (await ask(broker, create_partitions, CreatePartitionsRequest(topics=twice), 3)).results
        assert (result.error_code, result.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Duplicate topic in request.",
        )

    run(scenario())


@pytest.mark.parametrize("version", versions(describe_cluster))
def test_describing_the_cluster(version: int) -> None:
    async def scenario() -> None:
        broker = await started({"broker.rack": "r"})
        response = await ask(broker, describe_cluster, DescribeClusterRequest(), version, "INSIDE")
        assert (response.error_code, response.controller_id) == (0, 7)
        assert response.cluster_id == broker.image.cluster_id
        (found,) = response.brokers
        assert (found.broker_id, found.host, found.port, found.rack) == (7, "i", 9093, "r")
        assert response.cluster_authorized_operations == -(2**31)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await ask(broker, describe_cluster, request, version)).cluster_authorized_operations > 0

    run(scenario())


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_endpoints_that_are_not_there(endpoint_type: int, error: ErrorCode) -> None:
    async def scenario() -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        assert (await ask(await started(), describe_cluster, request, 1)).error_code == error

    run(scenario())


@pytest.mark.parametrize("version", versions(describe_configs))
def test_describing_settings(version: int) -> None:
    async def scenario() -> None:
        broker = await started()
        assert await broker.control.admin.ensure_topic("a") is None
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name="a", configuration_keys=["retention.ms"]),
                DescribeConfigsResource(resource_type=4, resource_name="7", configuration_keys=None),
            ]
        )
        if version >= 1:
            request.include_synonyms = True
        if version >= 3:
            request.include_documentation = True
        of_topic, of_broker = (await ask(broker, describe_configs, request, version)).results
        (retention,) = of_topic.configs
        assert (retention.name, retention.value, retention.read_only) == ("retention.ms", "604800000", False)
        settings = {setting.name: setting for setting in of_broker.configs}
        assert settings["num.partitions"].value == "2"
        assert settings["ssl.key.password"].is_sensitive
        if version == 0:
            assert retention.is_default
            assert not settings["num.partitions"].is_default
        else:
            assert settings["num.partitions"].config_source == 4
            assert [s.source for s in settings["num.partitions"].synonyms] == [4, 5]
        if version >= 3:
            assert settings["num.partitions"].config_type == 3
            assert settings["num.partitions"].documentation

    run(scenario())


@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (2, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains one or more characters "
         "other than ASCII alphanumerics, '.', '_' and '-'"),
        (4, "8", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 7 or empty string, but received 8"),
        (4, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (16, "x", ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters"),
        (8, "8", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 7 but received 8"),
        (0, "7", ErrorCode.INVALID_REQUEST, "Unsupported resource type: 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_described(kind: int, name: str, error: ErrorCode, message: str) -> None:
    async def scenario() -> None:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked])
        (result,) = (await ask(await started(), describe_configs, request, 4)).results
        assert (result.error_code, result.error_message) == (error, message)
        assert (result.resource_type, result.resource_name, result.configs) == (kind, name, [])

    run(scenario())


def test_the_cluster_wide_settings_are_empty() -> None:
    async def scenario() -> None:
        asked = DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)
        (result,) = (await ask(await started(), describe_configs, DescribeConfigsRequest(resources=[asked]), 4)).results
        assert (result.error_code, result.configs) == (0, [])

    run(scenario())
