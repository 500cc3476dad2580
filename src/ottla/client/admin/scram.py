"""SCRAM credentials of users (KIP-554): the password is salted here, and never leaves this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.client.admin.model import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.admin.outcomes import AdminCalls, Outcomes, check_controller
from ottla.client.errors import BrokerError
from ottla.env.randomness import Randomness
from ottla.peer.arguments import several, text
from ottla.peer.errors import InvalidArgumentError
from ottla.security.scram import MECHANISM_OF, SALT_BYTES, SCRAM_MECHANISMS, salted_password
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

Alteration = UserScramCredentialUpsertion | UserScramCredentialDeletion
_NUMBERS = {name: number for number, name in MECHANISM_OF.items()}


class ScramAdmin(AdminCalls):
    """Admin calls about SCRAM credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        """Return mechanisms and iterations of these users' credentials, or of all users that have any.

        Raises BrokerError (RESOURCE_NOT_FOUND for a user without credentials), PartlyFailedError.
        """
        wanted = None if users is None else [text("a user", user) for user in several("users", users)]
        if wanted is not None:
            outcomes: Outcomes[str, list[ScramCredentialInfo]] = Outcomes("describing users", wanted)
            return await outcomes.work_off(self._cluster, lambda some: self._describe(outcomes, some), timeout_ms)

        async def all_users() -> dict[str, list[ScramCredentialInfo]]:
            return {result.user: _infos(result.credential_infos) for result in (await self._asked(None)).results}

        return await self._cluster.retry("describing users", all_users, timeout_ms)

    async def _asked(self, users: list[str] | None) -> DescribeUserScramCredentialsResponse:
        names = None if users is None else [UserName(name=user) for user in users]
        answer: DescribeUserScramCredentialsResponse = await self._cluster.request_any(
            DescribeUserScramCredentialsRequest(users=names)
        )
        if answer.error_code:
            raise BrokerError(answer.error_code, "users cannot be described", answer.error_message)
        return answer

    async def _describe(self, outcomes: Outcomes[str, list[ScramCredentialInfo]], users: list[str]) -> None:
        for result in (await self._asked(users)).results:
            if result.error_code:
                what = f"user {result.user!r} cannot be described"
                outcomes.fail(result.user, BrokerError(result.error_code, what, result.error_message))
            else:
                outcomes.succeed(result.user, _infos(result.credential_infos))
        outcomes.check_answered(users)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[Alteration], *, timeout_ms: int | None = None
    ) -> None:
        """Make, change and delete credentials of users; those of one user all or none.

        Raises BrokerError (UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND), PartlyFailedError.
        """
        wanted = [_checked(each) for each in several("alterations", alterations)]
        requested = []
        for each in wanted:
            requested.append(_requested(each))
            await asyncio.sleep(0)  # salting takes milliseconds
        outcomes: Outcomes[str, None] = Outcomes("altering users", [each.user for each in wanted])

        async def ask(users: list[str]) -> None:
            request = AlterUserScramCredentialsRequest(
                deletions=[
                    each for each in requested if isinstance(each, ScramCredentialDeletion) and each.name in users
                ],
                upsertions=[
                    each for each in requested if isinstance(each, ScramCredentialUpsertion) and each.name in users
                ],
            )
            answer: AlterUserScramCredentialsResponse = await self._cluster.request_controller(request)
            for result in answer.results:
                check_controller(self._cluster, result.error_code)
                if result.error_code == ErrorCode.NONE:
                    outcomes.succeed(result.user, None)
                else:
                    what = f"the credentials of user {result.user!r} are not changed"
                    outcomes.fail(result.user, BrokerError(result.error_code, what, result.error_message))
            outcomes.check_answered(users)

        await outcomes.work_off(self._cluster, ask, timeout_ms)


def _infos(infos: Iterable[CredentialInfo]) -> list[ScramCredentialInfo]:
    """Mechanisms that are known, with their iterations."""
    return [
        ScramCredentialInfo(MECHANISM_OF[each.mechanism], each.iterations)
        for each in infos
        if each.mechanism in MECHANISM_OF
    ]


def _checked(each: Alteration) -> Alteration:
    if not isinstance(each, UserScramCredentialUpsertion | UserScramCredentialDeletion):
        raise InvalidArgumentError("an alteration is a UserScramCredentialUpsertion or UserScramCredentialDeletion")
    if each.mechanism not in SCRAM_MECHANISMS:
        raise InvalidArgumentError(f"the mechanism is one of {', '.join(SCRAM_MECHANISMS)}, not {each.mechanism!r}")
    text("a user", each.user)
    return each


def _requested(each: Alteration) -> ScramCredentialUpsertion | ScramCredentialDeletion:
    number = _NUMBERS[each.mechanism]
    if isinstance(each, UserScramCredentialDeletion):
        return ScramCredentialDeletion(name=each.user, mechanism=number)
    salt = each.salt or Randomness().secret_bytes(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=each.user,
        mechanism=number,
        iterations=each.iterations,
        salt=salt,
        salted_password=salted_password(each.mechanism, each.password, salt, each.iterations),
    )
