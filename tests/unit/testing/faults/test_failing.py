"""One topic of a request fails, in every API and version that can have that."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from e2e.valid_requests import Maker
from ottla.broker.served import SERVED
from ottla.testing.faults.failing import fail_fetch, fail_metadata, fail_topics
from ottla.testing.faults.requests import TOPIC_ARRAYS, topic_key
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import decode, encode
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic

pytestmark = pytest.mark.spec("U1")

ERROR = ErrorCode.NOT_CONTROLLER
SPLIT = [
    (key, version)
    for key in TOPIC_ARRAYS
    if key is not ApiKey.FETCH
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1)
]


def errors_in(response: Any) -> set[int]:
    """The error codes of a struct and of all in it."""
    found = {response.error_code} if hasattr(response, "error_code") else set()
    for field in response.SCHEMA.fields:
        value = getattr(response, field.name)
        if isinstance(value, list):
            found |= {code for each in value if hasattr(each, "SCHEMA") for code in errors_in(each)}
    return found


@pytest.mark.parametrize(("key", "version"), SPLIT)
def test_the_failing_topic_leaves_the_request_and_joins_the_response(key: ApiKey, version: int) -> None:
    array = TOPIC_ARRAYS[key]
    request = Maker(random.Random(7)).request(key, version)
    by_name = key is ApiKey.DELETE_TOPICS and version < 6
    field = "topic_names" if by_name else array.request
    element = "t" if by_name else next(iter(getattr(request, field)))
    others: list[Any] = ["other"] if by_name else []
    if not by_name:
        setattr(element, array.name, "t")
    setattr(request, field, [element, *others])
    fail = (
        fail_metadata(version, request, ERROR, lambda topic: topic == "t")
        if key is ApiKey.METADATA
        else (fail_topics(key, version, request, ERROR, lambda topic: topic == "t"))
    )
    assert getattr(request, field) == others
    response = API[key].response()
    fail(response)
    failed = getattr(decode(API[key].response, encode(response, version), version), array.response)
    assert [topic_key(each) for each in failed] == ["t"]
    assert errors_in(failed[0]) >= {int(ERROR)}


@pytest.mark.parametrize("version", range(SERVED[ApiKey.FETCH].max_version + 1))
def test_partitions_of_a_fetch_fail_in_their_places(version: int) -> None:
    failing, other = ("t", "other") if version < 13 else (uuid.uuid4(), uuid.uuid4())
    field = "topic" if version < 13 else "topic_id"
    request = FetchRequest(
        max_wait_ms=500,
        session_epoch=-1,
        topics=[
            FetchTopic(**{field: topic}, partitions=[FetchPartition(partition=index) for index in (0, 3)])
            for topic in (failing, other)
        ],
    )
    change = fail_fetch(version, request, ERROR, lambda topic: topic == failing, lambda: [(failing, 5), (other, 5)])
    assert request.max_wait_ms == 0

    def changed(**fields: Any) -> FetchResponse:
        topics = [FetchableTopicResponse(**{field: topic}, partitions=[]) for topic in (failing, other)]
        response = FetchResponse(responses=topics, **fields)
        change(response)
        return decode(FetchResponse, encode(response, version), version)

    kept, failed = changed().responses
    assert (getattr(kept, field), getattr(failed, field)) == (other, failing)
    assert [(each.partition_index, each.error_code) for each in failed.partitions] == [(0, ERROR), (3, ERROR)]
    if version >= 7:
        request.session_epoch = 2
        change = fail_fetch(version, request, ERROR, lambda topic: topic == failing, lambda: [(failing, 5), (other, 5)])
        assert [each.partition_index for each in changed().responses[1].partitions] == [5]
        refused = changed(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        assert all(each.partitions == [] for each in refused.responses)
