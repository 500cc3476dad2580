"""A broker's session with coordination metadata in the same process, which ends as if its process had been killed."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.zk.client import LocalClient, Watcher
from ottla.zk.tree import Operation, Result, SessionExpiredError, Stat
from ottla.zk.watches import LocalWatch


class KillableSession(LocalClient):
    """A session that `kill` ends: its ephemeral nodes go, and whoever still uses it gets SessionExpiredError."""

    _is_killed = False

    def kill(self) -> None:
        """End the session at once; its own watches are not called."""
        self._is_killed = self._closed = True
        killed = self.session_id
        self._watches.drop_if(lambda watch: isinstance(watch, LocalWatch) and watch.session_id == killed)
        self.notify(self._store.expire_session(killed))

    def _check(self, path: str) -> None:
        if self._is_killed:
            raise SessionExpiredError(path)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """See `ZkClient.get`."""
        self._check(path)
        return await super().get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """See `ZkClient.get_many`."""
        self._check(paths[0] if paths else "/")
        return await super().get_many(paths)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """See `ZkClient.children`."""
        self._check(path)
        return await super().children(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """See `ZkClient.exists`."""
        self._check(path)
        return await super().exists(path, watch)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """See `ZkClient.multi`."""
        self._check(operations[0].path if operations else "/")
        return await super().multi(operations)
