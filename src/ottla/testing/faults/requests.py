"""Which topics and groups a request names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.wire.apis import ApiKey

#: Most topics, and most groups, that are kept of one request.
NAMES_KEPT: Final = 100
#: The first version of Metadata in which an empty array means no topics, not all.
NO_TOPICS_SINCE: Final = 1
#: `key_type` of FindCoordinator for groups.
GROUP_KEY: Final = 0


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that the broker has received, with the first 100 topics and groups that it names.

    A fetch of a session names all topics of the session. `at_ms` is the broker's time, milliseconds since the Unix
    epoch.
    """

    api: str
    version: int
    client_id: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicArray:
    """The topics of an API: an array of the request, of elements with a name, and an array of the response."""

    request: str
    name: str
    response: str


#: The APIs of which a topic can fail by itself.
TOPIC_ARRAYS: Final[Mapping[ApiKey, TopicArray]] = {
    ApiKey.PRODUCE: TopicArray("topic_data", "name", "responses"),
    ApiKey.FETCH: TopicArray("topics", "topic", "responses"),
    ApiKey.LIST_OFFSETS: TopicArray("topics", "name", "topics"),
    ApiKey.METADATA: TopicArray("topics", "name", "topics"),
    ApiKey.OFFSET_COMMIT: TopicArray("topics", "name", "topics"),
    ApiKey.CREATE_TOPICS: TopicArray("topics", "name", "topics"),
    ApiKey.DELETE_TOPICS: TopicArray("topics", "name", "responses"),
    ApiKey.DELETE_RECORDS: TopicArray("topics", "name", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: TopicArray("topics", "topic", "topics"),
    ApiKey.CREATE_PARTITIONS: TopicArray("topics", "name", "results"),
    ApiKey.OFFSET_DELETE: TopicArray("topics", "name", "topics"),
}
#: The APIs whose requests name topics.
WITH_TOPICS: Final = frozenset(
    (
        *TOPIC_ARRAYS,
        ApiKey.OFFSET_FETCH,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.TXN_OFFSET_COMMIT,
    )
)
#: The APIs whose requests name groups, and how to find them.
GROUPS: Final[Mapping[ApiKey, Callable[[Any, int], Sequence[str]]]] = {
    ApiKey.OFFSET_COMMIT: lambda request, _: (request.group_id,),
    ApiKey.OFFSET_FETCH: lambda request, version: (
        [group.group_id for group in request.groups] if version >= 8 else (request.group_id,)
    ),
    ApiKey.FIND_COORDINATOR: lambda request, version: (
        () if request.key_type != GROUP_KEY else request.coordinator_keys if version >= 4 else (request.key,)
    ),
    ApiKey.JOIN_GROUP: lambda request, _: (request.group_id,),
    ApiKey.SYNC_GROUP: lambda request, _: (request.group_id,),
    ApiKey.HEARTBEAT: lambda request, _: (request.group_id,),
    ApiKey.LEAVE_GROUP: lambda request, _: (request.group_id,),
    ApiKey.DESCRIBE_GROUPS: lambda request, _: request.groups,
    ApiKey.DELETE_GROUPS: lambda request, _: request.groups_names,
    ApiKey.OFFSET_DELETE: lambda request, _: (request.group_id,),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda request, _: (request.group_id,),
    ApiKey.TXN_OFFSET_COMMIT: lambda request, _: (request.group_id,),
}


def topics_named(
    key: ApiKey, version: int, request: Any, names: Mapping[UUID, str], session: Sequence[str | UUID] = ()
) -> tuple[str, ...]:
    """The topics that a request names, each once; those named by an id that is not in `names` are left out.

    `session` has the topics of the request's fetch session.
    """
    if key not in WITH_TOPICS:
        return ()
    found: list[str | UUID | None] = list(session)
    if key is ApiKey.OFFSET_FETCH and version >= 8:
        found += [topic.name for group in request.groups for topic in group.topics or ()]
    elif key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        found += [topic.name for log_dir in request.dirs for topic in log_dir.topics]
    elif key is ApiKey.DELETE_TOPICS and version < 6:
        found += request.topic_names
    else:
        array = TOPIC_ARRAYS.get(key)
        field = array.request if array is not None else "topics"
        found += [topic_key(topic) for topic in getattr(request, field) or ()]
    named = (names.get(each) if isinstance(each, UUID) else each for each in found)
    return tuple(dict.fromkeys(name for name in named if name))


def names_all_topics(version: int, metadata: Any) -> bool:
    """Whether a Metadata request is for all topics."""
    return metadata.topics is None or (version < NO_TOPICS_SINCE and not metadata.topics)


def topic_key(topic: Any) -> str | UUID | None:
    """The name of a topic in a request or response, or its id where it has no name."""
    if isinstance(topic, str):
        return topic
    name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
    return name or getattr(topic, "topic_id", None)


def groups_named(key: ApiKey, version: int, request: Any) -> tuple[str, ...]:
    """The groups that a request names."""
    find = GROUPS.get(key)
    return () if find is None else tuple(find(request, version))
