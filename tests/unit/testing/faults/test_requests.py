"""The topics and groups that a request names."""

from __future__ import annotations

import random
import uuid

import pytest

from e2e.valid_requests import Maker, apis_and_versions
from ottla.broker.served import SERVED
from ottla.testing.faults.requests import GROUPS, WITH_TOPICS, groups_named, topics_named
from ottla.wire.apis import ApiKey
from ottla.wire.messages.fetch import FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

pytestmark = pytest.mark.spec("U1")

#: What a request's fields that name topics and groups are called.
TOPIC_FIELDS = {"topics", "topic_data", "topic_names", "dirs"}
GROUP_FIELDS = {"group_id", "groups", "groups_names", "coordinator_keys"}
#: Requests between brokers are not those of an application under test.
BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}


@pytest.mark.parametrize(("key", "version"), [(k, v) for k, v in apis_and_versions() if k in SERVED])
def test_every_request_can_be_read(key: int, version: int) -> None:
    for seed in range(5):
        request = Maker(random.Random(seed)).request(key, version)
        assert all(isinstance(name, str) for name in topics_named(ApiKey(key), version, request, {}))
        assert all(isinstance(name, str) for name in groups_named(ApiKey(key), version, request))


def test_no_api_with_topics_or_groups_is_left_out() -> None:
    fields = {ApiKey(key): set() for key in SERVED}
    for key, version in apis_and_versions():
        if key in SERVED and key not in BETWEEN_BROKERS:
            request = Maker(random.Random(1)).request(key, version)
            fields[ApiKey(key)] |= {field.name for field in request.SCHEMA.fields}
    assert {key for key, names in fields.items() if names & TOPIC_FIELDS} == set(WITH_TOPICS)
    assert {key for key, names in fields.items() if names & GROUP_FIELDS} == set(GROUPS)


def test_topics_by_id_and_of_a_session() -> None:
    here, unknown = uuid.uuid4(), uuid.uuid4()
    request = FetchRequest(topics=[FetchTopic(topic_id=here), FetchTopic(topic_id=unknown)])
    assert topics_named(ApiKey.FETCH, 13, request, {here: "t"}, ["s", here]) == ("s", "t")
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None, topic_id=here)])
    assert topics_named(ApiKey.METADATA, 12, metadata, {here: "t"}) == ("a", "t")


def test_groups_of_offset_fetch_and_find_coordinator() -> None:
    topics = [OffsetFetchRequestTopics(name="t")]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
    )
    assert groups_named(ApiKey.OFFSET_FETCH, 8, request) == ("g", "h")
    assert topics_named(ApiKey.OFFSET_FETCH, 8, request, {}) == ("t",)
    assert groups_named(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"])) == ("g",)
    assert groups_named(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g")) == ("g",)
    assert groups_named(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="txn", key_type=1)) == ()
