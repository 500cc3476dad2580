"""FindCoordinator (key 10), versions 0-6: the broker that coordinates a group, or the transactions of a producer.

1 adds the key type and an error message; 2 no change; 3 is flexible; 4 takes many keys (KIP-699); 5 no change on the
wire; 6 share groups (KIP-932), refused here as by Apache Kafka 3.9 without them.

The coordinator's topic is created with the first request, and the response waits for it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.broker.authorization import Access, Accesses
from ottla.broker.context import RequestContext
from ottla.cluster.acls import Operation, ResourceType
from ottla.cluster.image import BrokerImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.sliced import mapped

FIRST_VERSION_WITH_MANY_KEYS = 4
GROUP = 0
TRANSACTION = 1


class _Router(Protocol):
    """The router of groups, or of transactions."""

    partition_count: int

    def leader_of(self, key: str) -> BrokerImage | None: ...

    async def ensure_topic(self) -> ErrorCode: ...


class _Found(NamedTuple):
    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


def accesses(context: RequestContext, request: FindCoordinatorRequest) -> Accesses:
    """DESCRIBE of each group or transactional id."""
    keys = request.coordinator_keys if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS else (request.key,)
    kind = ResourceType.TRANSACTIONAL_ID if request.key_type == TRANSACTION else ResourceType.GROUP
    return (Access(Operation.DESCRIBE, kind, key) for key in keys)


def handle(context: RequestContext, request: FindCoordinatorRequest) -> None:
    """Reply at once if the coordinator's topic exists; otherwise create it first."""
    is_denied = context.permitted is not None and not context.permitted
    router = None if is_denied else _router(context, request.key_type)
    if router is None or router.partition_count:
        _answer(context, request, ErrorCode.NONE)
    else:
        context.spawn(_make_topic_and_answer(context, request, router))


async def _make_topic_and_answer(context: RequestContext, request: FindCoordinatorRequest, router: _Router) -> None:
    _answer(context, request, await router.ensure_topic())


def _router(context: RequestContext, key_type: int) -> _Router | None:
    if key_type == GROUP:
        return context.broker.groups.router
    return context.broker.transactions.router if key_type == TRANSACTION else None


def _answer(context: RequestContext, request: FindCoordinatorRequest, error: ErrorCode) -> None:
    if context.api_version < FIRST_VERSION_WITH_MANY_KEYS:
        found = _find(context, request.key, request.key_type, error)
        context.reply(
            FindCoordinatorResponse(
                error_code=found.error,
                error_message=found.error.message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        )
        return
    context.reply_in_slices(
        FindCoordinatorResponse(
            coordinators=mapped(
                request.coordinator_keys, lambda key: _coordinator(key, _find(context, key, request.key_type, error))
            )
        )
    )


def _coordinator(key: str, found: _Found) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error,
        error_message="" if found.error is ErrorCode.NONE else found.error.message,
    )


def _find(context: RequestContext, key: str, key_type: int, error: ErrorCode) -> _Found:
    if key_type == TRANSACTION:
        if not context.permits(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return _Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif key_type != GROUP:
        return _Found(ErrorCode.INVALID_REQUEST)
    elif not context.permits(Operation.DESCRIBE, ResourceType.GROUP, key):
        return _Found(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if error is not ErrorCode.NONE:
        return _Found(error)
    router = _router(context, key_type)
    leader = None if router is None else router.leader_of(key)
    endpoint = None if leader is None else leader.endpoint(context.listener_name)
    if leader is None or endpoint is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(ErrorCode.NONE, leader.id, endpoint.host, endpoint.port)
