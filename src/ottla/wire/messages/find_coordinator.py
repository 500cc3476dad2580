"""FindCoordinator (key 10): the broker that looks after a group or a transactional id.

Versions: 1 key type, throttle time, error message; 3 flexible; 4 many keys at once (KIP-699);
5 TRANSACTION_ABORTABLE (KIP-890); 6 share groups (KIP-932).
"""

from __future__ import annotations

from ottla.wire.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field, message, struct


@message(versions=(0, 6), flexible_since=3, api_key=10)
class FindCoordinatorRequest(Message):
    key: str = field(STRING, until=3)
    key_type: int = field(INT8, since=1)  # 0 group, 1 transaction, 2 share.
    coordinator_keys: list[str] = field(array(STRING), since=4)


@struct
class Coordinator(Struct):
    key: str = field(STRING, since=4)
    node_id: int = field(INT32, since=4)
    host: str = field(STRING, since=4)
    port: int = field(INT32, since=4)
    error_code: int = field(INT16, since=4)
    error_message: str | None = field(STRING, since=4, nullable_since=4, default=None, ignorable=True)


@message(versions=(0, 6), flexible_since=3, api_key=10)
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16, until=3)
    error_message: str | None = field(STRING, since=1, until=3, nullable_since=1, default=None, ignorable=True)
    node_id: int = field(INT32, until=3)
    host: str = field(STRING, until=3)
    port: int = field(INT32, until=3)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4)
