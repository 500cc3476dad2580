"""DescribeUserScramCredentials (key 50), version 0: mechanisms and iterations of users' SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from ottla.broker.authorization import Accesses, on_cluster
from ottla.broker.context import RequestContext
from ottla.broker.control.scram_users import users_of
from ottla.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.cluster.refusal import LONGEST_RESPONSE_MESSAGE
from ottla.security.scram import MECHANISM_OF, ScramCredential
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "


def accesses(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Accesses:
    yield on_cluster(Operation.DESCRIBE)


def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> None:
    if not context.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        context.reply(
            DescribeUserScramCredentialsResponse(
                error_code=int(error),
                error_message=error.message,
                # As Apache Kafka: the error once more, for a user without a name.
                results=[DescribeUserScramCredentialsResult(error_code=int(error), error_message=error.message)],
            )
        )
        return
    context.run(_describe(context, request))


async def _describe(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> None:
    slices, users = context.broker.slices, users_of(context.broker.control)
    asked: Counter[str] = Counter()
    for each in request.users or ():
        await slices.point()
        asked[each.name] += 1
    once = [user for user, times in asked.items() if user and times == 1]
    found = await users.described(once if asked else None)
    results = []
    for user in asked or found:
        await slices.point()
        results.append(_result(user, asked[user], found.get(user)))
    await context.replied(DescribeUserScramCredentialsResponse(results=results))


def _result(
    user: str, times: int, credentials: dict[str, ScramCredential] | None
) -> DescribeUserScramCredentialsResult:
    error, message = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist"
    if credentials is not None:
        infos = [
            CredentialInfo(mechanism=number, iterations=credentials[name].iterations)
            for number, name in MECHANISM_OF.items()
            if name in credentials
        ]
        return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
    if not user:
        message = "Username must not be empty"
    elif times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"{_TWICE}{user}"[:LONGEST_RESPONSE_MESSAGE]
    return DescribeUserScramCredentialsResult(user=user, error_code=int(error), error_message=message)
