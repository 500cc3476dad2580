"""ACLs created, described and deleted by requests, and what they then allow; clients are `User:ANONYMOUS`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.acl_authorizer import AclAuthorizer
from ottla.broker.authorization import Access
from ottla.cluster.acls import AclEntry, AclPattern, AclRules, Operation, PatternType, Permission, ResourceType
from ottla.net.connection import Principal
from ottla.records.record import Record, encode_batch
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.zk.layout import AclZnode
from ottla.zk.tree import Create
from support.dispatching import Ask, wait_until, with_broker

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
SUPER = {**AUTHORIZER, "super_users": "User:ANONYMOUS"}
ANY, MATCH = 1, 2
DESCRIBE, CREATE, DELETE = 29, 30, 31
VERSIONS = range(4)

pytestmark = pytest.mark.spec("S3")


def creation(name: str = "t", **changed: Any) -> AclCreation:
    values = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(
        **{key: value if isinstance(value, str) else int(value) for key, value in (values | changed).items()}
    )


async def create(ask: Ask, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    answer = await ask(CREATE, version, CreateAclsRequest(creations=list(creations)))
    return [(each.error_code, each.error_message) for each in answer.results]


async def described(ask: Ask, version: int = 3, **filters: Any) -> list[tuple[Any, ...]]:
    wanted = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    if version == 0:
        del wanted["pattern_type_filter"]
    answer = await ask(DESCRIBE, version, DescribeAclsRequest(**(wanted | filters)))
    assert answer.error_code == 0
    return [
        (of.resource_type, of.resource_name, of.pattern_type, acl.principal, acl.host, acl.operation)
        for of in answer.resources
        for acl in of.acls
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_acls_are_created_described_and_deleted(tmp_path: Path, version: int) -> None:
    async def scenario(ask: Ask) -> None:
        assert await create(ask, creation(), creation("u"), creation(), version=version) == [(0, None)] * 3
        row = (2, "t", 3, "User:ANONYMOUS", "*", 3)
        assert await described(ask, version) == [row, (2, "u", *row[2:])]
        assert await described(ask, version, resource_name_filter="u", principal_filter="User:ANONYMOUS") == [
            (2, "u", *row[2:])
        ]
        assert await described(ask, version, host_filter="10.0.0.1") == []
        filters = [
            DeleteAclsFilter(resource_type_filter=ANY, resource_name_filter=name, operation=ANY, permission_type=ANY)
            for name in ("u", None, "nosuch")
        ]
        answer = await ask(DELETE, version, DeleteAclsRequest(filters=filters))
        found = [[acl.resource_name for acl in result.matching_acls] for result in answer.filter_results]
        assert found == [["u"], ["t"], []]
        assert {result.error_code for result in answer.filter_results} == {0}
        assert await described(ask, version) == []

    with_broker(tmp_path, scenario, **SUPER)


def test_filters_of_patterns(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        prefixed = {"resource_pattern_type": PatternType.PREFIXED}
        await create(ask, creation("abc"), creation("ab", **prefixed), creation("*"), creation("abc", **prefixed))
        for name, kind, expected in (
            ("abc", ANY, [("abc", 3), ("abc", 4)]),
            ("abc", MATCH, [("*", 3), ("ab", 4), ("abc", 3), ("abc", 4)]),
            ("abd", MATCH, [("*", 3), ("ab", 4)]),
            ("abc", PatternType.LITERAL, [("abc", 3)]),
            ("ab", PatternType.PREFIXED, [("ab", 4)]),
            (None, PatternType.PREFIXED, [("ab", 4), ("abc", 4)]),
        ):
            found = await described(ask, resource_name_filter=name, pattern_type_filter=int(kind))
            assert sorted((each[1], each[2]) for each in found) == expected, (name, kind)

    with_broker(tmp_path, scenario, **SUPER)


def test_what_cannot_be_created_is_refused_each_for_itself(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        results = await create(
            ask,
            creation(),
            creation("other", resource_type=ResourceType.CLUSTER),
            creation(""),
            creation("a/b"),
            creation(host="10.0.0.0/8"),
            creation(principal="alice"),
        )
        assert [code for code, _ in results] == [0, 42, 42, 42, 42, -1]
        assert results[1][1] == "The only valid name for the CLUSTER resource is kafka-cluster"
        assert results[2][1] == "Invalid empty resource name"
        assert "10.0.0.0/8 is a network" in (results[4][1] or "")
        assert [code for code, _ in await create(ask, creation(), creation(operation=ANY))] == [-1, -1]
        assert len(await described(ask)) == 1
        unknown = CreateAclsRequest(creations=[creation(operation=99)])
        assert await ask(CREATE, 3, unknown) is None, "the connection is closed"
        assert (
            await ask(DESCRIBE, 3, DescribeAclsRequest(resource_type_filter=0, operation=1, permission_type=1)) is None
        )

    with_broker(tmp_path, scenario, **SUPER)


def test_without_an_authorizer(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        assert await create(ask, creation()) == [(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")]
        answer = await ask(DESCRIBE, 3, DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1))
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
        assert answer.error_message == "No Authorizer is configured on the broker"
        only = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
        (result,) = (await ask(DELETE, 3, DeleteAclsRequest(filters=[only]))).filter_results
        assert result.error_code == ErrorCode.SECURITY_DISABLED

    with_broker(tmp_path, scenario)


async def error_of(ask: Ask, topic: str = "t") -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await ask(2, 6, ListOffsetsRequest(replica_id=-1, topics=[asked]))
    error: int = answer.topics[0].partitions[0].error_code
    return error


def test_what_acls_allow_is_answered_and_denials_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ask: Ask) -> None:
        acls = ask.broker.acls
        assert acls is not None
        assert await error_of(ask) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [record.getMessage() for record in caplog.records if record.name == "ottla.authorizer"] == [
            "Principal = User:ANONYMOUS is Denied operation = Describe from host = 1.2.3.4 on resource = "
            "Topic:LITERAL:t for request = ListOffsets"
        ]
        allowed = AclEntry("User:ANONYMOUS", "*", Operation.READ, Permission.ALLOW)
        await acls.add(AclPattern(ResourceType.TOPIC, "t"), [allowed])
        assert await error_of(ask) == 0
        denied = AclEntry("User:*", "1.2.3.4", Operation.DESCRIBE, Permission.DENY)
        await acls.add(AclPattern(ResourceType.TOPIC, "t"), [denied])
        assert await error_of(ask) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await create(ask, creation()) == [
            (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)
        ]

    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        with_broker(tmp_path, scenario, **AUTHORIZER)


def test_a_write_that_is_denied_begins_no_verification_of_its_producer(tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        acls = ask.broker.acls
        assert acls is not None
        allowed = AclEntry("User:ANONYMOUS", "*", Operation.WRITE, Permission.ALLOW)
        await acls.add(AclPattern(ResourceType.TRANSACTIONAL_ID, "x"), [allowed])
        record = Record(0, 1, None, b"v")
        batch = encode_batch([record], producer_id=5, producer_epoch=9, base_sequence=0, is_transactional=True)
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=9_000, topic_data=[data])
        answer = await ask(0, 11, request)
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = ask.broker.partitions.get("t", 0)
        assert partition is not None
        begun = partition.log.producers.begin_verification(5, 0, 3, 0)
        assert begun is not None
        assert (begun.epoch, begun.lowest_sequence) == (0, 3), "nothing is known of the epoch 9"

    with_broker(tmp_path, scenario, **AUTHORIZER)


def test_a_damaged_znode_denies_what_it_is_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ask: Ask) -> None:
        assert await error_of(ask) == 0
        acls, path = ask.broker.acls, AclZnode.path(AclPattern(ResourceType.TOPIC, "t"))
        assert acls is not None
        zk = ask.broker.control.session.zk
        await zk.multi(
            [
                Create(path, b'{"acls":[{"principal":"User:a"}],"version":1}'),
                Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True),
            ]
        )
        await wait_until(lambda: path in caplog.text)
        assert await error_of(ask) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await error_of(ask, "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = await acls.add(
            AclPattern(ResourceType.TOPIC, "t"), [AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)]
        )
        assert refusal is not None
        assert path in refusal.message
        # An announcement that cannot be read has everything read.
        await zk.delete(path)
        await zk.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
        await wait_until(lambda: not acls.rules.patterns)
        assert await error_of(ask) == 0

    with_broker(tmp_path, scenario, **AUTHORIZER, allow_everyone_if_no_acl_found="true")


def audit_log(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Operation and resource of each denial since the last call."""
    lines = [record.getMessage() for record in caplog.records if record.name == "ottla.authorizer"]
    caplog.clear()
    return [line.split(" operation = ")[1].replace(" from host = 1.2.3.4 on resource =", "") for line in lines]


def test_only_what_was_needed_is_logged_as_denied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ask: Ask) -> None:
        acls = ask.broker.acls
        assert acls is not None

        async def allow(kind: ResourceType, name: str, operation: Operation) -> None:
            entry = AclEntry("User:ANONYMOUS", "*", operation, Permission.ALLOW)
            assert await acls.add(AclPattern(kind, name), [entry]) is None

        create_topic = CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)])
        create_topic.validate_only = True
        named = MetadataRequest(topics=[MetadataRequestTopic(name="n")])
        for key, version, request in (
            (16, 4, ListGroupsRequest()),
            (3, 9, MetadataRequest(topics=None)),
            (60, 1, DescribeClusterRequest()),
        ):
            await ask(key, version, request)
            assert audit_log(caplog) == [], API[key].name
        await ask(19, 7, create_topic)
        assert audit_log(caplog) == ["Create Topic:LITERAL:n for request = CreateTopics"]
        await ask(22, 4, InitProducerIdRequest(transactional_id=None, producer_epoch=-1))
        assert audit_log(caplog) == ["Write Topic:UNKNOWN:NONE for request = InitProducerId"]
        await ask(3, 9, named)
        assert audit_log(caplog) == ["Describe Topic:LITERAL:n for request = Metadata"]
        await allow(ResourceType.TOPIC, "n", Operation.DESCRIBE)
        await ask(3, 9, named)
        assert audit_log(caplog) == ["Create Topic:LITERAL:n for request = Metadata"]
        await allow(ResourceType.TOPIC, "x", Operation.WRITE)
        await ask(22, 4, InitProducerIdRequest(transactional_id=None, producer_epoch=-1))
        assert audit_log(caplog) == []
        await allow(ResourceType.CLUSTER, "kafka-cluster", Operation.CREATE)
        await ask(19, 7, create_topic)
        await ask(3, 9, named)
        assert audit_log(caplog) == []
        assert "n" in ask.broker.image.topics, "it was created for the client"
        with caplog.at_level(logging.DEBUG, "ottla.authorizer"):
            await ask(2, 6, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="n", partitions=[])]))
        assert audit_log(caplog) == ["Describe Topic:LITERAL:n for request = ListOffsets"]

    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        with_broker(tmp_path, scenario, **AUTHORIZER)


def test_of_partitions_beyond_those_that_are_kept_no_more_is_said_than_of_others(tmp_path: Path) -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(1, 3_000)]

    async def scenario(ask: Ask) -> None:
        topics = [FetchTopic(topic=name, partitions=partitions) for name in ("t", "missing")]
        answer = await ask(1, 12, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))
        found = {(of.topic, each.error_code) for of in answer.responses for each in of.partitions}
        assert {error for _, error in found} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    with_broker(tmp_path, scenario, **AUTHORIZER)


@pytest.mark.parametrize(
    ("host", "in_java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a:0", "2001:db8:0:0:0:0:a:0"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_those_of_java(host: str, in_java: str) -> None:
    rules = AclRules()
    allowed = AclEntry("User:a", in_java, Operation.READ, Permission.ALLOW)
    rules.replace(AclPattern(ResourceType.TOPIC, "t"), [allowed])
    access = Access(Operation.READ, ResourceType.TOPIC, "t")
    assert list(AclAuthorizer(rules).permitted(Principal("User", "a"), host, [access], 1)) == [access]
