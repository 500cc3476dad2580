"""DeleteTopics (key 20).

Versions: 1 throttle time; 3 TOPIC_DELETION_DISABLED; 4 flexible; 5 error messages; 6 topics by name or id.
"""

from __future__ import annotations

import uuid

from ottla.wire.schema import INT16, INT32, STRING, UUID, Message, Struct, array, field, message, struct


@struct
class DeleteTopicState(Struct):
    name: str | None = field(STRING, since=6, nullable_since=6, default=None)
    topic_id: uuid.UUID = field(UUID, since=6)


@message(versions=(0, 6), flexible_since=4, api_key=20)
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), since=6)
    topic_names: list[str] = field(array(STRING), until=5, ignorable=True)
    timeout_ms: int = field(INT32)


@struct
class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable_since=6)
    topic_id: uuid.UUID = field(UUID, since=6, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=5, nullable_since=5, default=None, ignorable=True)


@message(versions=(0, 6), flexible_since=4, api_key=20)
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
