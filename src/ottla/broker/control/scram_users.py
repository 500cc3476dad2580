"""SCRAM credentials of users, in the znodes where Apache Kafka keeps them (`/config/users/<user>`).

The checks and their words are those of Apache Kafka 3.9's ZkAdminManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.control.znodes import find_user_config, reconfiguration, reconfigured
from ottla.cluster.configs import oversized
from ottla.cluster.refusal import TopicRefusal
from ottla.security.scram import SCRAM_MECHANISMS, ScramCredential
from ottla.wire.errors import ErrorCode
from ottla.zk.client import ensure_path
from ottla.zk.layout import SALT_SECRET_PATH, UserConfigZnode, ZnodeDataError, entity_name, named_entity

if TYPE_CHECKING:
    from ottla.broker.control.plane import ControlPlane
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.broker")

#: Znodes read together.
READS_AT_ONCE = 50
ENTITY_PREFIX = "users/"
NO_SUCH_CREDENTIAL = TopicRefusal(
    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
)


def users_of(control: ControlPlane) -> ScramUsers:
    """The users as they are in the znodes, also where no listener has SASL."""
    return control.known_users or ScramUsers(control.session.zk, {})


async def salt_secret(zk: ZkClient, proposed: bytes) -> bytes:
    """The secret that all brokers of the cluster know; the first one proposes it. Raises `ZkError`."""
    await ensure_path(zk, SALT_SECRET_PATH, proposed)
    return (await zk.get(SALT_SECRET_PATH))[0] or proposed


class ScramUsers:
    """Reads and changes credentials; `credentials`, by mechanism and user, are those that logins are checked by."""

    def __init__(self, zk: ZkClient, credentials: Mapping[str, dict[str, ScramCredential]]) -> None:
        self._zk = zk
        self._credentials = credentials

    async def load(self) -> None:
        """Take over the credentials of all users. Raises `ZkError`."""
        found = await self.described(None)
        for mechanism, users in self._credentials.items():
            new = {user: of_user[mechanism] for user, of_user in found.items() if mechanism in of_user}
            users.clear()
            users.update(new)

    async def reload(self, entity: str) -> None:
        """Take over the changed credentials of `users/<user>`; other entities are of no interest. Raises `ZkError`."""
        user = named_entity(entity.removeprefix(ENTITY_PREFIX)) if entity.count("/") == 1 else None
        if user is not None:
            self._take_over(user, await self._of(user))

    def _take_over(self, user: str, credentials: Mapping[str, ScramCredential]) -> None:
        for mechanism, users in self._credentials.items():
            if mechanism in credentials:
                users[user] = credentials[mechanism]
            else:
                users.pop(user, None)

    async def described(self, users: list[str] | None) -> dict[str, dict[str, ScramCredential]]:
        """The credentials of these users, or of all that have some (None). Raises `ZkError`."""
        if users is None:
            names = (
                []
                if await self._zk.exists(UserConfigZnode.ROOT) is None
                else await self._zk.children(UserConfigZnode.ROOT)
            )
            users = sorted(user for name in names if (user := named_entity(name)))
        found: dict[str, dict[str, ScramCredential]] = {}
        for start in range(0, len(users), READS_AT_ONCE):
            some = users[start : start + READS_AT_ONCE]
            found |= zip(some, await asyncio.gather(*map(self._of, some)), strict=True)
        return {user: credentials for user, credentials in found.items() if credentials}

    async def _of(self, user: str) -> dict[str, ScramCredential]:
        """The credentials of a user; damaged ones are logged and left out."""
        credentials = {}
        try:
            configs, _ = await find_user_config(self._zk, UserConfigZnode.path(user))
        except ZnodeDataError as error:
            log.error("the credentials of user %r cannot be read: %s", user, error)
            return {}
        for mechanism in SCRAM_MECHANISMS:
            if mechanism in configs:
                try:
                    credentials[mechanism] = ScramCredential.from_text(configs[mechanism])
                except ValueError as error:
                    log.error("the %s credential of user %r cannot be read: %s", mechanism, user, error)
        return credentials

    async def change(self, user: str, changes: Mapping[str, ScramCredential | None]) -> TopicRefusal | None:
        """Set the user's credentials by mechanism, delete those that are None; return the refusal if that fails.

        They are in force here when this returns, and with other brokers soon.
        """
        return await reconfigured(lambda: self._change(user, changes))

    async def _change(self, user: str, changes: Mapping[str, ScramCredential | None]) -> TopicRefusal | None:
        path = UserConfigZnode.path(user)
        present, version = await find_user_config(self._zk, path)
        wanted = dict(present)
        for mechanism, credential in changes.items():
            if credential is not None:
                wanted[mechanism] = credential.to_text()
            elif wanted.pop(mechanism, None) is None:
                return NO_SUCH_CREDENTIAL
        data = UserConfigZnode.encode(wanted)
        refusal = oversized(wanted, len(data))
        if refusal is not None:
            return refusal
        entity = f"{ENTITY_PREFIX}{entity_name(user)}"
        await self._zk.multi(await reconfiguration(self._zk, path, entity, data, version))
        self._take_over(user, await self._of(user))
        return None
