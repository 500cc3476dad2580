"""Users with SCRAM credentials: over the wire, or in ZooKeeper before the first broker is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.admin.model import ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.client.admin.scram import ScramAdmin
from ottla.client.errors import InvalidArgumentError
from ottla.env.randomness import Randomness
from ottla.peer.cluster import Cluster
from ottla.security.scram import (
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    credential_of_password,
)
from ottla.zk.client import ZkClient, ensure_path
from ottla.zk.layout import (
    ConfigChangeZnode,
    UserConfigZnode,
    ZnodeDataError,
    entity_name,
    named_entity,
)
from ottla.zk.tree import Create, NoNodeError, Operation, Set


class User(NamedTuple):
    """A user and its credentials."""

    name: str
    credentials: Sequence[ScramCredentialInfo]


class UsersOfCluster:
    """The users of a cluster, by its brokers. Raises ClientError."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = ScramAdmin(cluster)

    async def list(self) -> Sequence[User]:
        """All users with credentials, by name."""
        found = await self._admin.describe_user_scram_credentials()
        return [User(*each) for each in sorted(found.items())]

    async def create(self, user: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
        """Make or replace credentials."""
        await self._admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(user, mechanism, password, iterations) for mechanism in mechanisms
        )

    async def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Delete credentials."""
        await self._admin.alter_user_scram_credentials(
            UserScramCredentialDeletion(user, mechanism) for mechanism in mechanisms
        )


class UsersInZooKeeper:
    """The users in a cluster's znodes. Raises ZkError, ZnodeDataError, InvalidArgumentError."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    async def list(self) -> Sequence[User]:
        """All users with credentials, by name."""
        try:
            names = await self._zk.children(UserConfigZnode.ROOT)
        except NoNodeError:
            return []
        users = [user for name in names if (user := named_entity(name))]
        found = [User(user, _infos(user, (await self._found(user))[0])) for user in sorted(users)]
        return [each for each in found if each.credentials]

    async def create(self, user: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
        """Make or replace credentials."""
        made = {}
        for mechanism in mechanisms:
            salt = Randomness().secret_bytes(SALT_BYTES)
            made[mechanism] = credential_of_password(mechanism, password, salt, iterations)
        await self._change(user, made)

    async def delete(self, user: str, mechanisms: Sequence[str]) -> None:
        """Delete credentials."""
        await self._change(user, dict.fromkeys(mechanisms))

    async def _found(self, user: str) -> tuple[dict[str, str], int | None]:
        path = UserConfigZnode.path(user)
        try:
            data, stat = await self._zk.get(path)
        except NoNodeError:
            return {}, None
        return UserConfigZnode.decode(path, data), stat.version

    async def _change(self, user: str, changes: Mapping[str, ScramCredential | None]) -> None:
        configs, version = await self._found(user)
        for mechanism, credential in changes.items():
            if credential is not None:
                configs[mechanism] = credential.to_text()
            elif configs.pop(mechanism, None) is None:
                raise InvalidArgumentError(f"user {user!r} has no credential for {mechanism}")
        for root in (UserConfigZnode.ROOT, ConfigChangeZnode.ROOT):
            await ensure_path(self._zk, root)
        path, data = UserConfigZnode.path(user), UserConfigZnode.encode(configs)
        operations: list[Operation] = [
            Create(path, data) if version is None else Set(path, data, version),
            Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(f"users/{entity_name(user)}"), sequential=True),
        ]
        await self._zk.multi(operations)


def _infos(user: str, configs: Mapping[str, str]) -> list[ScramCredentialInfo]:
    try:
        return [
            ScramCredentialInfo(name, ScramCredential.from_text(configs[name]).iterations)
            for name in SCRAM_MECHANISMS
            if name in configs
        ]
    except ValueError as error:
        raise ZnodeDataError(f"{UserConfigZnode.path(user)}: {error}") from None
