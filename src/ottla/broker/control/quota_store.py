"""Quotas of clients, in the znodes where Apache Kafka keeps them: `/config/users`, `/config/clients`, `/config/ips`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.control.announced_changes import READ_AT_ONCE
from ottla.broker.control.znodes import find_user_config, reconfiguration, reconfigured
from ottla.cluster.configs import oversized
from ottla.cluster.quotas import ABSENT, QuotaEntity, changed, quotas_in
from ottla.cluster.refusal import TopicRefusal
from ottla.zk.client import ensure_path
from ottla.zk.layout import ClientConfigZnode, IpConfigZnode, UserConfigZnode, ZnodeDataError, named_entity
from ottla.zk.tree import NoNodeError, parent_of

if TYPE_CHECKING:
    from ottla.broker.quotas.clients import ClientQuotas
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.broker")

_CONFIG: Final = "/config/"
_ROOTS: Final = (UserConfigZnode.ROOT, ClientConfigZnode.ROOT, IpConfigZnode.ROOT)
#: What notifications about quotas begin with.
ENTITY_PREFIXES: Final = tuple(f"{root.removeprefix(_CONFIG)}/" for root in _ROOTS)


class QuotaStore:
    """Reads and changes the quotas; those in `quotas` are in force."""

    def __init__(self, zk: ZkClient, quotas: ClientQuotas) -> None:
        self._zk = zk
        self._quotas = quotas

    async def load(self) -> None:
        """Take over all quotas. Raises `ZkError`."""
        self._quotas.set_all(await self.described())

    async def reload(self, entity_path: str) -> None:
        """Take over the changed quotas of an entity, by its path below `/config`. Raises `ZkError`."""
        entity = _entity_at(entity_path)
        if entity is not None:
            self._quotas.set(entity, (await self._read([_CONFIG + entity_path])).get(entity, {}))

    async def described(self) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of all entities that have some; damaged ones are logged and left out. Raises `ZkError`."""
        found = {}
        for root in _ROOTS:
            names = await self._children(root)
            for start in range(0, len(names), READ_AT_ONCE):
                found.update(await self._read([f"{root}/{name}" for name in names[start : start + READ_AT_ONCE]]))
                await asyncio.sleep(0)  # users with credentials have znodes, too
        return found

    async def _read(self, paths: list[str]) -> dict[QuotaEntity, dict[str, float]]:
        found: dict[QuotaEntity, dict[str, float]] = {}
        for path, node in zip(paths, await self._zk.get_many(paths), strict=True):
            if node is None:
                continue
            data, stat = node
            entity, values = _entity_at(path.removeprefix(_CONFIG)), _quotas_of(path, data)
            if entity is None:
                continue
            if values:
                found[entity] = values
            if stat.children_count and entity.user != ABSENT and entity.client_id == ABSENT:
                clients = await self._children(f"{path}/clients")
                found.update(await self._read([f"{path}/clients/{name}" for name in clients]))
        return found

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._zk.children(path)
        except NoNodeError:
            return []

    async def change(
        self, entity: QuotaEntity, ops: Iterable[tuple[str, float | None]], *, validate_only: bool
    ) -> TopicRefusal | None:
        """Set and remove quotas of an entity; they are in force here when this returns. The refusal if that fails."""
        wanted = list(ops)
        return await reconfigured(lambda: self._change(entity, wanted, validate_only))

    async def _change(
        self, entity: QuotaEntity, ops: list[tuple[str, float | None]], validate_only: bool
    ) -> TopicRefusal | None:
        path = _path_of(entity)
        present, version = await find_user_config(self._zk, path)
        wanted = changed(entity, present, ops)
        if isinstance(wanted, TopicRefusal):
            return wanted
        data = UserConfigZnode.encode(wanted)
        refusal = oversized(wanted, len(data))
        if refusal is not None or validate_only:
            return refusal
        if version is None:
            await ensure_path(self._zk, parent_of(path))
        entity_path = path.removeprefix(_CONFIG)
        await self._zk.multi(await reconfiguration(self._zk, path, entity_path, data, version))
        self._quotas.set(entity, _quotas_of(path, data))
        return None


def _quotas_of(path: str, data: bytes | None) -> dict[str, float]:
    """The quotas in a znode; damaged ones are logged and left out."""
    try:
        return quotas_in(UserConfigZnode.decode(path, data))
    except (ZnodeDataError, ValueError) as error:
        log.error("the quotas in %s cannot be read: %s", path, error)
        return {}


def _path_of(entity: QuotaEntity) -> str:
    if entity.ip != ABSENT:
        return IpConfigZnode.path(entity.ip)
    if entity.user == ABSENT:
        return ClientConfigZnode.path(entity.client_id)
    if entity.client_id == ABSENT:
        return UserConfigZnode.path(entity.user)
    return UserConfigZnode.client_path(entity.user, entity.client_id)


def _entity_at(entity_path: str) -> QuotaEntity | None:
    """The entity of a path below `/config`; None for a path that no quotas are kept at."""
    parts = entity_path.split("/")
    name = named_entity(parts[1])
    match parts:
        case ["users", _]:
            return QuotaEntity(user=name)
        case ["users", _, "clients", client]:
            return QuotaEntity(user=name, client_id=named_entity(client))
        case ["clients", _]:
            return QuotaEntity(client_id=name)
        case ["ips", _]:
            return QuotaEntity(ip=name)
    return None
