"""The cluster's ACLs: read from the znodes, changed there, and followed as other brokers and tools change them.

`rules` has what is in force here. Changes of one pattern are conditional on the version of its znode, and announced in
the same transaction (`zk.layout.acls`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.announced_changes import READ_AT_ONCE, Announced, AnnouncedChanges
from ottla.broker.control.refusals import METADATA_ERRORS, metadata_refusal
from ottla.broker.control.znodes import CHANGED_MEANWHILE, MOST_ATTEMPTS, expired_notifications
from ottla.cluster.acls import AclEntry, AclPattern
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import AclChangeZnode, AclZnode, ZnodeDataError
from ottla.zk.tree import Create, Delete, NoNodeError, Operation, Set

if TYPE_CHECKING:
    from ottla.cluster.acls import AclRules
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.authorizer")


class AclStore:
    """The ACLs, followed from `start` to `stop`."""

    def __init__(self, zk: ZkClient, rules: AclRules) -> None:
        self._zk = zk
        self.rules = rules
        self._changes = AnnouncedChanges(
            zk, self, list(AclChangeZnode.ROOTS.values()), AclChangeZnode.PREFIX, list(AclZnode.FOLDERS), "ACLs", log
        )
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read all ACLs, and follow their changes from now on. Raises `ZkError`, `DiskError`."""
        await self._changes.start()

    async def stop(self) -> None:
        """Stop following changes."""
        await self._changes.stop()

    # Following

    async def read_all(self) -> None:
        """See `AnnouncedReader.read_all`."""
        await self._read([*self.rules.patterns, *await self._found()])

    async def read_announced(self, announced: Sequence[Announced]) -> None:
        """See `AnnouncedReader.read_announced`."""
        changed: list[AclPattern] = []
        for path, data in announced:
            try:
                changed.append(AclChangeZnode.decode(path, data))
            except ZnodeDataError as error:
                log.error("all ACLs are read, since a change of them cannot be: %s", error)
                changed += [*self.rules.patterns, *await self._found()]
        await self._read(changed)

    async def _found(self) -> list[AclPattern]:
        """The patterns that have a znode."""
        return [
            AclPattern(resource_type, name, pattern_type)
            for folder, (pattern_type, resource_type) in AclZnode.FOLDERS.items()
            for name in await self._zk.children(folder)
        ]

    async def _read(self, patterns: Iterable[AclPattern]) -> None:
        once = list(dict.fromkeys(patterns))
        for start in range(0, len(once), READ_AT_ONCE):
            await self._read_some(once[start : start + READ_AT_ONCE])

    async def _read_some(self, patterns: Sequence[AclPattern]) -> None:
        async with self._changing:
            paths = [AclZnode.path(pattern) for pattern in patterns]
            for pattern, path, found in zip(patterns, paths, await self._zk.get_many(paths), strict=True):
                try:
                    self.rules.replace(pattern, () if found is None else AclZnode.decode(path, found[0]))
                except ZnodeDataError as error:
                    self.rules.deny_everything(pattern)
                    log.error(
                        "what the ACLs in %s are for is denied to all but super users, since they cannot be read: %s. "
                        "Delete that znode and add its ACLs again",
                        path,
                        error,
                    )

    # Changing

    async def add(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> TopicRefusal | None:
        """Add ACLs for a pattern; they are in force here when this returns. A refusal says why that failed."""
        return await self.change(pattern, lambda present: present.union(entries))

    async def change(
        self, pattern: AclPattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> TopicRefusal | None:
        """Make a change to the ACLs that a pattern has, again where others change them at the same time."""
        async with self._changing:
            for attempt in range(1, MOST_ATTEMPTS + 1):
                try:
                    await self._change_once(pattern, change)
                except ZnodeDataError as error:
                    return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The present ACLs are damaged: {error}")
                except CHANGED_MEANWHILE as error:
                    if attempt == MOST_ATTEMPTS:
                        message = f"Others changed the ACLs at the same time, {MOST_ATTEMPTS} times: {error}"
                        return TopicRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, message)
                except METADATA_ERRORS as error:
                    return metadata_refusal(error)
                else:
                    return None
            raise AssertionError("the last attempt returns")

    async def _change_once(
        self, pattern: AclPattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> None:
        """Raises `ZkError`, `DiskError`, `ZnodeDataError`."""
        zk, path = self._zk, AclZnode.path(pattern)
        data, version = None, None
        try:
            data, stat = await zk.get(path)
            version = stat.version
        except NoNodeError:
            pass
        present = AclZnode.decode(path, data)
        wanted = change(present)
        if wanted != present:
            encoded = AclZnode.encode(wanted)
            operation: Operation
            if version is None:
                operation = Create(path, encoded)
            else:
                operation = Set(path, encoded, version) if wanted else Delete(path, version)
            root = AclChangeZnode.ROOTS[pattern.pattern_type]
            announcement = Create(f"{root}/{AclChangeZnode.PREFIX}", AclChangeZnode.encode(pattern), sequential=True)
            expired = await expired_notifications(zk, root, AclChangeZnode.EXPIRATION_MS)
            await zk.multi([operation, announcement, *expired])
        self.rules.replace(pattern, wanted)
