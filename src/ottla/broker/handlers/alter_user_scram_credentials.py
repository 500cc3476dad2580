"""AlterUserScramCredentials (key 51), version 0: make, change and delete SCRAM credentials of users (KIP-554).

Any broker does it; Apache Kafka's does as controller only.
"""

from __future__ import annotations

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.scram_users import users_of
from ottla.broker.error_answers import CLUSTER_DENIED, error_fields
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.refusal import TopicRefusal
from ottla.security.scram import MAX_ITERATIONS, MECHANISM_OF, MIN_ITERATIONS, ScramCredential, credential_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_TWICE = TopicRefusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def accesses(context: RequestContext, request: AlterUserScramCredentialsRequest) -> Accesses:
    yield on_cluster(Operation.ALTER)


def handle(context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
    """Change the credentials of each user; each has its own result."""
    context.connection.keep_frame()
    context.spawn(_alter(context, request))


async def _alter(context: RequestContext, request: AlterUserScramCredentialsRequest) -> None:
    changes: dict[str, dict[str, ScramCredential | None]] = {}
    refusals: dict[str, TopicRefusal] = {}
    permitted = context.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    requested: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for each in requested:
        await context.broker.slices.point()
        refusal = _refusal(each) if permitted else CLUSTER_DENIED
        of_user = changes.setdefault(each.name, {})
        if refusal is None:
            mechanism = MECHANISM_OF[each.mechanism]
            refusal = _TWICE if mechanism in of_user else None
            of_user[mechanism] = _credential(mechanism, each)
        if refusal is not None:
            refusals.setdefault(each.name, refusal)
    results = []
    users = users_of(context.broker.control)
    for user, wanted in changes.items():
        await context.broker.slices.point()
        failed = refusals.get(user) or await users.change(user, wanted)
        results.append(AlterUserScramCredentialsResult(user=user, **error_fields(failed)))
    await context.replied(AlterUserScramCredentialsResponse(results=results))


def _refusal(each: ScramCredentialDeletion | ScramCredentialUpsertion) -> TopicRefusal | None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if not each.name:
        return TopicRefusal(unacceptable, "Username must not be empty")
    if each.mechanism not in MECHANISM_OF:
        return TopicRefusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(each, ScramCredentialUpsertion):
        if each.iterations > MAX_ITERATIONS:
            return TopicRefusal(unacceptable, "Too many iterations")
        if each.iterations < MIN_ITERATIONS:
            return TopicRefusal(unacceptable, "Too few iterations")
    return None


def _credential(mechanism: str, each: ScramCredentialDeletion | ScramCredentialUpsertion) -> ScramCredential | None:
    if isinstance(each, ScramCredentialDeletion):
        return None
    return credential_of(mechanism, bytes(each.salted_password), bytes(each.salt), each.iterations)
