"""How a topic, or all of a fetch, fails while the rest of the request is handled. Pure.

A broker reports most errors per partition. A rule for one topic therefore takes that topic out of the request, has the
rest handled, and puts the topic's errors into the response. A fetch is handled whole, since it may change its session,
and then its partitions get the error instead of records; so do the topics of Metadata for all topics.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.broker.error_answers import error_response
from ottla.testing.faults.requests import TOPIC_ARRAYS, names_all_topics, topic_key
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

#: Says whether a topic, given by name or id, is to fail.
IsFailing = Callable[[str | UUID | None], bool]
Change = Callable[[Any], None]
#: `session_epoch` of a fetch that names all its partitions: of a new session, or of none.
FULL_FETCH_EPOCHS: Final = (-1, 0)
#: The first version of Fetch that names topics by their ids, and of DeleteTopics that has them as objects.
FETCH_IDS_SINCE: Final = 13
DELETE_OBJECTS_SINCE: Final = 6


def fail_topics(key: ApiKey, version: int, request: Any, error: ErrorCode, is_failing: IsFailing) -> Change:
    """Take the failing topics out of the request; the result puts their errors into its response."""
    array = TOPIC_ARRAYS[key]
    field = "topic_names" if key is ApiKey.DELETE_TOPICS and version < DELETE_OBJECTS_SINCE else array.request
    topics = getattr(request, field)
    failed = copy.copy(request)
    setattr(failed, field, [topic for topic in topics if is_failing(topic_key(topic))])
    setattr(request, field, [topic for topic in topics if not is_failing(topic_key(topic))])
    errors = error_response(key, version, failed, error)

    def change(response: Any) -> None:
        if errors is not None:
            getattr(response, array.response).extend(getattr(errors, array.response))

    return change


def fail_metadata(version: int, request: MetadataRequest, error: ErrorCode, is_failing: IsFailing) -> Change:
    """Topics of Metadata fail; its brokers are right, as those of a broker's response always are."""
    if names_all_topics(version, request):

        def change_all(response: MetadataResponse) -> None:
            for topic in response.topics:
                if is_failing(topic.name):
                    topic.error_code = int(error)
                    topic.partitions = []

        return change_all
    add_errors = fail_topics(ApiKey.METADATA, version, request, error, is_failing)
    none_left = not request.topics

    def change(response: MetadataResponse) -> None:
        if none_left:  # In version 0 the request has become one for all topics.
            response.topics = []
        add_errors(response)

    return change


def fail_fetch(
    version: int,
    request: FetchRequest,
    error: ErrorCode,
    is_failing: IsFailing,
    session: Callable[[], Iterable[tuple[str | UUID, int]]],
) -> Change:
    """Partitions of a fetch fail, at once; `session` has those of its session after the request was handled."""
    named = [
        (topic.topic_id if version >= FETCH_IDS_SINCE else topic.topic, partition.partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    is_full = request.session_epoch in FULL_FETCH_EPOCHS
    request.max_wait_ms = 0

    def change(response: FetchResponse) -> None:
        if response.error_code:
            return
        failing: dict[str | UUID, list[PartitionData]] = {}
        for topic, index in named if is_full else session():
            if is_failing(topic):
                failing.setdefault(topic, []).append(_failed(index, error))
        of_topic = [topic for topic in response.responses if not is_failing(topic_key(topic))]
        for topic, partitions in failing.items():
            named_by = {"topic_id": topic} if isinstance(topic, UUID) else {"topic": topic}
            of_topic.append(FetchableTopicResponse(**named_by, partitions=partitions))
        response.responses = of_topic

    return change


def _failed(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=int(error),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
